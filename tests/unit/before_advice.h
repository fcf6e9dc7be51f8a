// Stops a test where the library is about to keep memory from its children: between the open() of a
// file and madvise(MADV_DONTFORK). For one source of a program, since it defines madvise.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <functional>

// Called by each madvise(MADV_DONTFORK), before the kernel is.
inline std::function<void()> before_advice;

extern "C" int madvise(void* at, size_t size, int advice) noexcept {
  if (advice == MADV_DONTFORK && before_advice) before_advice();
  return static_cast<int>(syscall(SYS_madvise, at, size, advice));
}
