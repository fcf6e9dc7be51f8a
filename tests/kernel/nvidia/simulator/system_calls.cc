// The system calls by which a program reaches NVIDIA's kernel modules, as functions of the C
// library. What concerns the modules' device files and their /proc is answered here, and everything
// else goes to the kernel.
#include <dirent.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "diagnostics.h"
#include "kernel.h"
#include "page_tables.h"
#include "user_memory.h"

#define INTERPOSED extern "C" __attribute__((visibility("default")))

namespace rmsim {

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

std::string& state_folder = *new std::string;
pid_t owner = 0;  // the process whose memory this is: a child of vfork has its parent's, and must
                  // leave it alone

constexpr unsigned kNvidiaMajor = 195, kUvmMajor = 240, kControlMinor = 255;

struct DeviceFile {
  const char* path;
  Device device;
  unsigned major, minor;
};
// libcuda opens them by either name.
constexpr DeviceFile kDeviceFiles[] = {
    {"/dev/nvidiactl", Device::kControl, kNvidiaMajor, kControlMinor},
    {"/dev/nvidia0", Device::kGpu, kNvidiaMajor, 0},
    {"/dev/nvidia1", Device::kGpu, kNvidiaMajor, 1},
    {"/dev/nvidia2", Device::kGpu, kNvidiaMajor, 2},
    {"/dev/nvidia3", Device::kGpu, kNvidiaMajor, 3},
    {"/dev/nvidia-uvm", Device::kUvm, kUvmMajor, 0},
    {"/dev/nvidia-uvm-tools", Device::kUvmTools, kUvmMajor, 1},
    {"/dev/char/195:255", Device::kControl, kNvidiaMajor, kControlMinor},
    {"/dev/char/195:0", Device::kGpu, kNvidiaMajor, 0},
    {"/dev/char/195:1", Device::kGpu, kNvidiaMajor, 1},
    {"/dev/char/195:2", Device::kGpu, kNvidiaMajor, 2},
    {"/dev/char/195:3", Device::kGpu, kNvidiaMajor, 3},
    {"/dev/char/240:0", Device::kUvm, kUvmMajor, 0},
};

void before_fork() {
  kernel_lock.lock();
}
void after_fork_in_parent() {
  kernel_lock.unlock();
}
void after_fork_in_child() {
  new (&kernel_lock) std::recursive_mutex;
  engine::forget_all();
  page_tables::forget_all();
  forget_objects();
  join_as_new_process();
  owner = getpid();
  for (auto& [fd, descriptor] :
       descriptors) {  // they stay open, but what was made with them is the parent's
    auto* kept = new Descriptor(descriptor);
    descriptor.clients.clear();
    descriptor.mapping = nullptr;
    static_cast<void>(kept);  // never freed: that would give back what the parent holds
  }
}

bool is_attached() {
  return owner != 0 && getpid() == owner;
}

const DeviceFile* device_file(const char* path) {
  if (path == nullptr || strncmp(path, "/dev/", 5) != 0) return nullptr;
  for (const DeviceFile& file : kDeviceFiles) {
    const bool is_there =
        file.device != Device::kGpu || static_cast<int>(file.minor) < accounting.gpus();
    if (is_there && strcmp(path, file.path) == 0) return &file;
  }
  return nullptr;
}

const DeviceFile& device_file(const Descriptor& open) {
  return *std::find_if(std::begin(kDeviceFiles), std::end(kDeviceFiles), [&](const auto& file) {
    return file.device == open.device && file.minor == open.minor;
  });
}

// Devices that this machine does not have: those of a real GPU must not be reached by accident.
bool hidden(const char* path) {
  return path != nullptr &&
         (strncmp(path, "/dev/nvidia", 11) == 0 || strncmp(path, "/dev/char/195:", 14) == 0);
}

// The file that is read instead, in `buffer`, or the path itself.
const char* redirected(const char* path, char (&buffer)[PATH_MAX]) {
  if (path == nullptr) return path;
  if (strncmp(path, "/proc/driver/nvidia", 19) != 0 && strcmp(path, "/proc/devices") != 0)
    return path;
  snprintf(buffer, sizeof buffer, "%s%s", state_folder.c_str(), path);
  return buffer;
}

int fail(int error) {
  errno = error;
  return -1;
}

// A device's descriptor can be polled, as the modules' can.
int open_device(const DeviceFile& file, int flags) {
  const int fd = eventfd(0, EFD_NONBLOCK | ((flags & O_CLOEXEC) != 0 ? EFD_CLOEXEC : 0));
  if (fd < 0) return fd;
  const Lock lock(kernel_lock);
  descriptors[fd] = Descriptor{file.device, file.minor, nullptr, 0, {}};
  trace("open %s: %d", file.path, fd);
  return fd;
}

int open_path(int folder, const char* path, int flags, mode_t mode) {
  char buffer[PATH_MAX];
  if (is_attached()) {
    if (const DeviceFile* file = device_file(path)) return open_device(*file, flags);
    if (hidden(path)) return fail(ENOENT);
    path = redirected(path, buffer);
  }
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

void fill_device(const DeviceFile& file, struct stat* out) {
  memset(out, 0, sizeof *out);
  out->st_mode = S_IFCHR | 0666;
  out->st_rdev = makedev(file.major, file.minor);
  out->st_nlink = 1;
}

int stat_path(int folder, const char* path, struct stat* out, int flags) {
  char buffer[PATH_MAX];
  if (is_attached()) {
    if (const DeviceFile* file = device_file(path)) {
      fill_device(*file, out);
      return 0;
    }
    if (hidden(path)) return fail(ENOENT);
    path = redirected(path, buffer);
  }
  return static_cast<int>(syscall(SYS_newfstatat, folder, path, out, flags));
}

int stat_descriptor(int fd, struct stat* out) {
  if (is_attached()) {
    const Lock lock(kernel_lock);
    const auto entry = descriptors.find(fd);
    if (entry != descriptors.end()) {
      fill_device(device_file(entry->second), out);
      return 0;
    }
  }
  return static_cast<int>(syscall(SYS_fstat, fd, out));
}

// As the modules do when the last reference goes: a descriptor that was duplicated counts as closed
// with its first.
void close_device(int fd) {
  const Lock lock(kernel_lock);
  const auto entry = descriptors.find(fd);
  if (entry == descriptors.end()) return;
  trace("close %d", fd);
  remove_event_descriptor(fd);
  const Descriptor descriptor = entry->second;
  descriptors.erase(entry);
  for (const uint32_t client : descriptor.clients) free_object(client, client);
}

void* map_uvm(void* address, size_t length, int protection, int flags) {
  void* mapped = reinterpret_cast<void*>(syscall(
      SYS_mmap, address, length, protection,
      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)), -1,
      0));
  if (mapped != MAP_FAILED &&
      protection != PROT_NONE) {  // managed memory has one address on both sides
    page_tables::map(reinterpret_cast<uint64_t>(mapped), length, static_cast<char*>(mapped),
                     std::make_shared<Memory>(Kind::kUser, length, static_cast<char*>(mapped)));
  }
  return mapped;
}

std::optional<Descriptor> descriptor_of(int fd) {
  const Lock lock(kernel_lock);
  const auto entry = descriptors.find(fd);
  if (entry == descriptors.end()) return std::nullopt;
  return entry->second;
}

int device_ioctl(int fd, Device device, unsigned long request, void* argument) {
  const Lock lock(kernel_lock);
  if (device == Device::kUvm || device == Device::kUvmTools)
    return uvm_ioctl(static_cast<uint32_t>(request), argument);
  if (_IOC_TYPE(request) != NV_IOCTL_MAGIC) return ENOTTY;
  if (_IOC_NR(request) != NV_ESC_IOCTL_XFER_CMD)
    return rm_ioctl(fd, _IOC_NR(request), argument, _IOC_SIZE(request));
  constexpr uint32_t kLargest = 1 << 20;
  nv_ioctl_xfer_t transfer{};
  if (_IOC_SIZE(request) != sizeof transfer) return EINVAL;
  if (!copy_from_user(&transfer, argument, sizeof transfer)) return EFAULT;
  if (transfer.size > kLargest) return EINVAL;
  return rm_ioctl(fd, transfer.cmd, user_pointer(transfer.ptr), transfer.size);
}

// The modes of fopen, as flags of open.
int open_flags(const char* mode) {
  int flags = strchr(mode, '+') != nullptr ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  if (mode[0] == 'w') flags |= O_CREAT | O_TRUNC;
  if (mode[0] == 'a') flags |= O_CREAT | O_APPEND;
  if (strchr(mode, 'e') != nullptr) flags |= O_CLOEXEC;
  if (strchr(mode, 'x') != nullptr) flags |= O_EXCL;
  return flags;
}

// Descriptors on which programs wait for events of the GPU.
std::mutex event_lock;
auto& event_descriptors = *new std::vector<int>;

}  // namespace

// RMSIM_STATE names the folder of the state. Without it, everything goes to the kernel. A test that
// stops the holder of the accounting's lock sets RMSIM_LOCK_SECONDS.
void attach(char** environment) {
  for (; *environment != nullptr; ++environment) {
    const auto value_of = [&](std::string_view name) {
      return std::string_view(*environment).starts_with(name) ? *environment + name.size()
                                                              : nullptr;
    };
    if (const char* const folder = value_of("RMSIM_STATE=")) state_folder = folder;
    if (const char* const trace = value_of("RMSIM_TRACE=")) open_trace(trace);
    if (const char* const seconds = value_of("RMSIM_LOCK_SECONDS=")) lock_seconds = atoi(seconds);
  }
  if (state_folder.empty()) return;
  keep_unknown_in(state_folder);
  if (!open_machine(state_folder.c_str()))
    abort();  // a test that thinks it has a GPU must not go on
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  owner = getpid();
}

void add_event_descriptor(int fd) {
  const std::lock_guard<std::mutex> guard(event_lock);
  if (std::find(event_descriptors.begin(), event_descriptors.end(), fd) == event_descriptors.end())
    event_descriptors.push_back(fd);
}

void remove_event_descriptor(int fd) {
  const std::lock_guard<std::mutex> guard(event_lock);
  event_descriptors.erase(std::remove(event_descriptors.begin(), event_descriptors.end(), fd),
                          event_descriptors.end());
}

void notify_events() {
  const std::lock_guard<std::mutex> guard(event_lock);
  constexpr uint64_t kOne = 1;
  for (const int fd : event_descriptors) {
    if (syscall(SYS_write, fd, &kOne, sizeof kOne) < 0) {
    }  // full: whoever waits is awake already
  }
}

}  // namespace rmsim

using namespace rmsim;

#define OPEN_MODE(last)                         \
  mode_t mode = 0;                              \
  if ((flags & (O_CREAT | __O_TMPFILE)) != 0) { \
    va_list arguments;                          \
    va_start(arguments, last);                  \
    mode = va_arg(arguments, mode_t);           \
    va_end(arguments);                          \
  }

INTERPOSED int open(const char* path, int flags, ...) {
  OPEN_MODE(flags)
  return open_path(AT_FDCWD, path, flags, mode);
}
INTERPOSED int open64(const char* path, int flags, ...) {
  OPEN_MODE(flags)
  return open_path(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
INTERPOSED int openat(int folder, const char* path, int flags, ...) {
  OPEN_MODE(flags)
  return open_path(folder, path, flags, mode);
}
INTERPOSED int openat64(int folder, const char* path, int flags, ...) {
  OPEN_MODE(flags)
  return open_path(folder, path, flags | O_LARGEFILE, mode);
}
INTERPOSED int __open_2(const char* path, int flags) {
  return open_path(AT_FDCWD, path, flags, 0);
}
INTERPOSED int __open64_2(const char* path, int flags) {
  return open_path(AT_FDCWD, path, flags | O_LARGEFILE, 0);
}

// The rest of a stream is the C library's own, so no other fopen need be found.
INTERPOSED FILE* fopen(const char* path, const char* mode) {
  const int fd = open_path(AT_FDCWD, path, open_flags(mode), 0666);
  return fd < 0 ? nullptr : fdopen(fd, mode);
}
INTERPOSED FILE* fopen64(const char* path, const char* mode) {
  return fopen(path, mode);
}
INTERPOSED DIR* opendir(const char* path) {
  const int fd = open_path(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK, 0);
  return fd < 0 ? nullptr : fdopendir(fd);
}

INTERPOSED int access(const char* path, int mode) {
  char buffer[PATH_MAX];
  if (is_attached()) {
    if (device_file(path) != nullptr) return 0;
    if (hidden(path)) return fail(ENOENT);
    path = redirected(path, buffer);
  }
  return static_cast<int>(syscall(SYS_faccessat, AT_FDCWD, path, mode));
}
INTERPOSED ssize_t readlink(const char* path, char* out, size_t size) {
  char buffer[PATH_MAX];
  return syscall(SYS_readlinkat, AT_FDCWD, is_attached() ? redirected(path, buffer) : path, out,
                 size);
}

INTERPOSED int stat(const char* path, struct stat* out) {
  return stat_path(AT_FDCWD, path, out, 0);
}
INTERPOSED int lstat(const char* path, struct stat* out) {
  return stat_path(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
INTERPOSED int fstat(int fd, struct stat* out) {
  return stat_descriptor(fd, out);
}
INTERPOSED int __xstat(int, const char* path, struct stat* out) {
  return stat_path(AT_FDCWD, path, out, 0);
}
INTERPOSED int __lxstat(int, const char* path, struct stat* out) {
  return stat_path(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW);
}
INTERPOSED int __fxstat(int, int fd, struct stat* out) {
  return stat_descriptor(fd, out);
}
static_assert(sizeof(struct stat) == sizeof(struct stat64));  // x86-64: one layout
INTERPOSED int stat64(const char* path, struct stat64* out) {
  return stat(path, reinterpret_cast<struct stat*>(out));
}
INTERPOSED int lstat64(const char* path, struct stat64* out) {
  return lstat(path, reinterpret_cast<struct stat*>(out));
}
INTERPOSED int fstat64(int fd, struct stat64* out) {
  return fstat(fd, reinterpret_cast<struct stat*>(out));
}
INTERPOSED int __xstat64(int, const char* path, struct stat64* out) {
  return stat64(path, out);
}
INTERPOSED int __lxstat64(int, const char* path, struct stat64* out) {
  return lstat64(path, out);
}
INTERPOSED int __fxstat64(int, int fd, struct stat64* out) {
  return fstat64(fd, out);
}

// libcuda makes device files that it does not find as it wants them. They are not to appear in the
// machine's /dev.
INTERPOSED int mknod(const char* path, mode_t mode, dev_t device) {
  if (is_attached() && hidden(path)) return 0;
  return static_cast<int>(syscall(SYS_mknodat, AT_FDCWD, path, mode, device));
}
INTERPOSED int __xmknod(int, const char* path, mode_t mode, dev_t* device) {
  return mknod(path, mode, *device);
}
INTERPOSED int unlink(const char* path) {
  if (is_attached() && hidden(path)) return 0;
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}
INTERPOSED int symlink(const char* target, const char* path) {
  if (is_attached() && hidden(path)) return 0;
  return static_cast<int>(syscall(SYS_symlinkat, target, AT_FDCWD, path));
}
INTERPOSED int chmod(const char* path, mode_t mode) {
  if (is_attached() && hidden(path)) return 0;
  return static_cast<int>(syscall(SYS_fchmodat, AT_FDCWD, path, mode));
}
INTERPOSED int chown(const char* path, uid_t user, gid_t group) {
  if (is_attached() && hidden(path)) return 0;
  return static_cast<int>(syscall(SYS_fchownat, AT_FDCWD, path, user, group, 0));
}

INTERPOSED int close(int fd) {
  if (is_attached()) {
    if (fd >= 0 && fd == accounting.memory_file())
      return fail(EBADF);  // the machine's own, of which programs know nothing
    close_device(fd);
  }
  return static_cast<int>(syscall(SYS_close, fd));
}

INTERPOSED int close_range(unsigned first, unsigned last, int flags) {
  if (!is_attached() || (static_cast<unsigned>(flags) & CLOSE_RANGE_CLOEXEC) != 0) {
    return static_cast<int>(syscall(SYS_close_range, first, last, flags));
  }
  const Lock lock(kernel_lock);
  std::vector<int> ours;
  for (const auto& entry : descriptors) {
    if (static_cast<unsigned>(entry.first) >= first && static_cast<unsigned>(entry.first) <= last)
      ours.push_back(entry.first);
  }
  for (const int fd : ours) close_device(fd);
  const auto own = static_cast<unsigned>(accounting.memory_file());
  if (own < first || own > last)
    return static_cast<int>(syscall(SYS_close_range, first, last, flags));
  int rc = own > first ? static_cast<int>(syscall(SYS_close_range, first, own - 1, flags)) : 0;
  if (own < last && syscall(SYS_close_range, own + 1, last, flags) != 0) rc = -1;
  return rc;
}
INTERPOSED void closefrom(int first) {
  close_range(static_cast<unsigned>(std::max(first, 0)), ~0u, 0);
}

// A device descriptor is readable when an event came, whatever kind of event was asked for.
INTERPOSED int poll(struct pollfd* files, nfds_t count, int timeout) {
  timespec time{timeout / 1000, timeout % 1000 * 1000000L};
  timespec* limit = timeout < 0 ? nullptr : &time;
  std::vector<nfds_t> devices;
  if (is_attached()) {
    const Lock lock(kernel_lock);
    for (nfds_t i = 0; i < count; ++i) {
      if (descriptors.count(files[i].fd) != 0) devices.push_back(i);
    }
  }
  std::vector<short> asked;
  for (const nfds_t i : devices) {
    asked.push_back(files[i].events);
    files[i].events = POLLIN;
  }
  const int rc = static_cast<int>(syscall(SYS_ppoll, files, count, limit, nullptr, 8));
  for (size_t k = 0; k < devices.size(); ++k) {
    struct pollfd& file = files[devices[k]];
    file.events = asked[k];
    if (rc <= 0 || (file.revents & POLLIN) == 0) continue;
    uint64_t events = 0;
    if (syscall(SYS_read, file.fd, &events, sizeof events) < 0) {
    }
    const auto seen = static_cast<short>(file.events & (POLLIN | POLLPRI | POLLRDNORM));
    file.revents = seen != 0 ? seen : static_cast<short>(POLLIN);
  }
  return rc;
}

INTERPOSED int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (is_attached()) {
    if (const auto descriptor = descriptor_of(fd)) {
      const int error = device_ioctl(fd, descriptor->device, request, argument);
      return error == 0 ? 0 : fail(error);
    }
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

INTERPOSED void* mmap(void* address, size_t length, int protection, int flags, int fd,
                      off_t offset) {
  if (fd >= 0 && (flags & MAP_ANONYMOUS) == 0 && is_attached()) {
    if (const auto descriptor = descriptor_of(fd)) {
      if (descriptor->device == Device::kUvm) return map_uvm(address, length, protection, flags);
      if (descriptor->mapping == nullptr) {
        errno = EINVAL;
        return MAP_FAILED;
      }
      return map_memory(*descriptor->mapping, descriptor->mapping_offset & ~4095ull, length,
                        address, protection, flags);
    }
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}
INTERPOSED void* mmap64(void* address, size_t length, int protection, int flags, int fd,
                        off_t offset) {
  return mmap(address, length, protection, flags, fd, offset);
}
