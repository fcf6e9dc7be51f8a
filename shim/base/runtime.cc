// The few runtime symbols that statically linked code refers to, defined here and hidden.
//
// The library must load on glibc 2.31, but g++ 12's static runtime and LLVM's libunwind refer to
// newer symbols. Nothing here throws or allocates through the program's own operators: the library
// is built without exceptions, and its memory is its own.
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>

#include "shim/base/elf.h"
#include "shim/base/static_spin_lock.h"

#pragma GCC visibility push(hidden)

void* operator new(size_t size) {
  return malloc(size);
}
void operator delete(void* pointer) noexcept {
  free(pointer);
}
void operator delete(void* pointer, size_t) noexcept {
  free(pointer);
}

// LLVM's libunwind may be built with _FORTIFY_SOURCE; musl has no checked functions.
extern "C" int __vfprintf_chk(FILE* out, int, const char* format, va_list arguments) {
  return vfprintf(out, format, arguments);
}
extern "C" int __vsnprintf_chk(char* out, size_t size, int, size_t, const char* format,
                               va_list arguments) {
  return vsnprintf(out, size, format, arguments);
}

// Musl has it from 1.2.4 on.
extern "C" int statx(int fd, const char* path, int flags, unsigned mask, struct statx* out) {
  return static_cast<int>(syscall(SYS_statx, fd, path, flags, mask, out));
}

namespace std {

// Only a defect in the shim itself leads here: none of its texts and tables uses the heap.
void __throw_bad_alloc() {
  abort();
}
void __throw_bad_array_new_length() {
  abort();
}
void __throw_length_error(const char*) {
  abort();
}
void __throw_logic_error(const char*) {
  abort();
}
void __throw_out_of_range_fmt(const char*, ...) {
  abort();
}
void terminate() noexcept {
  abort();
}

}  // namespace std

extern "C" {

// Ubuntu's archive of libunwind calls it, and musl does not have it.
// NOLINTNEXTLINE(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
void* __memcpy_chk(void* to, const void* from, size_t bytes, size_t room) {
  if (bytes > room) abort();
  return memcpy(to, from, bytes);
}

// The base of fmt::format_error, which is compiled in but never made: fmt is built without
// exceptions. Under their mangled names, since defining std::runtime_error itself would bring in
// the static libstdc++ with its emergency heap for exceptions.
void _ZNSt13runtime_errorC2EPKc(void*, const char*) {
  abort();
}
void _ZNSt13runtime_errorD2Ev(void*) {}
const char* _ZNKSt13runtime_error4whatEv(const void*) {
  return "fracgpu";
}

// libstdc++ reads it to skip atomics in programs with one thread (glibc 2.32).
char __libc_single_threaded = 0;

// libunwind needs dladdr (glibc 2.34) for a function's name, and a read-write lock (2.34) for its
// cache of unwind tables.
int dladdr(const void* address, Dl_info* info) noexcept {
  memset(info, 0, sizeof *info);
  return fracgpu::elf::symbol_at(address, info->dli_sname, info->dli_saddr) ? 1 : 0;
}

// A faster way to an unwind table (glibc 2.35). Without it, libunwind asks dl_iterate_phdr.
int _dl_find_object(void*, struct dl_find_object*) noexcept {
  return -1;
}

static constinit fracgpu::StaticSpinLock unwind_cache;
int pthread_rwlock_rdlock(pthread_rwlock_t*) noexcept {
  return unwind_cache.lock(), 0;
}
int pthread_rwlock_wrlock(pthread_rwlock_t*) noexcept {
  return unwind_cache.lock(), 0;
}
int pthread_rwlock_unlock(pthread_rwlock_t*) noexcept {
  return unwind_cache.unlock(), 0;
}

}  // extern "C"

#pragma GCC visibility pop
