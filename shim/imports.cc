// Looks through all tenants' ledgers for the one that an import is of; see imports.h. The ledgers
// are read and not mapped, since anybody may cut one short.
#include "shim/imports.h"

#include <fcntl.h>
#include <unistd.h>

#include "shim/descriptor_mark.h"
#include "shim/identity.h"
#include "shim/ledger_names.h"

namespace fracgpu {

bool Imports::Wanted::is_of(const layout::Header& header, uint64_t exported) const {
  return handle != 0 ? exported == handle : layout::mark_of(header) == mark;
}

bool Imports::Wanted::is_of(const Ledger& ledger) const {
  const layout::Ledger& map = *ledger.map();
  return is_of(map.header, map.exports[layout::export_place(handle)].load());
}

bool Imports::Wanted::is_of(const char* tenant) const {
  Text<128> path;
  path.format("{}{}", layout::kFilePrefix, tenant);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  layout::Header header;
  uint64_t exported = 0;
  const off_t place =
      offsetof(layout::Ledger, exports) + sizeof exported * layout::export_place(handle);
  const bool is_ledger = pread(fd, &header, sizeof header, 0) == sizeof header &&
                         pread(fd, &exported, sizeof exported, place) == sizeof exported &&
                         header.magic == layout::kMagic && header.version == layout::kVersion;
  close(fd);
  return is_ledger && is_of(header, exported);
}

uint8_t Imports::begin_call(Ledger& own, const Wanted& wanted) {
  const auto begin = [](Ledger& ledger, uint8_t exporter) {
    ledger.begin_import();
    return exporter;
  };
  if (wanted.is_of(own)) return begin(own, kOwn);
  Locked<SpinLock> lock(lock_);
  Guest* unused = nullptr;
  for (Guest& guest : guests_) {
    if (guest.memories == 0) {
      unused = unused != nullptr ? unused : &guest;
    } else if (wanted.is_of(guest.ledger)) {
      ++guest.memories;
      return begin(guest.ledger, number_of(guest));
    }
  }
  TenantName tenant;
  const bool found = find_ledger([&](const char* name) {
    if (!is_tenant_name(name) || !wanted.is_of(name)) return false;
    tenant.assign(name);
    return true;
  });
  Message ignored;
  if (!found || unused == nullptr || !unused->ledger.join_as_guest(tenant.c_str(), own, ignored)) {
    return begin(own, kOwn);
  }
  unused->memories = 1;
  return begin(unused->ledger, number_of(*unused));
}

uint8_t Imports::begin_call(Ledger& own, const void* handle, size_t size) {
  return begin_call(own, {.handle = layout::hash_of_handle(handle, size)});
}

uint8_t Imports::begin_call(Ledger& own, int fd, uint64_t& units) {
  DescriptorMark mark;
  units = 0;
  if (!read_mark(fd, mark)) {
    own.begin_import();
    return kOwn;
  }
  units = mark.units;
  return begin_call(own, {.mark = mark.tenant});
}

// Calls visit(Guest&) with the lock held: another thread may be about to end the visit.
template <typename Visit>
void Imports::at_guest(uint8_t exporter, Visit visit) {
  Locked<SpinLock> lock(lock_);
  Guest& guest = guests_[exporter - kOwn - 1];
  if (guest.memories > 0) visit(guest);
}

// The row of the guest's ledger that is that device, or -1. A tenant's rows never move while it has
// a process, which a guest is.
int Imports::row_at(const Guest& guest, const Ledger& own, int row) {
  return guest.ledger.find_device(own.map()->devices[row].key);
}

void Imports::end_call(Ledger& own, uint8_t exporter) {
  if (exporter == kOwn) return own.end_import();
  at_guest(exporter, [](Guest& guest) { guest.ledger.end_import(); });
}

void Imports::add(Ledger& own, uint8_t exporter, int row, uint64_t units) {
  if (exporter == kOwn) return own.add_imported(row, units);
  at_guest(exporter, [&](Guest& guest) {
    const int there = row_at(guest, own, row);
    if (there >= 0) guest.ledger.add_imported(there, units);
  });
}

void Imports::leave(Ledger& own, uint8_t exporter, int row, uint64_t units) {
  if (exporter == kOwn) {
    if (units > 0) own.drop_imported(row, units);
    return;
  }
  at_guest(exporter, [&](Guest& guest) {
    const int there = units > 0 ? row_at(guest, own, row) : -1;
    if (there >= 0) guest.ledger.drop_imported(there, units);
    if (--guest.memories == 0) guest.ledger.leave();
  });
}

}  // namespace fracgpu
