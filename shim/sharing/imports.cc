// Searches all tenants' ledgers for the exporter's; see imports.h. Ledgers are read and not mapped,
// since any process may truncate one.
#include "shim/sharing/imports.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/descriptor.h"
#include "shim/config/identity.h"
#include "shim/ledger/ledger_path.h"
#include "shim/sharing/descriptor_mark.h"

namespace fracgpu {

bool Imports::Wanted::is_of(const Ledger& ledger) const {
  const layout::Ledger& map = *ledger.map();
  return handle != 0 ? layout::has_export(map.exports, handle)
                     : layout::mark_of(map.header) == mark;
}

bool Imports::Wanted::is_of(const char* tenant) const {
  Text<128> path;
  path.format("{}{}", layout::kFilePrefix, tenant);
  const int fd = open_own(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  layout::Header header;
  uint64_t set[layout::kExportsPerSet] = {};
  const off_t place =
      offsetof(layout::Ledger, exports) + sizeof set[0] * layout::export_set(handle);
  const bool is_ledger = read_own_at(fd, &header, sizeof header, 0) == sizeof header &&
                         read_own_at(fd, set, sizeof set, place) == sizeof set &&
                         header.magic == layout::kMagic && header.version == layout::kVersion;
  close_own(fd);
  if (!is_ledger) return false;
  return handle != 0 ? std::ranges::find(set, handle) != std::end(set)
                     : layout::mark_of(header) == mark;
}

uint8_t Imports::begin_call(Ledger& own, const Wanted& wanted) {
  const auto begin = [](ForeignTenant& other, uint8_t exporter) {
    other.ledger.begin_import();
    return exporter;
  };
  if (wanted.is_of(own)) return begin_own_call(own, kOwn);
  Locked<SleepLock> lock(lock_);
  ForeignTenant* unused = nullptr;
  for (ForeignTenant& other : foreign_tenants_) {
    if (other.memories == 0) {
      unused = unused != nullptr ? unused : &other;
    } else if (wanted.is_of(other.ledger)) {
      ++other.memories;
      return begin(other, number_of(other));
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
  return begin(*unused, number_of(*unused));
}

uint8_t Imports::begin_own_call(Ledger& own, uint8_t exporter) {
  own.begin_import();
  if (may_be_self(exporter)) calls_of_self_.fetch_add(1);
  return exporter;
}

uint8_t Imports::begin_call(Ledger& own, const void* handle, size_t size) {
  const uint64_t hash = layout::hash_of_handle(handle, size);
  if (layout::has_export(own_handles_, hash)) return begin_own_call(own, kSelf);
  return begin_call(own, {.handle = hash});
}

uint8_t Imports::begin_call(Ledger& own, int fd, uint64_t& units) {
  DescriptorMark mark;
  units = 0;
  if (!read_mark(fd, mark)) {
    return begin_own_call(own, kUnknown);
  }
  units = mark.units;
  if (mark.tenant == layout::mark_of(own.map()->header) && mark.exporter == own.mark_of_self())
    return begin_own_call(own, kSelf);
  return begin_call(own, {.mark = mark.tenant});
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

void Imports::end_call(Ledger& own, uint8_t exporter) {
  if (may_be_self(exporter)) calls_of_self_.fetch_sub(1);
  if (is_of_own_tenant(exporter)) return own.end_import();
  at_foreign_tenant(exporter, [](ForeignTenant& other) { other.ledger.end_import(); });
}

void Imports::add(Ledger& own, uint8_t exporter, int device_index, uint64_t units) {
  if (device_index >= 0) {
    if (exporter != kSelf) imported_[device_index].fetch_add(units);
    if (may_be_self(exporter)) imported_of_self_[device_index].fetch_add(units);
  }
  if (is_of_own_tenant(exporter)) return own.add_imported(device_index, units);
  at_foreign_tenant(exporter, [&](ForeignTenant& other) {
    const int there = device_index_at(other, own, device_index);
    if (there >= 0) other.ledger.add_imported(there, units);
  });
}

void Imports::leave(Ledger& own, uint8_t exporter, int device_index, uint64_t units) {
  if (units > 0 && device_index >= 0) {
    if (exporter != kSelf) imported_[device_index].fetch_sub(units);
    if (may_be_self(exporter)) imported_of_self_[device_index].fetch_sub(units);
  }
  if (is_of_own_tenant(exporter)) {
    if (units > 0) own.drop_imported(device_index, units);
    return;
  }
  at_foreign_tenant(exporter, [&](ForeignTenant& other) {
    const int there = units > 0 ? device_index_at(other, own, device_index) : -1;
    if (there >= 0) other.ledger.drop_imported(there, units);
    if (--other.memories == 0) other.ledger.leave();
  });
}

}  // namespace fracgpu
