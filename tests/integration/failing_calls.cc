// A preloaded library that makes the system fail fracgpu's own calls of the C library: the n-th one
// that libfracgpu.so makes (FRACGPU_FAIL_CALL=n), or that and all later ones but for its messages
// ("n+"). Everybody else's calls go through. The name of the first that failed is written to
// FRACGPU_FAIL_REPORT.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

extern "C" void* __libc_malloc(size_t size);

namespace {

struct Order {
  uintptr_t begin = 0, end = 0;  // of the library's code
  int call = 0;                  // 0: none fails
  bool later_too = false;
};

int find_library(dl_phdr_info* info, size_t, void* data) {
  auto& order = *static_cast<Order*>(data);
  if (strstr(info->dlpi_name, "/libfracgpu.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    order.begin = info->dlpi_addr + part.p_vaddr;
    order.end = order.begin + part.p_memsz;
  }
  return 1;
}

Order read_order() {
  Order order;
  const char* text = getenv("FRACGPU_FAIL_CALL");
  if (text == nullptr) return order;
  char* rest = nullptr;
  order.call = static_cast<int>(strtol(text, &rest, 10));
  order.later_too = *rest == '+';
  dl_iterate_phdr(find_library, &order);
  return order;
}

void report(const char* name) {
  const char* path = getenv("FRACGPU_FAIL_REPORT");
  if (path == nullptr) return;
  const long fd =
      syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  syscall(SYS_write, fd, name, strlen(name));
  syscall(SYS_close, fd);
}

// Whether this call, which returns to `caller`, is to fail.
bool fails(const void* caller, const char* name) {
  static const Order order = read_order();
  static std::atomic<int> calls{0};
  const auto at = reinterpret_cast<uintptr_t>(caller);
  if (at < order.begin || at >= order.end) return false;
  const int number = ++calls;
  if (number == order.call) report(name);
  if (number == order.call) return true;
  return order.later_too && number > order.call && strcmp(name, "write") != 0;
}

}  // namespace

#define FAIL(name, error, result)                  \
  if (fails(__builtin_return_address(0), #name)) { \
    errno = error;                                 \
    return result;                                 \
  }
#define FAIL_OR_FIND(name, error, result) \
  FAIL(name, error, result)               \
  static const auto next = reinterpret_cast<decltype(&::name)>(dlsym(RTLD_NEXT, #name))

// The calls that libfracgpu.so makes and that can fail.
extern "C" {
#pragma GCC visibility push(default)

int access(const char* path, int mode) noexcept {
  FAIL_OR_FIND(access, EACCES, -1);
  return next(path, mode);
}
int fchmod(int fd, mode_t mode) noexcept {
  FAIL_OR_FIND(fchmod, EPERM, -1);
  return next(fd, mode);
}
int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  static const auto next = reinterpret_cast<decltype(&::fcntl)>(dlsym(RTLD_NEXT, "fcntl"));
  // Whether a descriptor is open is asked before each file that is opened, and cannot fail.
  if (command != F_GETFD) {
    FAIL(fcntl, ENOLCK, -1)
  }
  return next(fd, command, argument);
}
int fstatvfs(int fd, struct statvfs* about) noexcept {
  FAIL_OR_FIND(fstatvfs, EIO, -1);
  return next(fd, about);
}
ssize_t getrandom(void* bytes, size_t size, unsigned flags) {
  FAIL_OR_FIND(getrandom, ENOSYS, -1);
  return next(bytes, size, flags);
}
int link(const char* from, const char* to) noexcept {
  FAIL_OR_FIND(link, EACCES, -1);
  return next(from, to);
}
int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
  FAIL_OR_FIND(linkat, EACCES, -1);
  return next(from_fd, from, to_fd, to, flags);
}
int madvise(void* at, size_t size, int advice) noexcept {
  FAIL_OR_FIND(madvise, ENOMEM, -1);
  return next(at, size, advice);
}
int posix_fallocate(int fd, off_t offset, off_t size) {
  FAIL_OR_FIND(posix_fallocate, 0, ENOSPC);
  return next(fd, offset, size);
}
ssize_t readlink(const char* path, char* text, size_t size) noexcept {
  FAIL_OR_FIND(readlink, EACCES, -1);
  return next(path, text, size);
}
int statx(int fd, const char* path, int flags, unsigned mask, struct statx* about) noexcept {
  FAIL_OR_FIND(statx, EACCES, -1);
  return next(fd, path, flags, mask, about);
}
int unlink(const char* path) noexcept {
  FAIL_OR_FIND(unlink, EACCES, -1);
  return next(path);
}

// What the library asks of the kernel itself, as the C library's functions of these names would.
long syscall(long number, ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long to[6];
  for (long& argument : to) argument = va_arg(rest, long);
  va_end(rest);
  switch (number) {
    case SYS_openat: {
      FAIL(open, EMFILE, -1)
      break;
    }
    case SYS_pread64: {
      FAIL(pread, EIO, -1)
      break;
    }
    case SYS_pwrite64: {
      FAIL(pwrite, ENOSPC, -1)
      break;
    }
    case SYS_read: {
      FAIL(read, EIO, -1)
      break;
    }
    case SYS_write: {
      FAIL(write, ENOSPC, -1)
      break;
    }
    default:
      break;
  }
  static const auto next = reinterpret_cast<decltype(&::syscall)>(dlsym(RTLD_NEXT, "syscall"));
  return next(number, to[0], to[1], to[2], to[3], to[4], to[5]);
}

// Needed by whoever looks up the others.
void* malloc(size_t size) noexcept {
  FAIL(malloc, ENOMEM, nullptr)
  return __libc_malloc(size);
}
void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  FAIL(mmap, ENOMEM, MAP_FAILED)
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}

#pragma GCC visibility pop
}
