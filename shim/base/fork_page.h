// How a process knows that it was forked: a page that the kernel gives to a child zeroed
// (MADV_WIPEONFORK, Linux 4.14) and to a vfork child shared. It detects every child with memory of
// its own, also those of raw clone() that run no atfork handler. Where it is
// refused, as by gVisor (pkg/sentry/syscalls/linux/sys_mmap.go), a handler wipes the page: a child
// of raw clone() is then taken for its parent, and what it holds is charged to that.
#pragma once

#include <atomic>
#include <cstdint>

namespace fracgpu {

// All zero at first and in a child.
struct ForkPage {
  std::atomic<void*> process;        // see shim/process/process.h
  std::atomic<uint32_t> generation;  // see fork_generation
  std::atomic<uint32_t> sections;    // that threads are in, and threads that are about to fork;
  std::atomic<uint32_t> forking;     // see unforked.h
};

// Null until `make_fork_page` made it; never replaced.
inline std::atomic<ForkPage*> fork_page{nullptr};

// The page, made if there is none. Null when the host has no memory for it; a later call tries
// again.
[[gnu::cold]] ForkPage* make_fork_page();

// A number of this process that none of its ancestors had. 0 where forks cannot be detected.
uint32_t fork_generation();

}  // namespace fracgpu
