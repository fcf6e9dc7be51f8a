// libsimulatedkfd.so, preloaded after everything else: the system calls on a simulated machine's
// device files. open and mmap need no interposition: the files are real files on the machine's
// /dev, and ioctls return the offsets of buffers in them.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "ioctl.h"

#define INTERPOSED extern "C" __attribute__((visibility("default")))

namespace {

constexpr unsigned kDrmMajor = 226, kKfdMajor = 511;

// Makes a device file, a regular file here, look like a device.
int as_device(int result, struct stat* about) {
  if (result != 0 || !S_ISREG(about->st_mode)) return result;
  const kfd::DeviceFile file = kfd::device_file_of_size(static_cast<uint64_t>(about->st_size));
  kfd::ThisProcess* const process =
      file.kind != kfd::DeviceFile::kNone ? kfd::ThisProcess::get() : nullptr;
  if (process == nullptr) return result;
  about->st_mode = S_IFCHR | 0666;
  about->st_size = 0;
  about->st_rdev = file.kind == kfd::DeviceFile::kKfd
                       ? makedev(kKfdMajor, 0)
                       : makedev(kDrmMajor, process->accounting->card[file.card].render_minor);
  return result;
}

int stat_at(int fd, const char* path, struct stat* about, int flags) {
  return as_device(static_cast<int>(syscall(SYS_newfstatat, fd, path, about, flags)), about);
}

long device_ioctl(const kfd::DeviceFile& file, unsigned long request, void* arguments) {
  kfd::ThisProcess* const process = kfd::ThisProcess::get();
  if (process == nullptr) return -ENODEV;
  kfd::Caller caller{*process, *process->accounting, file.card};
  return file.kind == kfd::DeviceFile::kKfd ? kfd::kfd_ioctl(caller, request, arguments)
                                            : kfd::drm_ioctl(caller, request, arguments);
}

}  // namespace

INTERPOSED int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* const arguments = va_arg(list, void*);
  va_end(list);
  const kfd::DeviceFile file = kfd::device_file(fd);
  if (file.kind == kfd::DeviceFile::kNone) {
    return static_cast<int>(syscall(SYS_ioctl, fd, request, arguments));
  }
  const int before = errno;
  const long result = device_ioctl(file, request, arguments);
  errno = result < 0 ? static_cast<int>(-result) : before;
  return result < 0 ? -1 : static_cast<int>(result);
}

INTERPOSED int fstat(int fd, struct stat* about) {
  return stat_at(fd, "", about, AT_EMPTY_PATH);
}
INTERPOSED int stat(const char* path, struct stat* about) {
  return stat_at(AT_FDCWD, path, about, 0);
}
// Other names, for programs linked with another C library.
INTERPOSED int fstat64(int fd, struct stat64* about) {
  return fstat(fd, reinterpret_cast<struct stat*>(about));
}
INTERPOSED int stat64(const char* path, struct stat64* about) {
  return stat(path, reinterpret_cast<struct stat*>(about));
}
INTERPOSED int __fxstat(int, int fd, struct stat* about) {
  return fstat(fd, about);
}
INTERPOSED int __xstat(int, const char* path, struct stat* about) {
  return stat(path, about);
}

INTERPOSED int munmap(void* address, size_t bytes) {
  if (kfd::ThisProcess* const process = kfd::ThisProcess::get(); process != nullptr) {
    const auto start = reinterpret_cast<uint64_t>(address);
    kfd::forget_ranges(*process, start, bytes);
    process->queues.forget_memory(start, bytes);
  }
  return static_cast<int>(syscall(SYS_munmap, address, bytes));
}

// Refused for a page or less, as is asked for one that was read-only: a filter of system calls may
// do so.
INTERPOSED int mprotect(void* address, size_t bytes, int protection) noexcept {
  if (bytes <= kfd::kPage && protection == (PROT_READ | PROT_WRITE) && kfd::refuses("mprotect")) {
    errno = EPERM;
    return -1;
  }
  return static_cast<int>(syscall(SYS_mprotect, address, bytes, protection));
}
