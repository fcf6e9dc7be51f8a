// Charges of processes whose memory a checkpoint keeps on the host; see ledger.h.
//
// The cells stay unchanged, because the process's own calls, some perhaps under way, depend on
// them. Only the sums of other processes change: they subtract `parked`. Counting those units again
// takes memory, so it follows the same rule: first count in, then sum all processes.
#include "shim/ledger/invariants.h"
#include "shim/ledger/lease.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::Cell;
using layout::held_of;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kOrdered = std::memory_order_seq_cst;

}  // namespace

int Ledger::find_process(const ProcessName& name, const GrowLock& lock) const {
  const int slot = lock ? find_process(name) : -1;
  return slot >= 0 && LedgerFile::slot_is_alive(lock.fd(), static_cast<uint32_t>(slot)) ? slot : -1;
}

bool Ledger::fits_cap(int device) const {
  uint64_t claimed = 0;
  layout::for_each_live(*file_.map(), [&](uint32_t slot) {
    claimed += layout::claimed_now(file_.map()->cells[device][slot], kOrdered);
  });
  return claimed <= cap(device);
}

void Ledger::park(const ProcessName& name) {
  const GrowLock lock(file_);
  const int slot = find_process(name, lock);
  if (slot < 0) return;
  layout::Ledger& ledger = *file_.map();
  const LeaseScope scope(ledger, lock, LeaseScope::kEveryDevice);
  ledger.any_parked.store(1, kRelaxed);
  layout::for_each_device(ledger, [&](uint32_t device) {
    Cell& cell = ledger.cells[device][slot];
    revoke(cell);
    cell.parked.store(layout::encode(held_of(cell.held_and_lease.load(kRelaxed))), kOrdered);
  });
}

bool Ledger::unpark(const ProcessName& name, Parked& parked, int& device, Refusal& refusal) {
  layout::Ledger& ledger = *file_.map();
  // Only a process that can ask the driver whether the memory is free grants a dead process's units
  // again.
  if (release_probe_ != nullptr) reap_dead();
  const GrowLock lock(file_);
  if (!lock) {
    refusal.fault = lock.error();
    return false;
  }
  const int slot = find_process(name, lock);
  if (slot < 0) return true;
  const LeaseScope scope(ledger, lock, LeaseScope::kEveryDevice);
  bool all = true;
  layout::for_each_device(ledger, [&](uint32_t each) {
    if (!all) return;
    Cell& cell = ledger.cells[each][slot];
    revoke(cell);
    parked.words[each] = cell.parked.exchange(0, kOrdered);
    if (parked.words[each] == 0 || fits_cap(static_cast<int>(each))) return;
    revoke_unspent(static_cast<int>(each));
    if (fits_cap(static_cast<int>(each))) return;
    all = false;
    device = static_cast<int>(each);
  });
  if (all) return true;
  layout::for_each_device(ledger, [&](uint32_t each) {
    if (parked.words[each] != 0)
      ledger.cells[each][slot].parked.store(parked.words[each], kOrdered);
  });
  explain(device, layout::decode(parked.words[device]), refusal);
  return false;
}

void Ledger::set_parked(const ProcessName& name, const Parked& parked) {
  const GrowLock lock(file_);
  const int slot = find_process(name, lock);
  if (slot < 0) return;
  layout::Ledger& ledger = *file_.map();
  const LeaseScope scope(ledger, lock, LeaseScope::kEveryDevice);
  layout::for_each_device(ledger, [&](uint32_t device) {
    ledger.cells[device][slot].parked.store(parked.words[device], kOrdered);
    if (!fits_cap(static_cast<int>(device))) revoke_unspent(static_cast<int>(device));
  });
}

void Ledger::count_parked(int device) {
  if (own_cell(device).parked.load(kRelaxed) == 0) return;
  const GrowLock lock(file_, lock_timeout());
  note(lock);
  const LeaseScope scope(*file_.map(), lock, device);
  own_cell(device).parked.store(0, kOrdered);
  if (!fits_cap(device)) revoke_unspent(device);
}

}  // namespace fracgpu
