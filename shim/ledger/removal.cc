// Removal: deletes the files of ledgers that no process needs any more; see ledger.h.
//
// A file is removed under its lock, if no slot's owner is alive. A process that has opened the file
// and has no slot yet finds it gone when it claims one, and begins again with a new file
// (slots.cc). Memory of dead processes that the driver has not released stays charged to their
// tenant, so such a file stays, too.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/clock.h"
#include "shim/base/descriptor.h"
#include "shim/ledger/ledger.h"
#include "shim/ledger/ledger_path.h"

namespace fracgpu {
namespace {

using layout::for_each_device;
using layout::for_each_live;
using layout::kMaxDevices;
using layout::kMaxSlots;

constexpr auto kRelaxed = std::memory_order_relaxed;

// How long the refusals of a dead tenant can be explained, and how long a chosen name is expected
// to be used again: as long as a person takes to ask for the reason. A file that stays costs 88 KiB
// of host memory or more.
constexpr uint64_t kRemembered_s = 600;

// A sweep checks at most this many ledgers and stops after this time, because a program waits for
// it. One check takes three system calls if a process lives there, otherwise some 15 us, and up to
// milliseconds if it has to ask the driver.
constexpr int kSweepLooks = 32;
constexpr uint64_t kSweepTime_ms = 2;

// The generated names of launch trees, containers (both from config/identity.cc) and `fracgpu run`
// (tools/launch/member.cc). Each is used once.
bool is_made_up(std::string_view tenant) {
  for (const std::string_view start : {"tree-", "container-", "run-"}) {
    if (tenant.substr(0, start.size()) == start) return true;
  }
  return false;
}

bool is_remembered(const LedgerFile& file, uint64_t now_s) {
  const layout::Ledger& ledger = *file.map();
  uint64_t last_s = 0;
  layout::RefusalRecord record;
  for (const auto& place : ledger.refused) {
    if (layout::read_refusal(place, record)) last_s = std::max(last_s, record.unix_ms / 1000);
  }
  if (!is_made_up(file.tenant())) {
    last_s = std::max(last_s, ledger.header.created_unix_s);
    for (uint32_t slot = 0; slot < layout::slots_backed(ledger); ++slot) {
      last_s = std::max(last_s, ledger.slots[slot].claimed_unix_s);
    }
  }
  return now_s < last_s + kRemembered_s;
}

// The folder is sticky, so only root and a file's owner may remove it.
bool may_remove(const LedgerFile& file, int fd) {
  if (file.tenant().substr(0, kClaimTenant.size()) == kClaimTenant) return false;
  struct statx status;
  const uid_t user = geteuid();
  return user == 0 ||
         (statx(fd, "", AT_EMPTY_PATH, STATX_UID, &status) == 0 && status.stx_uid == user);
}

}  // namespace

bool Ledger::nobody_holds_anything() const {
  const layout::Ledger& ledger = *file_.map();
  bool nothing = true;
  for_each_live(ledger, [&](uint32_t slot) {
    for_each_device(ledger, [&](uint32_t device) {
      const layout::Cell& cell = ledger.cells[device][slot];
      nothing = nothing && layout::held_of(cell.held_and_lease.load(kRelaxed)) == 0 &&
                layout::imported_by(ledger, static_cast<int>(device), slot) == 0;
    });
  });
  return nothing;
}

void Ledger::leave_for_good(uint64_t now_s) {
  // First without the lock: most processes exit while they hold memory.
  if (!nobody_holds_anything() || is_remembered(file_, now_s)) return;
  const GrowLock lock(file_, GrowLock::LockTimeout::none);
  if (!lock || !may_remove(file_, lock.fd()) ||
      LedgerFile::any_slot_is_alive(lock.fd(), 0, slot_) ||
      LedgerFile::any_slot_is_alive(lock.fd(), slot_ + 1)) {
    return;
  }
  // Other threads of this process may still be reserving within its leases.
  for_each_device(*file_.map(), [&](uint32_t device) {
    auto& own = own_cell(static_cast<int>(device)).held_and_lease;
    uint64_t word = own.load(kRelaxed);
    while (layout::held_of(word) == 0 && !own.compare_exchange_weak(word, 0, kRelaxed)) {
    }
  });
  if (nobody_holds_anything() && file_.is_current()) unlink(file_.path());
}

bool Ledger::remove_ended(const char* tenant, ReleaseProbe release_probe, uint64_t now_s) {
  if (LedgerFile::is_lived_in(tenant)) return false;  // the usual case
  Message ignored;
  Ledger ledger;
  if (ledger.manage(tenant, ignored) != LedgerFile::Result::ok) return false;
  ledger.release_probe_ = release_probe;
  const LedgerFile& file = ledger.file_;
  const layout::Ledger& map = *file.map();
  const int fd = file.reopen(ignored);
  if (fd < 0) return false;
  bool ended =
      may_remove(file, fd) && !LedgerFile::any_slot_is_alive(fd) && !is_remembered(file, now_s);
  // Asks the driver without the lock, because that takes long. A dead process does not get more
  // later.
  uint32_t dead[kMaxSlots] = {};
  Living living[kMaxDevices];
  std::fill(std::begin(living), std::end(living), Living{.held = 0});
  for_each_live(map, [&](uint32_t slot) {
    dead[slot] = owner_of(map.slots[slot]);
    // Memory that is only `awaited` does not keep the file: no process asks for it again, so
    // nothing is lost.
    ended = ended && ledger.driver_released(fd, slot, living) != DriverRelease::held;
  });
  close_own(fd);
  if (!ended) return false;
  const GrowLock lock(file, GrowLock::LockTimeout::none);
  if (!lock || LedgerFile::any_slot_is_alive(lock.fd())) return false;
  for_each_live(map,
                [&](uint32_t slot) { ended = ended && dead[slot] == owner_of(map.slots[slot]); });
  return ended && file.is_current() && unlink(file.path()) == 0;
}

void Ledger::sweep() const {
  int count = 0;
  find_ledger([&](const char*) { return ++count < 0; });
  const uint64_t begun_ms = unix_now_ms();
  // Begins at a varying ledger, so that each has its turn if there are more than one sweep can
  // check.
  int skip = count <= kSweepLooks
                 ? 0
                 : static_cast<int>(begun_ms % static_cast<uint64_t>(count - kSweepLooks + 1));
  int looks = kSweepLooks;
  find_ledger([&](const char* tenant) {
    if (skip-- > 0) return false;
    const uint64_t now_ms = unix_now_ms();
    if (file_.tenant() != tenant) remove_ended(tenant, release_probe_, now_ms / 1000);
    return --looks == 0 || now_ms - begun_ms > kSweepTime_ms;
  });
}

}  // namespace fracgpu
