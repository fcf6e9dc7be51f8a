// Reserve, release and grow; see ledger.h for the protocol and its invariant, and slots.cc for
// joining, reaping.cc for reaping.
//
// Order matters wherever two words change: the giver's lease shrinks before the taker's grows. A
// process that dies between the two steps then leaves too much counted, never too little.
//
// A process that wants more than its lease first counts the units as held and then sums all
// processes. Of any two that do so at once, the later one sees the earlier one's units. The cap
// therefore holds even without the lock. The lock makes sure that no process is refused because of
// another one's passing attempt. Leases grow, slots and devices are assigned, and dead processes
// are reaped only under the lock.
#include "shim/ledger/ledger.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/clock.h"
#include "shim/base/descriptor.h"
#include "shim/ledger/invariants.h"
#include "shim/ledger/lease.h"

namespace fracgpu {
namespace {

using layout::Cell;
using layout::claim_of;
using layout::for_each_live;
using layout::held_of;
using layout::kMaxDevices;
using layout::kMaxUnits;
using layout::lease_of;
using layout::pack;

constexpr auto kRelaxed = std::memory_order_relaxed;

// A lease grows by a spare beyond the needed units, so that the next few allocations need not ask
// again. The spare is at most 32 MiB, and at most a 64th of the cap, so that small caps are not
// locked up in leases that others must first take back. Of 4,000 allocations of 2 MiB, 228 ask with
// 32 MiB, 3,873 without a spare and 31 with 256 MiB. Under a cap of 1 GiB, 25 of 350 ask with a
// 64th and 14 with a quarter.
constexpr uint64_t kMaxSpare = (32u << 20) / layout::kUnit;
constexpr uint64_t kSpareFraction = 64;

// How long a reservation waits for the driver to release a dead process's memory. If the release
// takes longer, the reservation is refused after this wait. No public source states how long
// drivers take; tests/hardware.sh measures it, as death.listed_ms.
constexpr uint64_t kReleaseTimeout_ms = 300;
// The same if the driver does not report the release. The device's usage shows after 200 ms that
// memory is free (process/memory_of_the_dead.cc), and the check takes longer on a crowded machine.
// After a second, memory that is still held is assumed free: with a timeout of 1,500 here, the
// first call that should be refused was granted it.
constexpr uint64_t kAwaitedTimeout_ms = 600;

// The number of checks before a refusal while the lock cannot be had. Two threads that try at once
// each see the other's units, for at most one check. With one check, 10 of 3,681 attempts that met
// others were refused; with 2 to 16, none. Each check makes a refusal some 4 ms later.
constexpr int kStuckLooks = 4;

// A process must count itself in before it counts the others.
constexpr auto kOrdered = std::memory_order_seq_cst;

// The amount by which the cells of all slots except `self` reduce what a device's cap can grant.
uint64_t claimed_by_others(const layout::Ledger& ledger, int device, uint32_t self) {
  uint64_t sum = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    if (slot != self) sum += layout::claimed_now(ledger.cells[device][slot], kOrdered);
  });
  return sum;
}

uint64_t encoded_cap(uint64_t bytes) {
  if (bytes == UINT64_MAX) return layout::kNoCap;
  return layout::encode(std::max<uint64_t>(bytes / layout::kUnit, 1));
}

}  // namespace

int Ledger::find_device(const char* key) const {
  const layout::Ledger& ledger = *file_.map();
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    const layout::Device& row = ledger.devices[i];
    if (!layout::is_used(row)) continue;
    if (strncmp(row.key, key, sizeof row.key) == 0) return static_cast<int>(i);
  }
  return -1;
}

int Ledger::free_device_rows() const {
  return static_cast<int>(
      std::count_if(std::begin(file_.map()->devices), std::end(file_.map()->devices),
                    [](const layout::Device& row) { return !layout::is_used(row); }));
}

int Ledger::device(const char* key, uint64_t cap_bytes, uint64_t physical_bytes, Message& error) {
  if (const int known = find_device(key); known >= 0 && !cap_is_left(known)) return known;
  layout::Ledger& ledger = *file_.map();
  GrowLock lock(file_);
  if (!lock) {
    error = lock.error();
    return -1;
  }
  const LeaseScope scope(ledger, lock, LeaseScope::kEveryDevice);
  if (const int known = find_device(key); known >= 0) {
    if (cap_is_left(known)) replace_cap(known, cap_bytes);
    return known;
  }
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    layout::Device& row = ledger.devices[i];
    if (layout::is_used(row)) {
      // The damaged row may be this very device, which would get a second row.
      if (row.key_check == layout::check_of(row.key)) continue;
      describe_damage(error);
      return -1;
    }
    if (!back_device(i, lock, error)) return -1;
    memset(row.key, 0, sizeof row.key);
    strncpy(row.key, key, sizeof row.key - 1);
    row.key_check = layout::check_of(row.key);
    row.physical_bytes = physical_bytes;
    row.cap.store(encoded_cap(cap_bytes), std::memory_order_release);
    return static_cast<int>(i);
  }
  error.format("the ledger {} has no row left for device {}: a tenant may use {} devices",
               file_.path(), key, kMaxDevices);
  return -1;
}

bool Ledger::reserve(int device, uint64_t units, Refusal& refusal) {
  if (reserve_within_lease(device, units)) return true;
  switch (grow(device, units, refusal.fault)) {
    case Grant::given:
      refusal.fault.clear();
      refusal.lease_grew = true;
      return true;
    case Grant::failed:
      break;
    case Grant::not_enough:
      refusal.fault.clear();
      if (is_damaged(device)) describe_damage(refusal.fault);
      break;
  }
  explain(device, units, refusal);
  return false;
}

bool Ledger::release(int device, uint64_t units) {
  const uint64_t change = pack(units, 0);
  const uint64_t now = own_cell(device).held_and_lease.fetch_sub(change, kRelaxed) - change;
  return now < publish_below_[device].load(kRelaxed);  // the upper halves decide
}

void Ledger::charge_taken(int device, uint64_t units) {
  Cell& cell = own_cell(device);
  const uint64_t before = cell.held_and_lease.fetch_add(pack(units, 0), kRelaxed);
  raise(cell.peak, held_of(before) + units);
  if (held_of(before) + units <= lease_of(before)) return;
  // Overdraft. The units that others may still take unasked were promised without it. A process
  // that has the lock, and is about to raise its own lease, sees that its lease was revoked.
  const GrowLock lock(file_, lock_timeout());
  note(lock);
  Message ignored;
  if (lock) keep_slot(lock, ignored);
  const LeaseScope scope(*file_.map(), lock, device);
  revoke_unspent(device);
}

// Revokes all leases, so that every process must ask for more until what is held fits the cap
// again. A lease equal to what is held would not do: a process could free units and take them again
// unasked.
void Ledger::revoke_unspent(int device) {
  layout::Ledger& ledger = *file_.map();
  for_each_live(ledger, [&](uint32_t slot) { revoke(ledger.cells[device][slot]); });
}

GrowLock::LockTimeout Ledger::lock_timeout() const {
  return stuck_.load(kRelaxed) ? GrowLock::LockTimeout::least : GrowLock::LockTimeout::brief;
}

void Ledger::note(const GrowLock& lock) {
  const bool stuck = lock.is_stuck();
  if (stuck != stuck_.load(kRelaxed)) stuck_.store(stuck, kRelaxed);
}

Ledger::Grant Ledger::grow(int device, uint64_t units, Message& error) {
  StuckLock stuck;
  for (uint64_t since_ms = 0;;) {
    switch (grow_once(device, units, error)) {
      case Growth::granted:
        return Grant::given;
      case Growth::no_lock:
        return Grant::failed;
      case Growth::lock_is_stuck:
        if (const auto answer = give_up_if_stuck(device, units, stuck)) return *answer;
        sleep_ms(1 + static_cast<long>(slot_ % 8));
        break;
      case Growth::no_room:
        if (reap_dead()) break;
        if (!fits_without_the_dead(device, units)) return Grant::not_enough;
        if (since_ms == 0) since_ms = coarse_now_ms();
        if (coarse_now_ms() - since_ms >=
            (awaits_dead_.load(kRelaxed) ? kAwaitedTimeout_ms : kReleaseTimeout_ms)) {
          return Grant::not_enough;
        }
        sleep_ms(1);
    }
  }
}

// One attempt. Gives the lock back before the caller waits for anything.
Ledger::Growth Ledger::grow_once(int device, uint64_t units, Message& error) {
  const GrowLock lock(file_, lock_timeout(), slot_);
  note(lock);
  const bool locked = static_cast<bool>(lock);
  if (!locked) error = lock.error();
  if (!locked && !lock.is_stuck()) return Growth::no_lock;
  if (locked && !keep_slot(lock, error)) return Growth::no_lock;
  if (lock.has_turn()) {
    const LeaseScope scope(*file_.map(), lock, device);
    do {
      if (try_grant(device, units, locked)) return Growth::granted;
    } while (take_back_unspent(device, units));
  }
  return lock.is_stuck() ? Growth::lock_is_stuck : Growth::no_room;
}

// For a caller that cannot get the lock, because its holder does not move or no descriptor is free.
// Dead processes cannot be reaped then, and two threads that try at once may have blocked each
// other. A refusal therefore takes several checks of what living processes hold.
std::optional<Ledger::Grant> Ledger::give_up_if_stuck(int device, uint64_t units,
                                                      StuckLock& stuck) const {
  const uint64_t alive = held(device, true), cap_now = cap(device);
  const bool hopeless = units > cap_now || alive > cap_now - units;
  if (hopeless && ++stuck.looks >= kStuckLooks) return Grant::not_enough;
  const uint64_t now = coarse_now_ms();
  if (stuck.since_ms == 0) stuck.since_ms = now;
  if (now - stuck.since_ms <= GrowLock::kLockTimeout_ms) return std::nullopt;
  return Grant::failed;
}

// Whether to wait until the driver has released dead processes' memory: the units would fit then.
bool Ledger::fits_without_the_dead(int device, uint64_t units) const {
  const uint64_t alive = held(device, true);
  return alive < held(device) && units <= cap(device) && alive <= cap(device) - units;
}

// Adds `units` to what this process holds if the cap has room beside the claims of all processes.
// Under the lock, also adds a spare to its lease. One thread of a process at a time: units that it
// has counted in and may take back must not become another thread's lease.
bool Ledger::try_grant(int device, uint64_t units, bool locked) {
  const layout::Ledger& ledger = *file_.map();
  Cell& cell = own_cell(device);
  const uint64_t cap_now = cap(device);
  const uint64_t others = claimed_by_others(ledger, device, slot_);
  uint64_t word = cell.held_and_lease.load(kRelaxed);
  uint64_t spare = 0, mark = 0;
  do {
    const uint64_t target = held_of(word) + units;
    if (units > kMaxUnits || target > kMaxUnits) return false;
    if (others > cap_now || target > cap_now - others) return false;
    const bool grows = locked && target > lease_of(word);
    spare = !grows ? 0
                   : std::min({cap_now - others - target, kMaxSpare, cap_now / kSpareFraction,
                               kMaxUnits - target});
    // No lease is 0 from here on, so that a revocation is visible at the end. A lease of one unit
    // claims nothing beyond what is held.
    mark = locked && lease_of(word) == 0 ? 1 : 0;
    // All of it is counted as held first, so that no thread can use it yet. This may be one unit
    // too many.
  } while (
      !cell.held_and_lease.compare_exchange_weak(word, word + pack(units + spare, mark), kOrdered));

  uint64_t mine = 0;
  const auto fits = [&] {
    const uint64_t now_others = claimed_by_others(ledger, device, slot_);
    const uint64_t now_cap = cap(device);
    mine = claim_of(cell.held_and_lease.load(kOrdered));
    return now_others <= now_cap && mine <= now_cap - now_others;
  };
  if (!fits()) {
    // After an overdraft the lease itself may be too large, although the needed units would fit.
    revoke(cell);
    if (!fits()) {
      cell.held_and_lease.fetch_sub(pack(units + spare, 0), kRelaxed);
      return false;
    }
  }
  // The claim, the larger of held and lease, stays at or below the amount that was checked,
  // whatever other threads of this process free or charge meanwhile. If an overdraft of another
  // process, which did not wait for the lock, has revoked the lease, it stays revoked: the spare
  // was promised without that overdraft.
  word = cell.held_and_lease.load(kRelaxed);
  while (locked && layout::is_codeword(word)) {
    const uint64_t lease =
        lease_of(word) == 0 ? 0 : std::max(lease_of(word), std::min(held_of(word), mine));
    if (cell.held_and_lease.compare_exchange_weak(word, pack(held_of(word) - spare, lease),
                                                  kRelaxed))
      break;
  }
  raise(cell.peak, held_of(word) - spare);
  note_peak(device);
  return true;
}

// Takes back leases that other processes do not use. True if it took any. Stops once it has taken
// `wanted` units.
bool Ledger::take_back_unspent(int device, uint64_t wanted) {
  layout::Ledger& ledger = *file_.map();
  uint64_t taken = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    if (slot == slot_) return;
    auto& word = ledger.cells[device][slot].held_and_lease;
    uint64_t now = word.load(kRelaxed);
    while (taken < wanted && lease_of(now) > held_of(now)) {
      const uint64_t unspent = std::min(lease_of(now) - held_of(now), wanted - taken);
      if (word.compare_exchange_weak(now, now - pack(0, unspent), kRelaxed)) {
        taken += unspent;
        break;
      }
    }
  });
  return taken > 0;
}

bool Ledger::set_cap(int device, uint64_t cap_bytes, Message& error) {
  GrowLock lock(file_);
  if (!lock) {
    error = lock.error();
    return false;
  }
  const LeaseScope scope(*file_.map(), lock, device);
  replace_cap(device, cap_bytes);
  return true;
}

bool Ledger::cap_is_left(int device) const {
  return (file_.map()->cap_is_left[device / 64].load(kRelaxed) >> (device % 64) & 1) != 0;
}

// With the lock held. The order matters. A process that dies after the first step has changed
// nothing relevant. If it dies after the second one, another process sets the cap once more.
void Ledger::replace_cap(int device, uint64_t cap_bytes) {
  revoke_unspent(device);
  file_.map()->devices[device].cap.store(encoded_cap(cap_bytes), std::memory_order_release);
  file_.map()->cap_is_left[device / 64].fetch_and(~(uint64_t{1} << (device % 64)), kRelaxed);
}

void Ledger::ask_for_recording(uint64_t number) {
  file_.map()->recording.store(number, kRelaxed);
  layout::for_each_device(*file_.map(),
                          [&](uint32_t device) { revoke_unspent(static_cast<int>(device)); });
}

// Programs call this often. It adds whole words and decodes once: leases add up to less than 2^32
// units, so they do not overflow into the held half.
uint64_t Ledger::held_by_all(int device) const {
  const layout::Ledger& ledger = *file_.map();
  const Cell* const cells = ledger.cells[device];
  const Cell* const end = cells + layout::slots_used(ledger);
  if (ledger.any_parked.load(kRelaxed) != 0) return held_one_by_one(device);
  uint64_t sum = 0;
#pragma GCC unroll 8
  for (const Cell* cell = cells; cell != end; ++cell) sum += cell->held_and_lease.load(kRelaxed);
  if (layout::is_codeword(sum)) [[likely]]
    return held_of(sum);
  return held_one_by_one(device);
}

// For a sum that is no codeword: some cell is damaged, and counts as kDamaged. Also for sums while
// units may be parked.
uint64_t Ledger::held_one_by_one(int device) const {
  const layout::Ledger& ledger = *file_.map();
  uint64_t sum = 0;
  for_each_live(ledger,
                [&](uint32_t slot) { sum += layout::held_now(ledger.cells[device][slot]); });
  return sum;
}

Ledger::Living Ledger::count_living(int device) const {
  const layout::Ledger& ledger = *file_.map();
  // Orphans that no living process has imported are released with the dead processes.
  uint64_t sum = 0, overhead = 0, orphans = 0, imported = 0;
  uint32_t gone[layout::kMaxSlots] = {};  // not 0: a dead process that is not reaped yet
  Message ignored;
  const int fd = file_.reopen(ignored);
  for_each_live(ledger, [&](uint32_t slot) {
    const Cell& cell = ledger.cells[device][slot];
    if (ledger.slots[slot].orphaned.load(kRelaxed) != 0) {
      orphans += layout::imported_of(cell.exported_and_imported.load(kRelaxed));
    } else if (fd < 0 || LedgerFile::slot_is_alive(fd, slot)) {
      sum += layout::held_now(cell);
      overhead += cell.overhead.load(kRelaxed);
      imported += layout::most_imported(ledger, device, slot);
    } else {
      gone[slot] = 1;
    }
  });
  if (fd >= 0) close_own(fd);
  orphans = std::min(orphans, imported) + listed_orphans_in_use(device, gone);
  return {.held = sum + orphans, .uncounted = overhead + orphans};
}

uint64_t Ledger::held_in_slot(int device, int slot) const {
  return layout::held_now(file_.map()->cells[device][slot]);
}

uint64_t Ledger::peak_in_slot(int device, int slot) const {
  return file_.map()->cells[device][slot].peak.load(kRelaxed);
}

void Ledger::explain(int device, uint64_t units, Refusal& refusal) const {
  const layout::Ledger& ledger = *file_.map();
  note_peak(device);
  refusal.asked = units;
  refusal.cap = cap(device);
  refusal.held = 0;
  refusal.largest_held = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    const uint64_t held = layout::held_now(ledger.cells[device][slot]);
    refusal.held += held;
    if (held <= refusal.largest_held) return;
    const layout::Slot& row = ledger.slots[slot];
    const uint32_t host_pid = row.host_pid.load(kRelaxed);
    refusal.largest_held = held;
    refusal.largest_pid = host_pid != 0 ? host_pid : row.pid;
    memcpy(refusal.largest_command, row.command, sizeof refusal.largest_command);
    refusal.largest_command[sizeof refusal.largest_command - 1] = '\0';
  });
}

void Ledger::note_peak(int device) const {
  auto& peak = file_.map()->devices[device].peak;
  const uint64_t now = held(device);
  uint64_t before = peak.load(kRelaxed);
  while (now > before && now < layout::kDamaged &&
         !peak.compare_exchange_weak(before, now, kRelaxed)) {
  }
}

void Ledger::add_imported(int device, uint64_t units, bool is_unknown) {
  if (is_unknown) own_cell(device).unknown_imports.fetch_add(layout::encode(units));
  own_cell(device).exported_and_imported.fetch_add(pack(0, units));
}

void Ledger::drop_imported(int device, uint64_t units, bool is_unknown) {
  if (is_unknown) own_cell(device).unknown_imports.fetch_sub(layout::encode(units));
  own_cell(device).exported_and_imported.fetch_sub(pack(0, units), kRelaxed);
}

void Ledger::begin_import() {
  file_.map()->slots[slot_].importing.fetch_add(1);
}

void Ledger::end_import() {
  file_.map()->slots[slot_].importing.fetch_sub(1);
}

void Ledger::set_overhead(int device, uint64_t units) {
  own_cell(device).overhead.store(static_cast<uint32_t>(std::min(units, kMaxUnits)), kRelaxed);
}

void Ledger::set_allocations(int device, uint64_t number) {
  const auto now = static_cast<uint32_t>(unix_now_ms() / 1000);
  const auto most = std::min<uint64_t>(number, UINT32_MAX);
  own_cell(device).time_and_allocations.store(uint64_t{now} << 32 | most, kRelaxed);
  const uint64_t held = std::min(held_by_self(device), kMaxUnits);
  const uint64_t overhead = std::min<uint64_t>(held, own_cell(device).overhead.load(kRelaxed));
  publish_below_[device].store(pack(overhead + (held - overhead) / 2, 0), kRelaxed);
}

// A word that the device's cap depends on has a value that no process wrote. There is no second
// record of what living processes hold, so nothing can be granted until they are gone.
bool Ledger::is_damaged(int device) const {
  const layout::Ledger& ledger = *file_.map();
  const uint64_t cap = ledger.devices[device].cap.load(kRelaxed);
  bool sound = cap == layout::kNoCap || layout::is_codeword(cap);
  for_each_live(ledger, [&](uint32_t slot) {
    sound = sound && layout::is_codeword(ledger.cells[device][slot].held_and_lease.load(kRelaxed));
  });
  return !sound;
}

void Ledger::describe_damage(Message& error) const {
  error.format(
      "the ledger {} is damaged: something else wrote into it; no GPU memory is given out until "
      "all processes of the tenant have ended, then it is made anew",
      file_.path());
}

uint64_t Ledger::context_size(int device) const {
  return file_.map()->devices[device].context_size.load(kRelaxed);
}

void Ledger::set_context_size(int device, uint64_t units) {
  file_.map()->devices[device].context_size.store(units, kRelaxed);
}

// Two concurrent calls may lose a sample; then a later sample confirms the size.
bool Ledger::add_context_sample(int device, uint64_t units) {
  auto& samples = file_.map()->devices[device].context_samples;
  const bool known = std::any_of(std::begin(samples), std::end(samples),
                                 [&](const auto& each) { return each.load(kRelaxed) == units; });
  for (size_t i = std::size(samples) - 1; i > 0; --i) {
    samples[i].store(samples[i - 1].load(kRelaxed), kRelaxed);
  }
  samples[0].store(units, kRelaxed);
  return known;
}

}  // namespace fracgpu
