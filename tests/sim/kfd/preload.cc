// A preloadable library that shows a program the simulated node's /sys of AMD's kernel driver, and
// of NVIDIA's the version file and the capabilities of MIG instances (capabilities.h). Each call of
// libc that takes a path and that real readers use is wrapped once: the path is exchanged for the
// one in the node's tree if it is the driver's, and the real function does the rest. Only the
// amounts of memory are answered here (process_files.h). libc's own inner calls cannot be wrapped,
// which is why fopen, opendir and scandir have wrappers beside open.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "sim/kfd/paths.h"
#include "sim/kfd/process_files.h"
#include "sim/node/capabilities.h"

namespace {

using sim::KfdKind;
using sim::KfdProcessFiles;

template <typename Function>
Function next(std::atomic<void*>& slot, const char* name) {
  void* found = slot.load(std::memory_order_relaxed);
  if (found == nullptr) {
    found = dlsym(RTLD_NEXT, name);
    slot.store(found, std::memory_order_relaxed);
  }
  return reinterpret_cast<Function>(found);
}
#define NEXT(name)                               \
  ([] {                                          \
    static std::atomic<void*> slot{nullptr};     \
    return next<decltype(&::name)>(slot, #name); \
  }())

// The path that a call is to use. Finding it leaves errno alone.
class Place {
 public:
  Place(int dirfd, const char* path) : path_(path) {
    if (path == nullptr) return;
    const int before = errno;
    if (*path == '/') {
      if (sim::may_be_kfd(path)) find(path);
      if (std::strcmp(path, "/proc/driver/nvidia/version") == 0) find_driver_file();
      if (is_below(path, "/proc/driver/nvidia/capabilities") || is_below(path, "/dev/nvidia-caps"))
        find_capability(path);
    } else if (dirfd >= 0 && *path != '\0') {
      find_below(dirfd, path);
    }
    errno = before;
  }

  // For calls that look at it without opening it, or open something else.
  const char* path() {
    if (name_.kind == KfdKind::kProcesses || name_.kind == KfdKind::kProcess ||
        name_.kind == KfdKind::kVram) {
      const int before = errno;
      name_.kind == KfdKind::kProcesses ? files_->show_processes()
                                        : files_->show_process(name_.pid);
      errno = before;
    }
    return path_;
  }
  // Answered here, and not by the tree.
  bool vram() const {
    return name_.kind == KfdKind::kVram || name_.kind == KfdKind::kUsed || fdinfo_ >= 0;
  }
  // May be opened and not read.
  bool forbidden() const {
    return name_.kind == KfdKind::kNode && files_->forbids_node(name_.number);
  }
  int open_vram(int flags) const {
    const int before = errno;
    const int fd = fdinfo_ >= 0 ? files_->open_fdinfo(static_cast<uint32_t>(fdinfo_), flags)
                   : name_.kind == KfdKind::kUsed
                       ? files_->open_used(name_, flags)
                       : files_->open_vram(name_.pid, name_.gpu_id, flags);
    if (fd >= 0) errno = before;
    return fd;
  }

 private:
  void find(const char* path) {
    if (sim::read_kfd_name(path, &name_) == KfdKind::kOther) return;
    files_ = KfdProcessFiles::find();
    if (name_.kind == KfdKind::kFdInfo) {
      name_.kind = KfdKind::kOther;
      const auto descriptor = static_cast<int>(name_.number);
      const int told = files_ != nullptr ? files_->open_fdinfo(name_.number, O_CLOEXEC) : -1;
      if (told >= 0) {
        fdinfo_ = descriptor;
        syscall(SYS_close, told);
      }
      return;
    }
    const size_t root = files_ != nullptr ? files_->tree().size() : 0;
    const size_t length = std::strlen(name_.path);
    if (files_ == nullptr || root + length + 2 > sizeof real_) {
      name_.kind = KfdKind::kOther;
      return;
    }
    std::memcpy(real_, files_->tree().data(), root);
    std::memcpy(real_ + root, name_.path, length + 1);
    // As the end of a path it makes a difference: a link is followed, and a file is an error.
    if (path[std::strlen(path) - 1] == '/') {
      std::memcpy(real_ + root + length, "/", 2);
      if (vram()) name_.kind = KfdKind::kProcess;
    }
    path_ = real_;
    if (name_.kind == KfdKind::kRender && files_->lacks_render(name_.number)) {
      path_ = "/dev/dri/none";
    }
  }

  // NVIDIA's kernel driver shows this one file beside its devices.
  void find_driver_file() {
    const char* const node = std::getenv(sim::kNodeVariable);
    if (node == nullptr || std::strlen(node) + 32 > sizeof real_) return;
    const std::string file = sim::driver_file_of(node);
    std::memcpy(real_, file.c_str(), file.size() + 1);
    path_ = real_;
  }

  static bool is_below(const char* path, std::string_view folder) {
    return std::strncmp(path, folder.data(), folder.size()) == 0 &&
           (path[folder.size()] == '/' || path[folder.size()] == '\0');
  }

  void find_capability(const char* path) {
    const char* const root = std::getenv(sim::kCapsVariable);
    const size_t length = root != nullptr ? std::strlen(root) : 0;
    if (root == nullptr || length + std::strlen(path) >= sizeof real_) return;
    std::memcpy(real_, root, length);
    std::memcpy(real_ + length, path, std::strlen(path) + 1);
    path_ = real_;
  }

  // A folder of the tree can only have been opened through here.
  void find_below(int dirfd, const char* path) {
    const KfdProcessFiles* files = KfdProcessFiles::found();
    if (files == nullptr) return;
    char link[32], folder[2 * sim::kPathBytes];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
    const long length = syscall(SYS_readlinkat, AT_FDCWD, link, folder, sizeof folder);
    const std::string& tree = files->tree();
    if (length <= static_cast<long>(tree.size()) ||
        std::memcmp(folder, tree.c_str(), tree.size()) != 0 ||
        static_cast<size_t>(length) + std::strlen(path) + 2 > sizeof folder)
      return;
    folder[length] = '/';
    std::memcpy(folder + length + 1, path, std::strlen(path) + 1);
    find(folder + tree.size());
  }

  const char* path_;
  int fdinfo_ = -1;  // of a render node
  sim::KfdName name_;
  KfdProcessFiles* files_ = nullptr;
  char real_[2 * sim::kPathBytes];
};

std::atomic<int (*)(unsigned long, void*)> kfd_answer{nullptr};

// Whether the process has opened files that may not be read. Which descriptors are theirs, the
// names tell.
constexpr char kForbiddenName[] = "forbidden";
std::atomic<bool> any_forbidden{false};

int open_forbidden(int flags) {
  if ((flags & O_DIRECTORY) != 0) {
    errno = ENOTDIR;
    return -1;
  }
  const int fd = memfd_create(kForbiddenName, (flags & O_CLOEXEC) != 0 ? MFD_CLOEXEC : 0);
  if (fd >= 0) any_forbidden.store(true);
  return fd;
}

bool is_forbidden_fd(int fd) {
  if (fd < 0 || !any_forbidden.load(std::memory_order_relaxed)) return false;
  char link[32], file[64] = "";
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  syscall(SYS_readlinkat, AT_FDCWD, link, file, sizeof file - 1);
  return std::strstr(file, kForbiddenName) != nullptr;
}

ssize_t refuse_to_read(void*, char*, size_t) {
  errno = EPERM;
  return -1;
}

bool takes_mode(int flags) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
}

// A file, and not a folder, of a device that is kept from this process.
bool is_unreadable(Place& place) {
  struct stat about {};
  return place.forbidden() && syscall(SYS_newfstatat, AT_FDCWD, place.path(), &about, 0) == 0 &&
         S_ISREG(about.st_mode);
}

// For names of functions that the C library at hand may not have.
int stat_at(int dirfd, const char* path, struct stat* about, int flags) {
  Place place(dirfd, path);
#ifdef SYS_newfstatat
  return static_cast<int>(syscall(SYS_newfstatat, dirfd, place.path(), about, flags));
#else
  return static_cast<int>(syscall(SYS_fstatat, dirfd, place.path(), about, flags));
#endif
}
int stat_at(int dirfd, const char* path, struct stat64* about, int flags) {
  static_assert(sizeof(struct stat64) == sizeof(struct stat));
  return stat_at(dirfd, path, reinterpret_cast<struct stat*>(about), flags);
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

#define WRAP_OPEN(name)                                               \
  int name(const char* path, int flags, ...) {                        \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    const mode_t mode = takes_mode(flags) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                     \
    Place place(AT_FDCWD, path);                                      \
    if (place.vram()) return place.open_vram(flags);                  \
    if (is_unreadable(place)) return open_forbidden(flags);           \
    return NEXT(name)(place.path(), flags, mode);                     \
  }
#define WRAP_OPENAT(name)                                             \
  int name(int dirfd, const char* path, int flags, ...) {             \
    va_list rest;                                                     \
    va_start(rest, flags);                                            \
    const mode_t mode = takes_mode(flags) ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                     \
    Place place(dirfd, path);                                         \
    if (place.vram()) return place.open_vram(flags);                  \
    if (is_unreadable(place)) return open_forbidden(flags);           \
    return NEXT(name)(dirfd, place.path(), flags, mode);              \
  }
WRAP_OPEN(open)
WRAP_OPEN(open64)
WRAP_OPENAT(openat)
WRAP_OPENAT(openat64)

// What a fortified program calls in their place.
int __open_2(const char* path, int flags) {
  return open(path, flags);
}
int __open64_2(const char* path, int flags) {
  return open64(path, flags);
}
int __openat_2(int dirfd, const char* path, int flags) {
  return openat(dirfd, path, flags);
}
int __openat64_2(int dirfd, const char* path, int flags) {
  return openat64(dirfd, path, flags);
}

#define WRAP_FOPEN(name)                                                             \
  FILE* name(const char* path, const char* mode) {                                   \
    Place place(AT_FDCWD, path);                                                     \
    if (is_unreadable(place))                                                        \
      return fopencookie(nullptr, "r", {refuse_to_read, nullptr, nullptr, nullptr}); \
    if (!place.vram()) return NEXT(name)(place.path(), mode);                        \
    const bool reading = *mode == 'r' && std::strchr(mode, '+') == nullptr;          \
    const int cloexec = std::strchr(mode, 'e') != nullptr ? O_CLOEXEC : 0;           \
    const int fd = place.open_vram((reading ? O_RDONLY : O_RDWR) | cloexec);         \
    return fd >= 0 ? fdopen(fd, mode) : nullptr;                                     \
  }
WRAP_FOPEN(fopen)
WRAP_FOPEN(fopen64)

DIR* opendir(const char* path) {
  Place place(AT_FDCWD, path);
  return NEXT(opendir)(place.path());
}
int scandir(const char* path, dirent*** list, int (*filter)(const dirent*),
            int (*compare)(const dirent**, const dirent**)) {
  Place place(AT_FDCWD, path);
  return NEXT(scandir)(place.path(), list, filter, compare);
}
int scandir64(const char* path, dirent64*** list, int (*filter)(const dirent64*),
              int (*compare)(const dirent64**, const dirent64**)) {
  Place place(AT_FDCWD, path);
  return NEXT(scandir64)(place.path(), list, filter, compare);
}

// Of a program that asks the kernel itself.
long syscall(long number, ...) noexcept {
  va_list rest;
  va_start(rest, number);
  long to[6];
  for (long& argument : to) argument = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_openat) {
    return openat(static_cast<int>(to[0]), reinterpret_cast<const char*>(to[1]),
                  static_cast<int>(to[2]), static_cast<mode_t>(to[3]));
  }
  const bool reads = number == SYS_read || number == SYS_pread64;
  if (reads && is_forbidden_fd(static_cast<int>(to[0]))) return refuse_to_read(nullptr, nullptr, 0);
  return NEXT(syscall)(number, to[0], to[1], to[2], to[3], to[4], to[5]);
}

// By the kernel's calls, since these are hot in any program.
ssize_t read(int fd, void* to, size_t size) {
  if (!is_forbidden_fd(fd)) return syscall(SYS_read, fd, to, size);
  return refuse_to_read(nullptr, nullptr, 0);
}
ssize_t pread(int fd, void* to, size_t size, off_t from) {
  if (!is_forbidden_fd(fd)) return syscall(SYS_pread64, fd, to, size, from);
  return refuse_to_read(nullptr, nullptr, 0);
}
ssize_t pread64(int fd, void* to, size_t size, off64_t from) {
  return pread(fd, to, size, from);
}
ssize_t __read_chk(int fd, void* to, size_t size, size_t) {
  return read(fd, to, size);
}

// The driver's requests are answered by the simulated runtime, which knows what the process has:
// from here, behind whoever else stands before the C library's ioctl.
void sim_answer_kfd(int (*answer)(unsigned long request, void* argument)) {
  kfd_answer.store(answer, std::memory_order_release);
}
int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  constexpr unsigned kKfd = 'K';
  const auto answer = kfd_answer.load(std::memory_order_acquire);
  if (fd < 0 && _IOC_TYPE(request) == kKfd && answer != nullptr) return answer(request, argument);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

int access(const char* path, int mode) noexcept {
  Place place(AT_FDCWD, path);
  return NEXT(access)(place.path(), mode);
}
int euidaccess(const char* path, int mode) noexcept {
  Place place(AT_FDCWD, path);
  return NEXT(euidaccess)(place.path(), mode);
}
int faccessat(int dirfd, const char* path, int mode, int flags) noexcept {
  Place place(dirfd, path);
  return NEXT(faccessat)(dirfd, place.path(), mode, flags);
}

// A link to a render node of the tree is one to /dev/dri, also of the tree before the GPUs were
// divided anew. Negative where the link is none of these.
ssize_t read_render_link(int dirfd, const char* path, char* to, size_t size) {
  constexpr std::string_view kFolder = "/dev/dri/", kOfBefore = " (deleted)";
  const KfdProcessFiles* files = KfdProcessFiles::found();
  char text[2 * sim::kPathBytes];
  const int before = errno;
  const long length =
      files != nullptr ? syscall(SYS_readlinkat, dirfd, path, text, sizeof text) : -1;
  errno = before;
  if (length <= 0) return -1;
  std::string_view link(text, static_cast<size_t>(length));
  const size_t at = link.find(kFolder, files->tree().size());
  if (!link.starts_with(files->tree()) || at == link.npos) return -1;
  link.remove_prefix(at);
  if (link.ends_with(kOfBefore)) link.remove_suffix(kOfBefore.size());
  return static_cast<ssize_t>(link.copy(to, size));
}
ssize_t readlink(const char* path, char* to, size_t size) noexcept {
  Place place(AT_FDCWD, path);
  const ssize_t length = read_render_link(AT_FDCWD, place.path(), to, size);
  return length >= 0 ? length : NEXT(readlink)(place.path(), to, size);
}
ssize_t readlinkat(int dirfd, const char* path, char* to, size_t size) noexcept {
  Place place(dirfd, path);
  const ssize_t length = read_render_link(dirfd, place.path(), to, size);
  return length >= 0 ? length : NEXT(readlinkat)(dirfd, place.path(), to, size);
}
ssize_t __readlink_chk(const char* path, char* to, size_t size, size_t) {
  return readlink(path, to, size);
}

#define WRAP_STAT(name, type)                               \
  int name(const char* path, struct type* about) noexcept { \
    Place place(AT_FDCWD, path);                            \
    return NEXT(name)(place.path(), about);                 \
  }
#define WRAP_STATAT(name, type)                                                   \
  int name(int dirfd, const char* path, struct type* about, int flags) noexcept { \
    Place place(dirfd, path);                                                     \
    return NEXT(name)(dirfd, place.path(), about, flags);                         \
  }
WRAP_STAT(stat, stat)
WRAP_STAT(stat64, stat64)
WRAP_STAT(lstat, stat)
WRAP_STAT(lstat64, stat64)
WRAP_STATAT(fstatat, stat)
WRAP_STATAT(fstatat64, stat64)
int statx(int dirfd, const char* path, int flags, unsigned mask, struct statx* about) noexcept {
  Place place(dirfd, path);
  return NEXT(statx)(dirfd, place.path(), flags, mask, about);
}
// The names in programs that were built before glibc 2.33.
int __xstat(int, const char* path, struct stat* about) {
  return stat_at(AT_FDCWD, path, about, 0);
}
int __xstat64(int, const char* path, struct stat64* about) {
  return stat_at(AT_FDCWD, path, about, 0);
}
int __lxstat(int, const char* path, struct stat* about) {
  return stat_at(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}
int __lxstat64(int, const char* path, struct stat64* about) {
  return stat_at(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}
int __fxstatat(int, int dirfd, const char* path, struct stat* about, int flags) {
  return stat_at(dirfd, path, about, flags);
}
int __fxstatat64(int, int dirfd, const char* path, struct stat64* about, int flags) {
  return stat_at(dirfd, path, about, flags);
}

#pragma GCC visibility pop
}  // extern "C"
