// Looks through all tenants' ledgers for the one that an import is of; see imports.h. The ledgers
// are read and not mapped, since anybody may cut one short.
#include "shim/imports.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/descriptor_mark.h"
#include "shim/identity.h"

namespace fracgpu {
namespace {

constexpr std::string_view kPrefix = layout::kFilePrefix;
constexpr size_t kFolderSize = kPrefix.rfind('/');

// Calls visit(tenant) for each ledger's name, until it returns true. Without opendir, which
// allocates.
template <typename Visit>
bool find_tenant(Visit visit) {
  constexpr std::string_view kStart = kPrefix.substr(kFolderSize + 1);
  const Text<32> folder(kPrefix.substr(0, kFolderSize));
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  alignas(dirent64) char entries[4096];
  bool found = false;
  for (long size = 0;
       !found && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
    for (long at = 0; !found && at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      found = name.substr(0, kStart.size()) == kStart &&
              is_tenant_name(name.substr(kStart.size())) && visit(entry->d_name + kStart.size());
    }
  }
  close(fd);
  return found;
}

}  // namespace

bool Imports::Wanted::is_of(const layout::Header& header, uint64_t exported) const {
  return handle != 0 ? exported == handle : layout::mark_of(header) == mark;
}

bool Imports::Wanted::is_of(const Ledger& ledger) const {
  const layout::Ledger& map = *ledger.map();
  return is_of(map.header, map.exports[layout::export_place(handle)].load());
}

bool Imports::Wanted::is_of(const char* tenant) const {
  Text<128> path;
  path.format("{}{}", kPrefix, tenant);
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
  const bool found = find_tenant([&](const char* name) {
    tenant.assign(name);
    return wanted.is_of(name);
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

// Calls change(Ledger&, row there) with the lock held: another thread may be about to end the
// visit. A tenant's rows never move while it has a process, which a guest is. `row` is of the own
// ledger, or -1 where none is meant.
template <typename Change>
void Imports::change(uint8_t exporter, const Ledger& own, int row, Change change) {
  Locked<SpinLock> lock(lock_);
  Guest& guest = guests_[exporter - kOwn - 1];
  if (guest.memories == 0) return;
  const int there = row < 0 ? -1 : guest.ledger.find_device(own.map()->devices[row].key);
  change(guest, there);
}

void Imports::end_call(Ledger& own, uint8_t exporter) {
  if (exporter == kOwn) return own.end_import();
  change(exporter, own, -1, [](Guest& guest, int) { guest.ledger.end_import(); });
}

void Imports::add(Ledger& own, uint8_t exporter, int row, uint64_t units) {
  if (exporter == kOwn) return own.add_imported(row, units);
  change(exporter, own, row, [&](Guest& guest, int there) {
    if (there >= 0) guest.ledger.add_imported(there, units);
  });
}

void Imports::leave(Ledger& own, uint8_t exporter, int row, uint64_t units) {
  if (exporter == kOwn) {
    if (units > 0) own.drop_imported(row, units);
    return;
  }
  change(exporter, own, row, [&](Guest& guest, int there) {
    if (there >= 0) guest.ledger.drop_imported(there, units);
    if (--guest.memories == 0) guest.ledger.leave();
  });
}

}  // namespace fracgpu
