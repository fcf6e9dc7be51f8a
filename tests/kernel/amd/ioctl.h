// Tables of ioctls, and how one is found and called: arguments are copied in and out, as long as
// the caller says, and what the caller does not give is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "this_process.h"

namespace kfd {

struct Caller {
  ThisProcess& process;
  Books& books;
  uint32_t card;  // of a render node
};

struct Ioctl {
  unsigned number;
  const char* name;
  size_t bytes;
  // 0 or -errno; null: not simulated.
  long (*call)(Caller&, void* arguments, size_t bytes);
  bool waits = false;  // without the process's mutex
};

namespace detail {
template <auto Function>
struct Adapter;
template <typename Arguments, long (*Function)(Caller&, Arguments&)>
struct Adapter<Function> {
  using Type = Arguments;
  static long call(Caller& caller, void* arguments, size_t) {
    return Function(caller, *static_cast<Arguments*>(arguments));
  }
};
template <typename Arguments, long (*Function)(Caller&, Arguments&, size_t)>
struct Adapter<Function> {
  using Type = Arguments;
  static long call(Caller& caller, void* arguments, size_t bytes) {
    return Function(caller, *static_cast<Arguments*>(arguments), bytes);
  }
};
}  // namespace detail

// IOCTL(AMDKFD_IOC_SVM, svm): `svm` takes the caller and the public header's struct.
#define IOCTL(NAME, FUNCTION)                                           \
  {                                                                     \
    _IOC_NR(NAME), #NAME, sizeof(kfd::detail::Adapter<FUNCTION>::Type), \
        kfd::detail::Adapter<FUNCTION>::call                            \
  }
#define NOT_SIMULATED(NAME) \
  { _IOC_NR(NAME), #NAME, _IOC_SIZE(NAME), nullptr }

// 0 or -errno. An ioctl that is not in the table, or is not simulated, is said with its name and
// size.
long call_ioctl(std::span<const Ioctl> table, const char* device, Caller& caller,
                unsigned long request, void* arguments);
// The same of something else that a caller asks for and that is not there.
void report_unknown(Books& books, const char* what, unsigned number, size_t bytes);

long kfd_ioctl(Caller& caller, unsigned long request, void* arguments);
long drm_ioctl(Caller& caller, unsigned long request, void* arguments);

// What both kinds of device files do.
// A handle's number where the caller has it and it is of that kind, else 0. With the books locked.
uint32_t handle_of_caller(const Caller& caller, uint64_t number, bool gem);
long card_of(const Books& books, uint32_t gpu_id);  // -EINVAL
// The program unmaps memory (svm.cc).
void forget_ranges(ThisProcess& process, uint64_t start, uint64_t bytes);

}  // namespace kfd
