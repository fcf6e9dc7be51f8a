// Dispatches ioctls by table. As in KFD, the caller's request says how many bytes of arguments are
// copied in and out; the rest of the struct is zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "this_process.h"

namespace kfd {

struct Caller {
  ThisProcess& process;
  Accounting& accounting;
  uint32_t card;      // if the file is a render node
  uint32_t file = 0;  // which opening of it
};

struct Ioctl {
  unsigned number;
  const char* name;
  size_t bytes;
  // Returns 0 or -errno. Null if not simulated.
  long (*call)(Caller&, void* arguments, size_t bytes);
  bool waits = false;  // called without the process's mutex
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

// IOCTL(AMDKFD_IOC_SVM, svm): `svm` takes a Caller& and the public header's struct.
#define IOCTL(NAME, FUNCTION)                                           \
  {                                                                     \
    _IOC_NR(NAME), #NAME, sizeof(kfd::detail::Adapter<FUNCTION>::Type), \
        kfd::detail::Adapter<FUNCTION>::call                            \
  }
#define NOT_SIMULATED(NAME) \
  { _IOC_NR(NAME), #NAME, _IOC_SIZE(NAME), nullptr }

// Returns 0 or -errno. Reports unknown and unsimulated ioctls with name and size.
long call_ioctl(std::span<const Ioctl> table, const char* device, Caller& caller,
                unsigned long request, void* arguments);
// Reports another request that is not simulated.
void report_unknown(Accounting& accounting, const char* what, unsigned number, size_t bytes);

// Whether the environment's SIMULATED_KFD_REFUSES has this word: an ioctl's name, or "mprotect".
bool refuses(const char* what);

long kfd_ioctl(Caller& caller, unsigned long request, void* arguments);
long drm_ioctl(Caller& caller, unsigned long request, void* arguments);
std::span<const Ioctl> submission_ioctls();

// The handle if the caller owns it and it is of that kind, else 0. Needs the accounting's lock.
uint32_t handle_of_caller(const Caller& caller, uint64_t number, bool gem);
long card_of(const Accounting& accounting, uint32_t gpu_id);  // -EINVAL
// Called when the program unmaps memory (svm.cc).
void forget_ranges(ThisProcess& process, uint64_t start, uint64_t bytes);

}  // namespace kfd
