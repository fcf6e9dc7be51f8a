// Searches all tenants' ledgers for the exporter's; see imports.h. Ledgers are read and not mapped,
// since any process may truncate one.
#include "shim/sharing/imports.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/descriptor.h"
#include "shim/config/identity.h"
#include "shim/ledger/ledger_path.h"

namespace fracgpu {

bool Imports::Wanted::is_of(const Ledger& ledger) const {
  const layout::Ledger& map = *ledger.map();
  return handle != 0 ? layout::find_handle(map.handles, handle).has_value()
                     : layout::mark_of(map.header) == mark.tenant;
}

bool Imports::Wanted::is_of(const char* tenant) const {
  Text<128> path;
  path.format("{}{}", layout::kFilePrefix, tenant);
  const int fd = open_own(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  layout::Header header;
  uint64_t set[layout::kHandlesPerSet] = {};
  const off_t place =
      offsetof(layout::Ledger, handles) + sizeof set[0] * layout::handle_set(handle);
  const bool is_ledger = read_own_at(fd, &header, sizeof header, 0) == sizeof header &&
                         read_own_at(fd, set, sizeof set, place) == sizeof set &&
                         header.magic == layout::kMagic && header.version == layout::kVersion;
  close_own(fd);
  if (!is_ledger) return false;
  return handle != 0 ? std::ranges::any_of(
                           set, [&](uint64_t word) { return layout::is_handle(word, handle); })
                     : layout::mark_of(header) == mark.tenant;
}

uint32_t Imports::Wanted::number_in(const Ledger& ledger) const {
  if (handle != 0 || object != 0) return ledger.find_export(handle | object);
  return ledger.find_export(mark.number, mark.exporter);
}

ImportSource Imports::begin_call(Ledger& own, const Wanted& wanted, uint64_t& units) {
  // A ledger counts the call before the export is looked up, so that the export does not end
  // unnoticed meanwhile.
  const auto begin = [&](Ledger& ledger, uint8_t exporter) {
    ledger.begin_import();
    const uint32_t number = wanted.number_in(ledger);
    if (number != 0) units = ledger.units_of_export(number);
    return ImportSource{.exporter = exporter, .number = static_cast<uint16_t>(number)};
  };
  if (wanted.is_of(own)) return begin(own, kOwn);
  Locked<SleepLock> lock(lock_);
  ForeignTenant* unused = nullptr;
  for (ForeignTenant& other : foreign_tenants_) {
    if (other.memories == 0) {
      unused = unused != nullptr ? unused : &other;
    } else if (wanted.is_of(other.ledger)) {
      ++other.memories;
      ++foreign_memories_;
      return begin(other.ledger, number_of(other));
    }
  }
  TenantName tenant;
  const bool found = find_ledger([&](const char* name) {
    if (!is_tenant_name(name) || !wanted.is_of(name)) return false;
    tenant.assign(name);
    return true;
  });
  Message ignored;
  if (!found || unused == nullptr ||
      !unused->ledger.join_as_foreign_importer(tenant.c_str(), own, ignored)) {
    return begin_own_call(own, kUnknown);
  }
  unused->memories = 1;
  ++foreign_memories_;
  return begin(unused->ledger, number_of(*unused));
}

ImportSource Imports::begin_own_call(Ledger& own, uint8_t exporter) {
  own.begin_import();
  if (may_be_self(exporter)) calls_of_self_.fetch_add(1);
  return {.exporter = exporter};
}

ImportSource Imports::begin_call(Ledger& own, const void* handle, size_t size, uint64_t& units) {
  const uint64_t hash = layout::hash_of_handle(handle, size);
  units = 0;
  if (layout::find_handle(own_handles_, hash)) return begin_own_call(own, kSelf);
  return begin_call(own, {.handle = hash}, units);
}

ImportSource Imports::begin_call(Ledger& own, int fd, uint64_t& units) {
  DescriptorMark mark;
  units = 0;
  return read_mark(fd, mark) ? begin_call(own, mark, units) : begin_own_call(own, kUnknown);
}

ImportSource Imports::begin_call(Ledger& own, const DescriptorMark& mark, uint64_t& units,
                                 uint32_t place) {
  units = mark.units;
  if (is_of_self(own, mark)) return begin_own_call(own, kSelf);
  const uint64_t object = mark.objects != 0 ? hash_of_object(mark, place) : 0;
  return begin_call(own, {.mark = mark, .object = object}, units);
}

// With the lock held: one memory less comes from that tenant.
void Imports::forget_one(ForeignTenant& other) {
  --foreign_memories_;
  if (--other.memories == 0) other.ledger.leave();
}

// Calls visit(ForeignTenant&) with the lock held: another thread may be about to leave that ledger.
template <typename Visit>
void Imports::at_foreign_tenant(uint8_t exporter, Visit visit) {
  Locked<SleepLock> lock(lock_);
  ForeignTenant& other = foreign_tenants_[exporter - kOwn - 1];
  if (other.memories > 0) visit(other);
}

// The index of the device in the other tenant's ledger, or -1. A tenant's device indices never move
// while it has a process, and a foreign importer is one.
int Imports::device_index_at(const ForeignTenant& other, const Ledger& own, int device_index) {
  return other.ledger.find_device(own.map()->devices[device_index].key);
}

// Calls visit(Ledger&) for the exporter's ledger.
template <typename Visit>
void Imports::at_ledger(Ledger& own, uint8_t exporter, Visit visit) {
  if (is_of_own_tenant(exporter)) return visit(own);
  at_foreign_tenant(exporter, [&](ForeignTenant& other) { visit(other.ledger); });
}

void Imports::end_call(Ledger& own, ImportSource source, bool keeps) {
  if (may_be_self(source.exporter)) calls_of_self_.fetch_sub(1);
  if (is_of_own_tenant(source.exporter)) return own.end_import();
  at_foreign_tenant(source.exporter, [&](ForeignTenant& other) {
    other.ledger.end_import();
    if (!keeps) forget_one(other);
  });
}

void Imports::keep(Ledger& own, ImportSource source) {
  if (source.number == 0) return;
  at_ledger(own, source.exporter, [&](Ledger& ledger) {
    const Locked<SpinLock> lock(counts_lock_);
    Count* const count = counts_.insert(key_of(source));
    if (count != nullptr) ++count->imports;
    keeps_all_ = keeps_all_ || count == nullptr;
    ledger.add_import(source.number);
  });
}

void Imports::add(Ledger& own, ImportSource source, int device_index, uint64_t units) {
  if (device_index >= 0) {
    if (source.exporter != kSelf) imported_[device_index].fetch_add(units);
    if (may_be_self(source.exporter)) imported_of_self_[device_index].fetch_add(units);
  }
  if (source.number != 0) return;
  if (is_of_own_tenant(source.exporter))
    return own.add_imported(device_index, units, source.exporter == kUnknown);
  at_foreign_tenant(source.exporter, [&](ForeignTenant& other) {
    const int there = device_index_at(other, own, device_index);
    if (there >= 0) other.ledger.add_imported(there, units);
  });
}

void Imports::leave(Ledger& own, ImportSource source, int device_index, uint64_t units) {
  if (units > 0 && device_index >= 0) {
    if (source.exporter != kSelf) imported_[device_index].fetch_sub(units);
    if (may_be_self(source.exporter)) imported_of_self_[device_index].fetch_sub(units);
  }
  if (source.number != 0) {
    at_ledger(own, source.exporter, [&](Ledger& ledger) {
      const Locked<SpinLock> lock(counts_lock_);
      Count* const count = counts_.find(key_of(source));
      if (count == nullptr || --count->imports > 0) return;
      counts_.erase(count);
      if (!keeps_all_) ledger.drop_import(source.number);
    });
    units = 0;
  }
  if (is_of_own_tenant(source.exporter)) {
    if (units > 0) own.drop_imported(device_index, units, source.exporter == kUnknown);
    return;
  }
  at_foreign_tenant(source.exporter, [&](ForeignTenant& other) {
    const int there = units > 0 ? device_index_at(other, own, device_index) : -1;
    if (there >= 0) other.ledger.drop_imported(there, units);
    forget_one(other);
  });
}

}  // namespace fracgpu
