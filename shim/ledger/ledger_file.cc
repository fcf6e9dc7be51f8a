// Makes, opens and locks the ledger's file; see ledger_file.h.
#include "shim/ledger/ledger_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "shim/base/byte_lock.h"
#include "shim/base/clock.h"
#include "shim/base/descriptor.h"
#include "shim/base/shared_file.h"
#include "shim/base/unforked.h"

namespace fracgpu {
namespace {

const char* reason(int error) {
  switch (error) {
    case ENOSPC:
      return "no space left";
    case EFBIG:
      return "it is larger than files may be here; raise the limit (ulimit -f)";
    case EROFS:
      return "it is read-only";
    case EACCES:
    case EPERM:
      return "permission denied";
    case ENOENT:
    case ENOTDIR:
      return "/dev/shm does not exist";
    case ELOOP:
      return "a symbolic link is in its place";
    case EISDIR:
      return "a directory is in its place";
    case EMFILE:
    case ENFILE:
      return "no file descriptor is free";
    case ENOMEM:
      return "out of host memory";
    default:
      return nullptr;
  }
}

LedgerFile::Result fail(Message& error, const char* what, std::string_view path, int code) {
  const char* text = reason(code);
  error.format("cannot {} the ledger {}: ", what, path);
  if (text != nullptr) {
    error.append("{}", text);
  } else {
    error.append("errno {}", code);
  }
  return LedgerFile::Result::failed;
}

constexpr size_t kPage = 4096;

// The status that fstat returns, in the one form that does not need glibc 2.33's new symbol.
bool status_of(int fd, struct statx& out) {
  return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &out) == 0;
}

// Changes with chroot. (If a root folder on another file system has the same number, only the error
// message says less.)
uint64_t inode_of_root() {
  struct statx status;
  const int code = errno;
  const bool known = statx(AT_FDCWD, "/", 0, STATX_INO, &status) == 0;
  errno = code;
  return known ? status.stx_ino : 0;
}

int make_file(const char* path, const char* tenant) {
  layout::Header header = {};
  header.magic = layout::kMagic;
  header.version = layout::kVersion;
  header.file_bytes = sizeof(layout::Ledger);
  header.max_devices = layout::kMaxDevices;
  header.max_slots = layout::kMaxSlots;
  header.created_unix_s = unix_now_ms() / 1000;
  strncpy(header.tenant, tenant, sizeof header.tenant - 1);
  // All bytes after the bitmap of unclaimed slots are zero at first.
  char start[offsetof(layout::Ledger, refusals)] = {};
  memcpy(start, &header, sizeof header);
  const uint64_t slots_backed = layout::encode(layout::kSlotsPerPage);
  memcpy(start + offsetof(layout::Ledger, slots_backed), &slots_backed, sizeof slots_backed);
  memset(start + offsetof(layout::Ledger, unclaimed), 0xff, sizeof(layout::Ledger::unclaimed));
  return make_shared_file(path, {.whole = sizeof(layout::Ledger), .backed = layout::kBackedAtFirst},
                          start, sizeof start);
}

}  // namespace

LedgerFile::Result LedgerFile::map_file(int fd, bool writable, Message& error) {
  struct statx status;
  if (!status_of(fd, status)) return fail(error, "read", path_.view(), errno);
  if (!S_ISREG(status.stx_mode)) {
    error.format("{} is not a ledger: something that is not a file is in its place; remove it",
                 path_.view());
    return Result::failed;
  }
  // The owner does not matter: any user of the tenant may have made the file. Its content is only
  // data.
  if (const unsigned foreign = status.stx_mode & 07777u & ~kSharedFileMode; foreign != 0) {
    error.format("{} is not a ledger: its mode {:04o} has bits that no ledger has; remove it",
                 path_.view(), status.stx_mode & 07777u);
    return Result::failed;
  }
  if (status.stx_size != sizeof(layout::Ledger)) {
    error.format(
        "{} is not a ledger of this version: {} bytes instead of {}; remove it when no "
        "process of the tenant runs",
        path_.view(), static_cast<uint64_t>(status.stx_size), sizeof(layout::Ledger));
    return Result::failed;
  }
  void* bytes = mmap(nullptr, sizeof(layout::Ledger), writable ? PROT_READ | PROT_WRITE : PROT_READ,
                     MAP_SHARED, fd, 0);
  if (bytes == MAP_FAILED) return fail(error, "map", path_.view(), errno);
  auto* ledger = static_cast<layout::Ledger*>(bytes);
  const layout::Header& header = ledger->header;
  if (header.magic != layout::kMagic || header.version != layout::kVersion ||
      header.file_bytes != sizeof(layout::Ledger) || header.max_devices != layout::kMaxDevices ||
      header.max_slots != layout::kMaxSlots) {
    if (header.magic == layout::kMagic) {
      error.format(
          "{} has layout version {} and this library speaks {}; use one version of "
          "fracgpu in a tenant, or remove the file when no process of the tenant runs",
          path_.view(), header.version, layout::kVersion);
    } else {
      error.format(
          "{} is not a ledger, or was overwritten; remove it when no process of the "
          "tenant runs",
          path_.view());
    }
    munmap(bytes, sizeof(layout::Ledger));
    return Result::failed;
  }
  // A child must not share the mapping: it has holdings, and a slot, of its own.
  madvise(bytes, sizeof(layout::Ledger), MADV_DONTFORK);
  map_ = ledger;
  device_ = makedev(status.stx_dev_major, status.stx_dev_minor);
  inode_ = status.stx_ino;
  root_inode_ = inode_of_root();
  return Result::ok;
}

LedgerFile::Result LedgerFile::open_or_create(const char* tenant, Message& error) {
  path_.format("{}{}", layout::kFilePrefix, tenant);
  made_ = false;
  // It takes more than two rounds only if other processes create and remove the file meanwhile.
  // While four processes joined and left as fast as they could and a fifth removed their file, four
  // rounds were too few for one of some 10,000 joins.
  constexpr int kRounds = 64;
  for (int attempt = 0; attempt < kRounds; ++attempt) {
    const Unforked section;
    const int fd = open_own(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
      const Result result = map_file(fd, true, error);
      close_own(fd);
      return result;
    }
    if (errno != ENOENT) return fail(error, "open", path_.view(), errno);
    const int code = make_file(path_.c_str(), tenant);
    made_ = code == 0;
    if (code != 0 && code != EEXIST) return fail(error, "create", path_.view(), code);
  }
  return fail(error, "open", path_.view(), EAGAIN);
}

LedgerFile::Result LedgerFile::open_existing(const char* tenant, Access access, Message& error) {
  path_.format("{}{}", layout::kFilePrefix, tenant);
  const int mode = access == Access::write ? O_RDWR : O_RDONLY;
  const Unforked section;
  const int fd = open_own(path_.c_str(), mode | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return Result::absent;
    return fail(error, "open", path_.view(), errno);
  }
  const Result result = map_file(fd, access == Access::write, error);
  close_own(fd);
  return result;
}

void LedgerFile::close() {
  if (map_ != nullptr) munmap(map_, sizeof(layout::Ledger));
  if (life_ != nullptr) munmap(life_, kPage);
  map_ = nullptr;
  life_ = nullptr;
}

int LedgerFile::reopen(Message& error) const {
  int fd = open_own(path_.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == EACCES) {
    fd = open_own(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  }
  if (fd < 0) {
    if (errno == ENOENT && inode_of_root() != root_inode_) {
      error.format(
          "this process has changed its root folder, and there is no ledger {} in the new one; let "
          "it see the same /dev/shm there",
          path_.view());
    } else if (errno == ENOENT) {
      error.format("the ledger {} was removed while in use; restart the tenant's processes",
                   path_.view());
    } else {
      fail(error, "open", path_.view(), errno);
    }
    return -1;
  }
  struct statx status;
  if (!status_of(fd, status) || status.stx_ino != inode_ ||
      makedev(status.stx_dev_major, status.stx_dev_minor) != device_) {
    close_own(fd);
    error.format("the ledger {} was replaced while in use; restart the tenant's processes",
                 path_.view());
    errno = ESTALE;  // whatever the program left there, it does not lack a descriptor
    return -1;
  }
  return fd;
}

bool LedgerFile::is_current() const {
  Message ignored;
  const int fd = reopen(ignored);
  if (fd >= 0) close_own(fd);
  return fd >= 0;
}

bool LedgerFile::lock_slot_for_life(uint32_t slot, Message& error) {
  const Unforked section;  // from the description's first use to the advice that forks lack it
  const int fd = reopen(error);
  if (fd < 0) return false;
  // The lock lasts as long as the description is in use, and this mapping keeps it in use. No
  // thread reads through the mapping, so it costs only addresses.
  void* life = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0);
  struct flock lock = byte_lock(F_WRLCK, layout::lock_offset(slot));
  const bool locked = life != MAP_FAILED && madvise(life, kPage, MADV_DONTFORK) == 0 &&
                      fcntl(fd, F_OFD_SETLK, &lock) == 0;
  if (locked) {
    if (life_ != nullptr) munmap(life_, kPage);
    life_ = life;
  } else {
    error.format("cannot lock slot {} of the ledger {}: errno {}", slot, path_.view(), errno);
    if (life != MAP_FAILED) munmap(life, kPage);
  }
  close_own(fd);
  return locked;
}

bool LedgerFile::back(int fd, const void* part, size_t size, Message& error) const {
  const auto offset =
      static_cast<size_t>(static_cast<const char*>(part) - reinterpret_cast<const char*>(map_));
  const int code = back_shared_file(fd, offset, size);
  if (code != 0) fail(error, "extend", path_.view(), code);
  return code == 0;
}

bool LedgerFile::slot_is_alive(int fd, uint32_t slot) {
  struct flock lock = byte_lock(F_WRLCK, layout::lock_offset(slot));
  // A probe that fails proves nothing, and a live owner must not lose its slot.
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0) return true;
  return lock.l_type != F_UNLCK;
}

bool LedgerFile::is_lived_in(const char* tenant) {
  Text<128> path;
  path.format("{}{}", layout::kFilePrefix, tenant);
  const int fd = open_own(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool alive = any_slot_is_alive(fd);
  close_own(fd);
  return alive;
}

bool LedgerFile::any_slot_is_alive(int fd, uint32_t first, uint32_t end) {
  if (first == end) return false;  // a length of 0 would mean: to the end of the file
  struct flock locks = byte_lock(F_WRLCK, layout::lock_offset(first));
  locks.l_len = end - first;
  return fcntl(fd, F_OFD_GETLK, &locks) != 0 || locks.l_type != F_UNLCK;
}

}  // namespace fracgpu
