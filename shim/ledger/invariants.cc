// The ledger's invariants; see Ledger::check_invariants and invariants.h.
#include "shim/ledger/invariants.h"

#include <string.h>

#include "shim/base/invariants.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

using layout::for_each_live;
using layout::held_of;
using layout::is_codeword;
using layout::kMaxDevices;
using layout::kMaxSlots;
using layout::lease_of;

constexpr auto kRelaxed = std::memory_order_relaxed;

constexpr std::string_view kLeasesFit = "the leases of a device fit its cap";

enum class Leases { fit, exceed, damaged };

// The held units may exceed the cap: after an overdraft, after the cap was lowered, or briefly
// while a process counts itself in before it looks. Leases never exceed it in any of these cases.
// The caller holds the lock, otherwise leases could move between cells while they are read.
Leases leases_on(const layout::Ledger& ledger, uint32_t device) {
  if (!layout::is_used(ledger.devices[device])) return Leases::fit;
  const uint64_t cap = ledger.devices[device].cap.load(kRelaxed);
  bool damaged = cap != layout::kNoCap && !is_codeword(cap);
  uint64_t leases = 0;
  for_each_live(ledger, [&](uint32_t slot) {
    const layout::Cell& cell = ledger.cells[device][slot];
    const uint64_t word = cell.held_and_lease.load(kRelaxed);
    damaged = damaged || !is_codeword(word);
    leases += layout::less_parked(lease_of(word), cell, kRelaxed);
  });
  if (damaged) return Leases::damaged;
  return leases <= layout::cap_units(cap) ? Leases::fit : Leases::exceed;
}

std::string_view broken_row(const layout::Ledger& ledger, uint32_t device) {
  const layout::Device& row = ledger.devices[device];
  if (!layout::is_used(row)) return {};
  if (device > 0 && !layout::is_used(ledger.devices[device - 1])) {
    return "devices are appended without a gap";
  }
  if (row.key_check != layout::check_of(row.key)) return "every device's key has its check";
  for (uint32_t other = 0; other < device; ++other) {
    if (memcmp(ledger.devices[other].key, row.key, sizeof row.key) == 0) {
      return "no device is there twice";
    }
  }
  return {};
}

bool is_claimed(const layout::Ledger& ledger, uint32_t slot) {
  const uint64_t word = layout::claimed_slots(ledger, slot / 64, std::memory_order_seq_cst);
  return (word >> (slot % 64) & 1) != 0;
}

// `Ledger::held` sums slots without checking which are claimed.
std::string_view broken_slot(const layout::Ledger& ledger, uint32_t slot) {
  const bool claimed = is_claimed(ledger, slot);
  for (const auto& word : ledger.slots[slot].imports) {
    if (claimed && !is_codeword(word.load(kRelaxed)))
      return "what a claimed slot shares is a codeword";
  }
  const bool used = claimed && slot < layout::slots_used(ledger);
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    if (!layout::is_used(ledger.devices[device])) continue;
    const layout::Cell& cell = ledger.cells[device][slot];
    if (claimed && !is_codeword(cell.exported_and_imported.load(kRelaxed))) {
      return "what a claimed slot shares is a codeword";
    }
    if (!used && cell.held_and_lease.load(kRelaxed) != 0) {
      return claimed ? "a slot behind those used holds nothing"
                     : "a slot that nobody has claimed holds nothing";
    }
  }
  return {};
}

}  // namespace

std::string_view Ledger::check_invariants() const {
  const layout::Ledger& ledger = *file_.map();
  const GrowLock lock(file_);
  if (!lock) return "the lock can be had";
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    if (const auto broken = broken_row(ledger, device); !broken.empty()) return broken;
    switch (leases_on(ledger, device)) {
      case Leases::fit:
        break;
      case Leases::exceed:
        return kLeasesFit;
      case Leases::damaged:
        return "a device's cap and the cells of claimed slots are codewords";
    }
  }
  const uint64_t backed = layout::decode(ledger.slots_backed.load(kRelaxed));
  if (backed > kMaxSlots) return "the number of slots that have memory is a codeword";
  for (uint32_t slot = 0; slot < kMaxSlots; ++slot) {
    if (slot >= backed && is_claimed(ledger, slot)) return "every claimed slot has memory";
    if (slot >= backed) continue;
    if (const auto broken = broken_slot(ledger, slot); !broken.empty()) return broken;
  }
  for (const layout::Export& row : ledger.exports) {
    if (!layout::is_sound(row)) return "a listed export is a codeword";
  }
  return {};
}

std::string_view Ledger::check_own_cells() const {
  for (uint32_t device = 0; device < kMaxDevices; ++device) {
    if (!layout::is_used(file_.map()->devices[device])) continue;
    const layout::Cell& cell = own_cell(static_cast<int>(device));
    const uint64_t held = held_of(cell.held_and_lease.load(kRelaxed));
    const uint64_t exported =
        layout::exported_of(cell.exported_and_imported.load(kRelaxed)) +
        sum_listed(static_cast<int>(device), mark_of_self(), layout::exported_of);
    if (cell.overhead.load(kRelaxed) > held) return "the overhead is part of what is held";
    if (exported > held) return "what is exported is part of what is held";
    if (cell.peak.load(kRelaxed) < held) return "no less than is held was held at the peak";
  }
  return {};
}

#ifndef NDEBUG

LeaseScope::LeaseScope(const layout::Ledger& ledger, const GrowLock& lock, int device)
    : ledger_(ledger),
      first_(device < 0 ? 0 : static_cast<uint32_t>(device)),
      end_(device < 0 ? kMaxDevices : first_ + 1),
      asserts_(static_cast<bool>(lock)) {
  for (uint32_t i = first_; i < end_; ++i) {
    asserts_ = asserts_ && leases_on(ledger_, i) == Leases::fit;
  }
}

LeaseScope::~LeaseScope() {
  if (!asserts_) return;
  for (uint32_t i = first_; i < end_; ++i) {
    if (leases_on(ledger_, i) == Leases::exceed) require_invariant(kLeasesFit);
  }
}

#endif

}  // namespace fracgpu
