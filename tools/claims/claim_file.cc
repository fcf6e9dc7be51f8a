// See claim_file.h.
#include "tools/claims/claim_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shim/base/byte_lock.h"
#include "shim/base/clock.h"
#include "shim/base/held_signals.h"
#include "shim/base/shared_file.h"
#include "tools/cli/judged_file.h"

namespace fracgpu::tools {
namespace {

constexpr uint64_t kLockTimeout_ms =
    30'000;  // it is held for microseconds, unless its holder is stopped

std::string claim_table_path() {
  const char* const other = getenv("FRACGPU_BOOK");
  return other != nullptr && *other != '\0' ? other : claim_table_layout::kPath;
}

claim_table_layout::Header good_header() {
  claim_table_layout::Header header = {};
  header.magic = claim_table_layout::kMagic;
  header.version = claim_table_layout::kVersion;
  header.file_bytes = sizeof(claim_table_layout::ClaimTable);
  header.max_gpus = claim_table_layout::kMaxGpus;
  header.max_claims = claim_table_layout::kMaxClaims;
  header.eighths = claim_table_layout::kEighths;
  header.created_unix_s = static_cast<uint64_t>(time(nullptr));
  return header;
}

// Returns a descriptor with a high number, out of the way of the numbers that programs expect to
// get. A lock belongs to the open file, whatever its numbers are.
Descriptor moved_up(Descriptor fd) {
  for (const int lowest : {1000, 100}) {
    if (const int up = fcntl(fd.get(), F_DUPFD_CLOEXEC, lowest); up >= 0) return Descriptor(up);
  }
  return fd;
}

}  // namespace

void ClaimFile::fail(const char* what, int code) const {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path_, strerror(code)));
}

ClaimFile::Lock::Lock(const ClaimFile& file)
    : Lock(file, claim_table_layout::kClaimTableLock, kLockTimeout_ms) {}

ClaimFile::Lock::Lock(const ClaimFile& file, int64_t byte, uint64_t timeout_ms)
    : file_(file.open_checked()) {
  struct flock lock = byte_lock(F_WRLCK, byte);
  const uint64_t end = coarse_now_ms() + timeout_ms;
  for (long pause = 1; fcntl(fd(), F_OFD_SETLK, &lock) != 0; pause = std::min(2 * pause, 16L)) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) file.fail("lock", errno);
    if (coarse_now_ms() > end) {
      throw std::runtime_error(
          fmt::format("{} stayed locked for {} s; is a fracgpu process stopped?", file.path(),
                      timeout_ms / 1000));
    }
    sleep_ms(pause);
  }
}

bool ClaimFile::exists() {
  // A dangling symbolic link also counts as existing.
  struct stat status;
  return lstat(claim_table_path().c_str(), &status) == 0;
}

ClaimFile::ClaimFile(const std::string& path)
    : path_(path), table_(std::make_unique<claim_table_layout::ClaimTable>()) {}

ClaimFile::ClaimFile() : ClaimFile(claim_table_path()) {
  if (exists()) return;
  const claim_table_layout::Header header = good_header();
  constexpr size_t kSize = sizeof(claim_table_layout::ClaimTable);
  const int code =
      make_shared_file(path_.c_str(), {.whole = kSize, .backed = kSize}, &header, sizeof header);
  if (code != 0 && code != EEXIST) fail("make", code);
}

Descriptor ClaimFile::open_checked() const {
  Descriptor file = open_judged(path_, O_RDWR);
  claim_table_layout::Header header = good_header(), found = {};
  struct stat status = {};
  const bool whole = fstat(file.get(), &status) == 0 &&
                     status.st_size == sizeof(claim_table_layout::ClaimTable) &&
                     pread(file.get(), &found, sizeof found, 0) == sizeof found;
  header.created_unix_s = found.created_unix_s;
  if (!whole || memcmp(&found, &header, sizeof header) != 0) {
    throw std::runtime_error(fmt::format(
        "{} is no claim table of this version; remove it when nothing runs under fracgpu run",
        path_));
  }
  return file;
}

Descriptor ClaimFile::open_for_life() const {
  return moved_up(open_judged(path_, O_RDONLY));
}

void ClaimFile::lock_row(int fd, uint32_t row) const {
  struct flock life = byte_lock(F_RDLCK, claim_table_layout::claim_lock(row));
  if (fcntl(fd, F_OFD_SETLK, &life) != 0) fail("lock a row of", errno);
}

Descriptor ClaimFile::open_to_lock_alone() const {
  return open_checked();
}

bool ClaimFile::lock_row_alone(int fd, uint32_t row) {
  struct flock life = byte_lock(F_WRLCK, claim_table_layout::claim_lock(row));
  return fcntl(fd, F_OFD_SETLK, &life) == 0;
}

bool ClaimFile::is_row_locked(const Lock& lock, uint32_t row) {
  struct flock life = byte_lock(F_WRLCK, claim_table_layout::claim_lock(row));
  // A failed probe proves nothing, and a live launch must not lose its share.
  return fcntl(lock.fd(), F_OFD_GETLK, &life) != 0 || life.l_type != F_UNLCK;
}

off_t ClaimFile::offset_of(const void* field) const {
  return static_cast<const char*>(field) - reinterpret_cast<const char*>(table_.get());
}

void ClaimFile::load(const Lock& lock) const {
  look(lock.fd(), table_.get(), offsetof(claim_table_layout::ClaimTable, claims));
  auto& in_use = table_->counters.claims_in_use;
  in_use = std::min(in_use, claim_table_layout::kMaxClaims);
  look(lock.fd(), table_->claims, sizeof(claim_table_layout::Claim) * in_use);
}

void ClaimFile::look(int fd, void* field, size_t size) const {
  const ssize_t got = pread(fd, field, size, offset_of(field));
  if (got != static_cast<ssize_t>(size)) fail("read", EIO);
}

void ClaimFile::write(const Lock& lock, const void* field, size_t size) const {
  const HeldSignals held;  // otherwise a write above RLIMIT_FSIZE would end the command
  for (size_t at = 0; at < size;) {
    const ssize_t written = pwrite(lock.fd(), static_cast<const char*>(field) + at, size - at,
                                   offset_of(field) + static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("write", written < 0 ? errno : ENOSPC);
    at += static_cast<size_t>(written);
  }
}

}  // namespace fracgpu::tools
