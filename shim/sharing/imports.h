// Memory that this process has imported, and its exporters.
//
// Memory that outlives its exporter stays charged to the exporter's tenant while any process has it
// imported. The ledger of the own tenant has that number. For another tenant this process is a
// foreign importer in that tenant's ledger, with nothing held, while it has any of that tenant's
// memory imported. Memory whose exporter is not found counts as the own tenant's. A ledger knows
// exactly which of its listed exports this process has, and of others how much.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/base/hash_table.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"
#include "shim/ledger/ledger.h"
#include "shim/sharing/descriptor_mark.h"
#include "shim/sharing/import_source.h"

namespace fracgpu {

// Any thread may call any function; those for other tenants take the lock of this object. `own` is
// the process's own ledger, which it has joined. Amounts are units.
class Imports {
 public:
  // An exporter's number. 0: none. kOwn: another process of the own tenant. From 2 on: other
  // tenants. kSelf: this process. kUnknown: not found, so it counts as kOwn and as kSelf.
  static constexpr uint8_t kOwn = 1, kUnknown = 254, kSelf = 255;
  // The most other tenants of which a process can be a foreign importer at once. Memory of further
  // tenants counts as the own tenant's, so that no cap is exceeded. A place takes 360 bytes.
  static constexpr uint8_t kMaxForeignTenants = 16;

  // Finds the source of a handle's memory. Its ledger then counts a call that may import it, until
  // `end_call`. `units`: the memory's, or 0 if not known.
  ImportSource begin_call(Ledger& own, const void* handle, size_t size, uint64_t& units);
  // The same for a descriptor, or its mark. `place`: of the object, if the descriptor stands for
  // many.
  ImportSource begin_call(Ledger& own, int fd, uint64_t& units);
  ImportSource begin_call(Ledger& own, const DescriptorMark& mark, uint64_t& units,
                          uint32_t place = 0);
  // `keeps`: the call has imported memory from there, and `leave` will follow.
  void end_call(Ledger& own, ImportSource source, bool keeps);

  // The call has imported memory of a listed export.
  void keep(Ledger& own, ImportSource source);
  // The call has imported memory of which this process uses more, on a device index of the own
  // ledger.
  void add(Ledger& own, ImportSource source, int device_index, uint64_t units);
  // The memory, `units` of which were added, is no longer used. `device_index` is only needed if
  // any were.
  void leave(Ledger& own, ImportSource source, int device_index, uint64_t units);

  // Whether the process that has joined `own` made the mark.
  static bool is_of_self(const Ledger& own, const DescriptorMark& mark) {
    return mark.tenant == layout::mark_of(own.map()->header) && mark.exporter == own.mark_of_self();
  }

  // This process gave out a handle with this hash.
  void note_own_handle(uint64_t hash) {
    layout::enter_handle(own_handles_, hash, 0, [](uint32_t) { return true; });
  }

  // Units that are imported from other processes.
  uint64_t imported(int device_index) const {
    return imported_[device_index].load(std::memory_order_relaxed);
  }
  // Whether any memory of another tenant is imported.
  bool any_foreign() const { return foreign_memories_.load(std::memory_order_relaxed) != 0; }
  // The most units that are imported from this process itself, including calls under way.
  uint64_t imported_of_self(int device_index) const {
    // Read first: a call that is no longer under way is already in the sum.
    const bool under_way = calls_of_self_.load() != 0;
    return under_way ? layout::kMaxUnits : imported_of_self_[device_index].load();
  }

 private:
  struct ForeignTenant {
    Ledger ledger;
    uint32_t memories = 0;  // 0: unused
  };

  // What identifies an exporter's ledger: a handle that it gave out, otherwise a descriptor's mark.
  struct Wanted {
    uint64_t handle = 0;
    DescriptorMark mark{};
    uint64_t object = 0;  // the hash of one of the descriptor's many objects

    bool is_of(const Ledger& ledger) const;
    bool is_of(const char* tenant) const;  // one that is not mapped
    uint32_t number_in(const Ledger& ledger) const;
  };

  static bool may_be_self(uint8_t exporter) { return exporter >= kUnknown; }
  static bool is_of_own_tenant(uint8_t exporter) {
    return exporter == kOwn || may_be_self(exporter);
  }
  ImportSource begin_own_call(Ledger& own, uint8_t exporter);
  ImportSource begin_call(Ledger& own, const Wanted& wanted, uint64_t& units);
  uint8_t number_of(const ForeignTenant& other) const {
    return static_cast<uint8_t>(kOwn + 1 + (&other - foreign_tenants_));
  }
  template <typename Visit>
  void at_foreign_tenant(uint8_t exporter, Visit visit);
  template <typename Visit>
  void at_ledger(Ledger& own, uint8_t exporter, Visit visit);
  void forget_one(ForeignTenant& other);
  static uint64_t key_of(ImportSource source) {
    return uint64_t{source.exporter} << 16 | source.number;
  }
  static int device_index_at(const ForeignTenant& other, const Ledger& own, int device_index);

  std::atomic<uint64_t> imported_[layout::kMaxDevices] = {};
  std::atomic<uint64_t> imported_of_self_[layout::kMaxDevices] = {};
  std::atomic<uint32_t> calls_of_self_{0};
  // Hashes of handles, placed as in layout::Ledger::handles.
  layout::Handles own_handles_ = {};
  // How often this process has imported each listed export.
  struct Count {
    uint64_t key;
    uint64_t imports;
  };
  SpinLock counts_lock_;
  HashTable<Count, 8> counts_;
  bool keeps_all_ = false;  // the host had no memory for a count: every export stays imported
  SleepLock lock_;          // held while a ledger is joined
  ForeignTenant foreign_tenants_[kMaxForeignTenants];
  std::atomic<uint32_t> foreign_memories_{0};  // of all of them, written with `lock_` held
};

}  // namespace fracgpu
