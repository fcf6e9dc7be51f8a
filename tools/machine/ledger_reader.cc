// Reads parts of a ledger into plain values; see ledger_reader.h.
//
// The file is read and not mapped: a mapping would raise SIGBUS if another process cut the file
// meanwhile. Numbers may change while they are read, so a sum can mix slightly different moments.
#include "tools/machine/ledger_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string_view>

#include "shim/base/byte_lock.h"
#include "shim/ledger/ledger_file.h"
#include "shim/ledger/ledger_path.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/plain_text.h"
#include "tools/machine/claim_names.h"

namespace fracgpu::tools {
namespace {

constexpr std::string_view kPrefix = layout::kFilePrefix;

Descriptor open_ledger(const std::string& path, int access) {
  return Descriptor(open(path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

uint64_t to_bytes(uint64_t units) {
  return units > UINT64_MAX / layout::kUnit ? UINT64_MAX : units * layout::kUnit;
}

// Holds the parts of one ledger after another, each part at its place. The rest is left over from
// earlier ledgers. A whole ledger is 8 MiB, mostly without memory, and a machine may have thousands
// of them. Reading allocates no memory for parts that have none.
class LedgerParts {
 public:
  LedgerParts()
      : ledger_(static_cast<layout::Ledger*>(mmap(nullptr, sizeof(layout::Ledger),
                                                  PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (ledger_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~LedgerParts() { munmap(ledger_, sizeof *ledger_); }
  LedgerParts(const LedgerParts&) = delete;
  LedgerParts& operator=(const LedgerParts&) = delete;

  const layout::Ledger& ledger() const { return *ledger_; }

  // Reads the head, with the refusal counts, and the devices. Throws if it is not a ledger of this
  // version.
  void read_head(const Descriptor& file, const std::string& path) {
    struct stat status;
    if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
      throw std::runtime_error(path + " is not a ledger: it is not a file");
    }
    const layout::Header& header = ledger_->header;
    constexpr size_t kHead = offsetof(layout::Ledger, needed) + sizeof ledger_->needed;
    const size_t size = read_bytes(file, 0, kHead);
    if (size < sizeof header || header.magic != layout::kMagic) {
      throw std::runtime_error(path + " is not a ledger, or was overwritten");
    }
    if (header.version != layout::kVersion) {
      throw std::runtime_error(fmt::format("{} has layout version {} and this command speaks {}",
                                           path, header.version, layout::kVersion));
    }
    if (size != kHead || !read_devices(file) || status.st_size != sizeof *ledger_ ||
        header.file_bytes != sizeof *ledger_ || header.max_devices != layout::kMaxDevices ||
        header.max_slots != layout::kMaxSlots) {
      throw std::runtime_error(
          fmt::format("{} is damaged: {} bytes instead of {}, or a wrong header", path,
                      static_cast<uint64_t>(status.st_size), sizeof *ledger_));
    }
  }

  // Reads the claimed slots, from the first to the last: they lie near each other. Also reads the
  // refusals, and the exports of which something is imported, if there are any.
  void read_rest(const Descriptor& file, const std::string& path) {
    uint32_t first = layout::kMaxSlots, last = 0;
    layout::for_each_live(*ledger_, [&](uint32_t slot) {
      first = std::min(first, slot);
      last = std::max(last, slot);
    });
    bool whole = true;
    if (first <= last) {
      const uint32_t count = last - first + 1;
      whole = read_part(file, ledger_->slots + first, count);
      layout::for_each_device(*ledger_, [&](uint32_t row) {
        whole = whole && read_part(file, ledger_->cells[row] + first, count);
      });
    }
    bool any_imported = false;
    layout::for_each_live(*ledger_, [&](uint32_t slot) {
      any_imported = any_imported || layout::has_imported_any(ledger_->slots[slot]);
    });
    if (any_imported) whole = whole && read_part(file, ledger_->exports, layout::kMaxExports);
    const auto* const words = &ledger_->refusals[0][0];
    any_refused_ = ledger_->refusal_number.load() != 0 ||
                   std::any_of(words, words + (layout::kMaxDevices + 1) * layout::kReasons,
                               [](const auto& count) { return count.load() != 0; });
    if (any_refused_) whole = whole && read_part(file, ledger_->refused, layout::kMaxRefusals);
    if (!whole) throw std::runtime_error(path + " is damaged: it was cut while it was read");
  }

  bool any_refused() const { return any_refused_; }

 private:
  // Reads a few of many at a time: devices are appended without a gap.
  bool read_devices(const Descriptor& file) {
    constexpr uint32_t kAtOnce = 8;
    for (uint32_t row = 0; row < layout::kMaxDevices; row += kAtOnce) {
      layout::Device* const next = ledger_->devices + row;
      if (!read_part(file, next, kAtOnce)) return false;
      if (layout::is_used(next[kAtOnce - 1])) continue;
      const uint32_t rest = layout::kMaxDevices - row - kAtOnce;
      memset(static_cast<void*>(next + kAtOnce), 0, rest * sizeof *next);  // from an earlier ledger
      return true;
    }
    return true;
  }

  template <typename Item>
  bool read_part(const Descriptor& file, const Item* items, size_t count) {
    const auto offset = static_cast<size_t>(reinterpret_cast<const char*>(items) -
                                            reinterpret_cast<const char*>(ledger_));
    return read_bytes(file, offset, count * sizeof(Item)) == count * sizeof(Item);
  }

  size_t read_bytes(const Descriptor& file, size_t offset, size_t wanted) {
    size_t size = 0;
    while (size < wanted) {
      const ssize_t got = pread(file.get(), reinterpret_cast<char*>(ledger_) + offset + size,
                                wanted - size, static_cast<off_t>(offset + size));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      size += static_cast<size_t>(got);
    }
    return size;
  }

  layout::Ledger* const ledger_;
  bool any_refused_ = false;
};

// The claimed slots, their owners, and whether those are alive. Amounts stay 0.
std::map<uint32_t, ProcessUse> read_owners(const layout::Ledger& ledger, int fd) {
  std::map<uint32_t, ProcessUse> owners;
  layout::for_each_live(ledger, [&](uint32_t number) {
    const layout::Slot& slot = ledger.slots[number];
    ProcessUse& owner = owners[number];
    owner.host_pid = slot.host_pid.load();
    owner.pid = slot.pid;
    owner.pid_namespace = slot.pid_namespace;
    owner.start_time = slot.start_time;
    owner.uid = slot.uid;
    owner.user = user_name(slot.uid);
    owner.command = clean(slot.command, sizeof slot.command);
    owner.alive = LedgerFile::slot_is_alive(fd, number);
    owner.foreign_importer = slot.foreign_importer != 0;
    owner.orphaned = !owner.alive && slot.orphaned.load() != 0;
    owner.since_unix_s = slot.claimed_unix_s;
  });
  return owners;
}

// Writes the host PID of the slot's owner into the ledger, because the owner cannot know it. Later
// readers then need not see the host's /proc. Does nothing if the ledger is not writable or slots
// are changing owners: the next reader tries again.
void tell_host_pid(const std::string& path, uint32_t number, const layout::Slot& seen,
                   uint32_t host_pid) {
  const Descriptor file = open_ledger(path, O_RDWR);
  struct flock lock = byte_lock(F_WRLCK, layout::kGrowLock);
  if (file.get() < 0 || fcntl(file.get(), F_OFD_SETLK, &lock) != 0) return;
  const auto at = static_cast<off_t>(offsetof(layout::Ledger, slots) + number * sizeof seen);
  layout::Slot now;
  if (pread(file.get(), static_cast<void*>(&now), sizeof now, at) != sizeof now) return;
  const bool is_same =
      now.host_pid.load() == 0 && now.pid == seen.pid && now.pid_namespace == seen.pid_namespace &&
      now.start_time == seen.start_time && LedgerFile::slot_is_alive(file.get(), number);
  if (!is_same) return;
  [[maybe_unused]] const ssize_t written =
      pwrite(file.get(), &host_pid, sizeof host_pid,
             at + static_cast<off_t>(offsetof(layout::Slot, host_pid)));
}

DeviceUse read_device(const layout::Ledger& ledger, uint32_t row,
                      const std::map<uint32_t, ProcessUse>& owners) {
  const layout::Device& device = ledger.devices[row];
  DeviceUse use;
  use.key = clean(device.key, sizeof device.key);
  const uint64_t cap = device.cap.load();
  if (cap != layout::kNoCap) use.cap = to_bytes(layout::cap_units(cap));
  use.damaged = cap != layout::kNoCap && !layout::is_codeword(cap);
  use.physical = device.physical_bytes;
  use.peak = to_bytes(device.peak.load());
  for (const auto& [slot, owner] : owners) {
    ProcessUse process = owner;
    const layout::Cell& cell = ledger.cells[row][slot];
    const uint64_t word = cell.held_and_lease.load();
    use.damaged = use.damaged || !layout::is_codeword(word);
    process.used = to_bytes(layout::held_now(cell));
    process.leased = to_bytes(layout::lease_of(word));
    process.peak = to_bytes(cell.peak.load());
    process.overhead = to_bytes(cell.overhead.load());
    const uint64_t count = cell.time_and_allocations.load();
    process.allocations_unix_s = count >> 32;
    if (process.allocations_unix_s != 0) process.allocations = count & UINT32_MAX;
    process.imported = to_bytes(layout::imported_by(ledger, static_cast<int>(row), slot));
    if (process.used == 0 && process.leased == 0 && process.peak == 0 && process.imported == 0) {
      continue;
    }
    if (process.alive || process.orphaned) use.used += process.used;
    use.processes.push_back(std::move(process));
  }
  std::stable_sort(use.processes.begin(), use.processes.end(),
                   [](const ProcessUse& a, const ProcessUse& b) { return a.used > b.used; });
  return use;
}

RefusalCounts read_counts(const std::atomic<uint64_t> (&counts)[layout::kReasons]) {
  RefusalCounts read;
  for (uint32_t i = 0; i < layout::kReasons; ++i) read.by_reason[i] = counts[i].load();
  return read;
}

std::optional<RefusalUse> read_refusal(const layout::RefusalPlace& place, HostPids& host_pids) {
  layout::RefusalRecord record;
  // The check detects only unfinished records, not forged ones.
  if (!layout::read_refusal(place, record)) return std::nullopt;
  RefusalUse use;
  use.number = record.number;
  use.unix_ms = record.unix_ms;
  use.reason =
      static_cast<uint32_t>(record.reason) < layout::kReasons ? record.reason : Reason::ledger;
  use.key = clean(record.key, sizeof record.key);
  use.api = clean(record.api, sizeof record.api);
  use.command = clean(record.command, sizeof record.command);
  use.user = user_name(record.uid);
  use.uid = record.uid;
  use.host_pid = record.host_pid != 0
                     ? record.host_pid
                     : host_pids.find(record.pid_namespace, record.pid, record.start_time);
  use.pid = record.pid;
  use.start_time = record.start_time;
  if (record.asked != 0) {
    use.needed = to_bytes(record.asked);
    const bool exact = record.asked_bytes != 0 && record.asked_bytes < *use.needed;
    use.asked = exact ? record.asked_bytes : *use.needed;
  }
  if (record.cap != layout::kNoCap) use.cap = to_bytes(record.cap);
  use.own = to_bytes(record.own);
  use.held = to_bytes(record.held);
  use.largest = to_bytes(record.largest);
  use.largest_pid = record.largest_pid;
  use.largest_command = clean(record.largest_command, sizeof record.largest_command);
  return use;
}

std::vector<RefusalUse> read_refusals(const layout::Ledger& ledger, HostPids& host_pids) {
  std::vector<RefusalUse> all;
  for (const layout::RefusalPlace& place : ledger.refused) {
    if (auto use = read_refusal(place, host_pids)) all.push_back(std::move(*use));
  }
  // Sorted by number, because a clock may be set back.
  std::stable_sort(all.begin(), all.end(),
                   [](const RefusalUse& a, const RefusalUse& b) { return a.number > b.number; });
  return all;
}

}  // namespace

const char* name_of(Reason reason) {
  constexpr const char* kNames[] = {"cap", "driver", "runtime", "ledger"};
  static_assert(std::size(kNames) == layout::kReasons);
  return kNames[static_cast<uint32_t>(reason)];
}

uint64_t RefusalCounts::total() const {
  return std::accumulate(by_reason.begin(), by_reason.end(), uint64_t{0});
}

bool DeviceUse::lives() const {
  return std::any_of(processes.begin(), processes.end(),
                     [](const ProcessUse& process) { return process.lives(); });
}

namespace {

// A ledger in the making, on a file system without unnamed files: TENANT.RANDOM.new, see
// shared_file.h.
bool is_unfinished(std::string_view name) {
  constexpr std::string_view kEnd = ".new";
  constexpr size_t kDigits = 16;
  if (!name.ends_with(kEnd)) return false;
  name.remove_suffix(kEnd.size());
  const size_t dot = name.find_last_not_of("0123456789abcdef");
  return dot != name.npos && name[dot] == '.' && name.size() - dot - 1 == kDigits;
}

}  // namespace

std::vector<std::string> tenant_names() {
  std::vector<std::string> names;
  find_ledger([&](const char* name) {
    if (!is_unfinished(name)) names.emplace_back(name);
    return false;
  });
  std::sort(names.begin(), names.end());
  return names;
}

TenantUse read_tenant(const std::string& name) {
  HostPids host_pids;
  return read_tenant(name, host_pids);
}

TenantUse read_tenant(const std::string& name, HostPids& host_pids) {
  TenantUse tenant;
  tenant.name = clean(name.c_str(), name.size());
  tenant.claim = claim_name_of(tenant.name);
  tenant.path = std::string(kPrefix) + tenant.name;
  if (name.empty() || name.find('/') != std::string::npos) {
    throw std::runtime_error(fmt::format("'{}' is not a tenant's name", tenant.name));
  }
  const Descriptor file = open_ledger(std::string(kPrefix) + name, O_RDONLY);
  if (file.get() < 0) {
    if (errno == ENOENT) throw std::runtime_error(fmt::format("no tenant '{}'", tenant.name));
    const char* const why = errno == ELOOP ? "a symbolic link is in its place" : strerror(errno);
    throw std::runtime_error(fmt::format("cannot open {}: {}", tenant.path, why));
  }
  // Reused for all ledgers: memory for one is enough.
  static thread_local LedgerParts parts;
  parts.read_head(file, tenant.path);
  parts.read_rest(file, tenant.path);
  const layout::Ledger* const ledger = &parts.ledger();
  struct stat status = {};
  fstat(file.get(), &status);
  tenant.owner_uid = status.st_uid;
  tenant.mode = status.st_mode & 07777U;
  tenant.created_unix_s = ledger->header.created_unix_s;

  auto owners = read_owners(*ledger, file.get());
  for (auto& [number, owner] : owners) {
    if (owner.alive) tenant.users.insert(owner.uid);
    if (owner.host_pid != 0 || !owner.alive) continue;
    const layout::Slot& slot = ledger->slots[number];
    owner.host_pid = host_pids.find(slot.pid_namespace, slot.pid, slot.start_time);
    if (owner.host_pid != 0) tell_host_pid(tenant.path, number, slot, owner.host_pid);
  }
  layout::for_each_device(*ledger, [&](uint32_t row) {
    tenant.devices.push_back(read_device(*ledger, row, owners));
    tenant.devices.back().refusals = read_counts(ledger->refusals[row]);
    if (const uint64_t needed = ledger->needed[row].load(std::memory_order_relaxed); needed != 0)
      tenant.devices.back().needed = to_bytes(needed);
  });
  tenant.refusals_elsewhere = read_counts(ledger->refusals[layout::kMaxDevices]);
  if (parts.any_refused()) tenant.refused = read_refusals(*ledger, host_pids);
  return tenant;
}

}  // namespace fracgpu::tools
