// How a process detects that it was forked: a page that a child gets zeroed (MADV_WIPEONFORK, Linux
// 4.14), and a vfork child gets shared. It detects every child with memory of its own, also those
// of raw clone(), which run no atfork handler. If the kernel refuses it, as gVisor does
// (pkg/sentry/syscalls/linux/sys_mmap.go), a handler wipes the page. A child of raw clone() then
// counts as its parent, which is charged for what the child holds.
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

// Null until `make_fork_page` has made it; never replaced.
inline std::atomic<ForkPage*> fork_page{nullptr};

// The page, made if there is none. Null if the host has no memory for it; a later call tries again.
[[gnu::cold]] ForkPage* make_fork_page();

// A number of this process that none of its ancestors had. 0 if forks cannot be detected.
uint32_t fork_generation();

}  // namespace fracgpu
