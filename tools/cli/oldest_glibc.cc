// Makes the command load on glibc 2.31 and later, although it is built on a newer one.
//
// The command is copied to container images and nodes that are older than its build machine. Its
// C++ runtime is linked in. That runtime and the command need functions newer than glibc 2.31. This
// file defines all of them, by an older version of the same function or by the system call under
// it. The definitions are hidden from other objects. The gate gate_command_symbol_versions detects
// missing ones.
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif

// old_NAME is NAME in the version of the first glibc for this processor, which every later glibc
// still has.
#define OLD(type, name, parameters)      \
  extern "C" type old_##name parameters; \
  __asm__(".symver old_" #name "," #name "@" OLDEST)

// NAME is the same function. Later versions only moved it from libdl or libpthread.
#define MOVED(type, name, parameters, arguments)                          \
  OLD(type, name, parameters);                                            \
  extern "C" __attribute__((visibility("hidden"))) type name parameters { \
    return old_##name arguments;                                          \
  }

using Main = int (*)(int, char**, char**);
using Procedure = void (*)();

OLD(int, __libc_start_main, (Main, int, char**, Main, Procedure, Procedure, void*));

extern "C" {
extern Main __init_array_start[], __init_array_end[];
void _init();
}

#pragma GCC visibility push(hidden)

namespace {

// Since glibc 2.34 the C library runs a program's constructors. Before, the program ran them.
int run_constructors(int argc, char** argv, char** environment) {
  _init();
  for (Main* each = __init_array_start; each != __init_array_end; ++each) {
    (*each)(argc, argv, environment);
  }
  return 0;
}

struct Sought {
  uintptr_t address;
  dl_find_object* found;
};

int look_into(dl_phdr_info* object, size_t, void* argument) {
  auto& [address, found] = *static_cast<Sought*>(argument);
  uintptr_t start = UINTPTR_MAX, end = 0;
  const void* frames = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    const uintptr_t at = object->dlpi_addr + part.p_vaddr;
    if (part.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<const void*>(at);
    if (part.p_type != PT_LOAD) continue;
    if (at < start) start = at;
    if (at + part.p_memsz > end) end = at + part.p_memsz;
  }
  if (address < start || address >= end || frames == nullptr) return 0;
  *found = {};
  found->dlfo_map_start = reinterpret_cast<void*>(start);
  found->dlfo_map_end = reinterpret_cast<void*>(end);
  found->dlfo_eh_frame = const_cast<void*>(frames);
  return 1;
}

}  // namespace

extern "C" {

int __libc_start_main(Main main, int argc, char** argv, Main, Procedure, Procedure at_exit,
                      void* stack_end) {
  return old___libc_start_main(main, argc, argv, run_constructors, nullptr, at_exit, stack_end);
}

// libstdc++ reads it to skip atomics in programs with one thread (glibc 2.32).
char __libc_single_threaded = 0;

// 2.33: before, these were inline calls of other functions.
#define STATUS_CALLS(bits)                                                                         \
  int stat##bits(const char* path, struct stat##bits* status) noexcept {                           \
    return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, 0));                   \
  }                                                                                                \
  int lstat##bits(const char* path, struct stat##bits* status) noexcept {                          \
    return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW)); \
  }                                                                                                \
  int fstat##bits(int fd, struct stat##bits* status) noexcept {                                    \
    return static_cast<int>(syscall(SYS_fstat, fd, status));                                       \
  }
STATUS_CALLS()
STATUS_CALLS(64)

// 2.35: how the unwinder finds the frames of an exception.
int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Sought sought{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(look_into, &sought) == 1 ? 0 : -1;
}

// 2.36: std::random_device.
uint32_t arc4random() noexcept {
  uint32_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

}  // extern "C"

#pragma GCC visibility pop

// 2.34.
using Routine = void* (*)(void*);
MOVED(void*, dlopen, (const char* file, int mode) noexcept, (file, mode))
MOVED(void*, dlsym, (void* handle, const char* name) noexcept, (handle, name))
MOVED(void*, dlvsym, (void* handle, const char* name, const char* version) noexcept,
      (handle, name, version))
MOVED(int, dladdr, (const void* address, Dl_info* info) noexcept, (address, info))
MOVED(char*, dlerror, () noexcept, ())
MOVED(int, pthread_create,
      (pthread_t * thread, const pthread_attr_t* attributes, Routine run, void* argument) noexcept,
      (thread, attributes, run, argument))
MOVED(int, pthread_join, (pthread_t thread, void** result), (thread, result))
MOVED(int, pthread_detach, (pthread_t thread) noexcept, (thread))
MOVED(int, pthread_once, (pthread_once_t * once, Procedure procedure), (once, procedure))
MOVED(int, pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)) noexcept,
      (key, destroy))
MOVED(int, pthread_key_delete, (pthread_key_t key) noexcept, (key))
MOVED(void*, pthread_getspecific, (pthread_key_t key) noexcept, (key))
MOVED(int, __pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)) noexcept,
      (key, destroy))
MOVED(int, pthread_rwlock_init,
      (pthread_rwlock_t * lock, const pthread_rwlockattr_t* attributes) noexcept,
      (lock, attributes))
MOVED(int, pthread_rwlock_destroy, (pthread_rwlock_t * lock) noexcept, (lock))
MOVED(int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock) noexcept, (lock))
MOVED(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * lock) noexcept, (lock))
MOVED(int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock) noexcept, (lock))
MOVED(int, pthread_rwlock_unlock, (pthread_rwlock_t * lock) noexcept, (lock))
// The header declares that the memory at the second argument is not read, and g++ applies that to
// the pointer.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
MOVED(int, pthread_setspecific, (pthread_key_t key, const void* value) noexcept, (key, value))
