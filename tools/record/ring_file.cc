// Makes the file of rings and takes records from it; see ring_file.h.
#include "tools/record/ring_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "shim/base/byte_lock.h"
#include "shim/base/held_signals.h"
#include "shim/base/shared_file.h"

namespace fracgpu::tools {
namespace {

[[noreturn]] void fail(const std::string& path, int error) {
  const char* const remedy =
      error == EEXIST  ? "something else is in its place; remove it"
      : error == EFBIG ? "it is larger than files may be here; raise the limit (ulimit -f)"
                       : strerror(error);
  throw std::runtime_error(fmt::format("cannot make {}: {}", path, remedy));
}

bool is_recorded(const std::string& path) {
  const Descriptor old(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return old.get() >= 0 && byte_is_locked(old.get(), ring::kRecorderLock);
}

// A file gets its name only when it is complete and locked. So a named file without a lock belongs
// to a recorder that was killed.
constexpr std::string_view kPrefix = ring::kFilePrefix;
const std::string kFolder(kPrefix.substr(0, kPrefix.rfind('/')));

int fill(int fd, uint32_t frames, uid_t owner) {
  ring::HeaderStart header = {};
  header.magic = ring::kMagic;
  header.version = ring::kVersion;
  header.rings = ring::kRings;
  header.records = ring::kRecords;
  header.frames = frames;
  struct flock lock = byte_lock(F_WRLCK, ring::kRecorderLock);
  if (fcntl(fd, F_OFD_SETLK, &lock) != 0) return errno;
  if (owner != geteuid() && fchown(fd, owner, static_cast<gid_t>(-1)) != 0) return errno;
  if (ftruncate(fd, sizeof(ring::File)) != 0) return errno;
  if (const int error = back_shared_file(fd, 0, sizeof(ring::Header)); error != 0) return error;
  const ssize_t written = pwrite(fd, &header, sizeof header, 0);
  return written == static_cast<ssize_t>(sizeof header) ? 0 : written < 0 ? errno : ENOSPC;
}

int give_name(int fd, const std::string& path) {
  const std::string self = fmt::format("/proc/self/fd/{}", fd);
  return linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

// The position behind the text of the last process that begins among these records, or `begin`.
// Drops are that process's, because no process begins in a full ring.
uint64_t last_beginning(const ring::Ring& ring, uint32_t records, uint64_t begin, uint64_t end) {
  for (uint64_t at = end; at > begin; --at) {
    const ring::Place& place = ring.places[(at - 1) % records];
    if (place.stamp.load(std::memory_order_acquire) == at &&
        place.record.type == ring::Type::process) {
      return at;
    }
  }
  return begin;
}

}  // namespace

int remove_dead_rings() {
  int removed = 0;
  const std::string start(kPrefix.substr(kPrefix.rfind('/') + 1));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error)) {
    const std::string path = entry.path();
    if (!entry.path().filename().string().starts_with(start)) continue;
    const Descriptor file(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() < 0 || byte_is_locked(file.get(), ring::kRecorderLock)) continue;
    if (unlink(path.c_str()) == 0) ++removed;
  }
  return removed;
}

RingFile::RingFile(const std::string& tenant, uint32_t frames, uid_t owner)
    : path_(ring::kFilePrefix + tenant) {
  if (is_recorded(path_)) {
    throw std::runtime_error(
        fmt::format("tenant {} is being recorded already; wait for that to end", tenant));
  }
  remove_dead_rings();
  const HeldSignals held;  // a size above RLIMIT_FSIZE raises SIGXFSZ along with EFBIG
  file_ = Descriptor(open(kFolder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file_.get() < 0) fail(path_, errno);
  if (const int error = fill(file_.get(), frames, owner); error != 0) fail(path_, error);
  void* const bytes =
      mmap(nullptr, sizeof(ring::File), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (bytes == MAP_FAILED) fail(path_, errno);
  map_ = static_cast<ring::File*>(bytes);
  if (const int error = give_name(file_.get(), path_); error != 0) {
    munmap(map_, sizeof(ring::File));
    fail(path_, error);
  }
}

RingFile::~RingFile() {
  unlink(path_.c_str());
  // No records are taken any more. Processes write nothing to a ring that looks full.
  for (const auto& [slot, missed] : missed_) {
    ring::Ring& ring = map_->rings[slot];
    ring.begin.store(ring.end.load() - ring::kRecords);
  }
  munmap(map_, sizeof(ring::File));
}

// A ring has memory once a process has begun to use it. Holes must not be touched, because that
// would fill them.
void RingFile::find_rings() {
  constexpr auto kFirst = static_cast<off_t>(offsetof(ring::File, rings));
  off_t at = kFirst;
  while ((at = lseek(file_.get(), at, SEEK_DATA)) >= kFirst) {
    const auto slot = static_cast<uint32_t>((at - kFirst) / static_cast<off_t>(sizeof(ring::Ring)));
    if (slot >= ring::kRings) break;
    missed_.try_emplace(slot, 0);
    at = kFirst + static_cast<off_t>((slot + 1) * sizeof(ring::Ring));
  }
}

void RingFile::take(const std::function<void(uint32_t, const ring::Record&)>& visit,
                    const std::function<void(uint32_t, uint64_t)>& missed,
                    const std::function<bool(uint32_t)>& is_alive) {
  find_rings();
  for (auto& [slot, told] : missed_) {
    ring::Ring& ring = map_->rings[slot];
    // Loaded before the ends: each process writes its text before it drops a record.
    const uint64_t dropped = ring.missed.load(std::memory_order_acquire);
    uint64_t at = ring.begin.load(std::memory_order_relaxed);
    const uint64_t end = ring.end.load(std::memory_order_acquire);
    const uint32_t records = ring.records.load(std::memory_order_acquire);
    // Not written by our processes, or just begun.
    if (!ring::is_ring_size(records) || end < at || end - at > records) continue;
    const auto report = [&, &slot = slot, &told = told](uint64_t now) {
      if (now != told) missed(slot, now - told);
      told = now;
    };
    // The dropped records are missing somewhere among those behind this position.
    const uint64_t dropped_at = dropped == told ? at : last_beginning(ring, records, at, end);
    for (int looks = 0; at < end; ++at) {
      if (at == dropped_at) report(dropped);
      const ring::Place& place = ring.places[at % records];
      const bool complete = place.stamp.load(std::memory_order_acquire) == at + 1;
      if (!complete && (looks++ == 0 ? is_alive(slot) : false)) break;
      // Checked again: it may have been completed before its process died.
      if (!complete && place.stamp.load(std::memory_order_acquire) != at + 1) continue;
      const ring::Record record = place.record;
      visit(slot, record);
    }
    const uint64_t dropped_since = ring.missed.load(std::memory_order_acquire);
    const uint64_t end_now = std::min(ring.end.load(std::memory_order_acquire), at + records);
    if (at >= dropped_at && last_beginning(ring, records, at, end_now) == at) report(dropped_since);
    ring.begin.store(at, std::memory_order_release);
  }
}

std::vector<ring::Unrecorded> RingFile::unrecorded(uint32_t& count) const {
  const ring::Header& header = map_->header;
  count = header.unrecorded_count.load(std::memory_order_acquire);
  const uint32_t named = std::min(count, ring::kMostUnrecorded);
  return {header.unrecorded, header.unrecorded + named};
}

bool RingFile::is_empty(uint32_t slot) const {
  const ring::Ring& ring = map_->rings[slot];
  return ring.begin.load(std::memory_order_relaxed) == ring.end.load(std::memory_order_acquire);
}

}  // namespace fracgpu::tools
