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
#include <cstdlib>
#include <filesystem>

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

void as_device(struct statx& about) {
  struct stat device {};
  device.st_mode = about.stx_mode;
  device.st_size = static_cast<off_t>(about.stx_size);
  as_device(0, &device);
  if (!S_ISCHR(device.st_mode) || S_ISCHR(about.stx_mode)) return;
  about.stx_mode = static_cast<uint16_t>(device.st_mode);
  about.stx_size = 0;
  about.stx_rdev_major = major(device.st_rdev);
  about.stx_rdev_minor = minor(device.st_rdev);
}

long raw_system_call(long number, const long (&arguments)[6]) {
#ifdef __aarch64__
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = arguments[0];
  register long x1 asm("x1") = arguments[1];
  register long x2 asm("x2") = arguments[2];
  register long x3 asm("x3") = arguments[3];
  register long x4 asm("x4") = arguments[4];
  register long x5 asm("x5") = arguments[5];
  asm volatile("svc 0"
               : "+r"(x0)
               : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
               : "memory");
  return x0;
#else
  register long r10 asm("r10") = arguments[3];
  register long r8 asm("r8") = arguments[4];
  register long r9 asm("r9") = arguments[5];
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
#endif
}

int stat_at(int fd, const char* path, struct stat* about, int flags) {
  return as_device(static_cast<int>(syscall(SYS_newfstatat, fd, path, about, flags)), about);
}

// Which opening of a render node this is. Its file offset, which no program uses and duplicated
// descriptors share, is that number.
uint32_t opening(kfd::Accounting& accounting, int fd) {
  const kfd::Lock lock(&accounting);
  const off_t known = lseek(fd, 0, SEEK_CUR);
  if (known != 0) return static_cast<uint32_t>(known);
  return static_cast<uint32_t>(lseek(fd, ++accounting.last_file, SEEK_SET));
}

bool is_open(off_t wanted, uint32_t card) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    const kfd::DeviceFile file = kfd::device_file(fd);
    if (file.kind == kfd::DeviceFile::kRender && file.card == card &&
        lseek(fd, 0, SEEK_CUR) == wanted)
      return true;
  }
  return false;
}

long device_ioctl(int fd, const kfd::DeviceFile& file, unsigned long request, void* arguments) {
  kfd::ThisProcess* const process = kfd::ThisProcess::get();
  if (process == nullptr) return -ENODEV;
  kfd::Caller caller{*process, *process->accounting, file.card};
  if (file.kind == kfd::DeviceFile::kKfd) {
    process->open_kfd();
    return kfd::kfd_ioctl(caller, request, arguments);
  }
  caller.file = opening(*process->accounting, fd);
  return kfd::drm_ioctl(caller, request, arguments);
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
  const long result = device_ioctl(fd, file, request, arguments);
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

// For libraries that make statx as a system call. All others pass.
INTERPOSED long syscall(long number, ...) noexcept {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  const long result = raw_system_call(number, arguments);
  if (result == 0 && number == SYS_statx) as_device(*reinterpret_cast<struct statx*>(arguments[4]));
  if (result >= 0 || result < -4095) return result;
  errno = static_cast<int>(-result);
  return -1;
}

// The last descriptor of an opening takes its GEM handles with it.
INTERPOSED int close(int fd) {
  const kfd::DeviceFile file = kfd::device_file(fd);
  const off_t closed = file.kind == kfd::DeviceFile::kRender ? lseek(fd, 0, SEEK_CUR) : 0;
  const int result = static_cast<int>(syscall(SYS_close, fd));
  kfd::ThisProcess* const process = closed > 0 ? kfd::ThisProcess::get() : nullptr;
  if (process == nullptr || is_open(closed, file.card)) return result;
  const std::lock_guard guard(process->mutex);
  const kfd::Lock lock(process->accounting);
  process->release_handles_of_file(static_cast<uint32_t>(closed));
  return result;
}

// libdrm asks for a dma-buf's size by this.
INTERPOSED off_t lseek(int fd, off_t offset, int from) noexcept {
  const int before = errno;
  const off_t result = syscall(SYS_lseek, fd, offset, from);
  if (result >= 0 || errno != ESPIPE || offset != 0 || from != SEEK_END) return result;
  kfd::ThisProcess* const process = kfd::ThisProcess::get();
  if (process == nullptr) return result;
  const kfd::Lock lock(process->accounting);
  const int buffer = kfd::buffer_of_descriptor(*process->accounting, fd);
  if (buffer < 0) return result;
  errno = before;
  return static_cast<off_t>(process->accounting->buffer[buffer].size);
}
INTERPOSED off64_t lseek64(int fd, off64_t offset, int from) noexcept {
  return lseek(fd, offset, from);
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
