// What the processes of one test share: memory, pipes to wait on each other, and their own count of
// what they hold, which no code of the ledger reads.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <new>

#include "shim/ledger/ledger.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu::fault {

template <typename T>
class Mapped {
 public:
  Mapped()
      : at_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0)) T) {}
  ~Mapped() { munmap(at_, sizeof(T)); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  T* operator->() const { return at_; }
  T& operator*() const { return *at_; }

 private:
  T* at_;
};

// A place where processes wait for each other: whoever waits goes on when it is opened.
class Gate {
 public:
  Gate() { valid_ = pipe(ends_) == 0; }
  ~Gate() {
    close(ends_[0]);
    if (!open_) close(ends_[1]);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open() {
    close(ends_[1]);
    open_ = true;
  }
  // In a child: until the last process that could open it has opened it or ended.
  void wait() const {
    close(ends_[1]);
    char byte;
    while (valid_ && read(ends_[0], &byte, 1) > 0) {
    }
  }
  // One byte for each process that has come so far.
  void arrive() const { [[maybe_unused]] const ssize_t written = write(ends_[1], "", 1); }
  bool await_arrival() const {
    char byte;
    return read(ends_[0], &byte, 1) == 1;
  }

 private:
  int ends_[2] = {-1, -1};
  bool valid_ = false;
  bool open_ = false;
};

inline pid_t spawn(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

inline int exit_status(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// A member of the tenant, with one device.
struct Member {
  bool join(const ScratchTenant& tenant, uint64_t cap_units, const char* key = "GPU-test") {
    return ledger->join(tenant.name(), ProcessIdentity::of_self(), nullptr, error) &&
           add(cap_units, key);
  }
  bool add(uint64_t cap_units, const char* key) {
    device = ledger->device(key, cap_units * layout::kUnit, uint64_t{1} << 40, error);
    return device >= 0;
  }
  bool reserve(uint64_t units) {
    refusal = {};
    return ledger->reserve(device, units, refusal);
  }
  void release(uint64_t units) { ledger->release(device, units); }

  std::unique_ptr<Ledger> ledger = std::make_unique<Ledger>();
  int device = -1;
  Refusal refusal;
  Message error;
};

}  // namespace fracgpu::fault
