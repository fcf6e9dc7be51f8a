// Physical memory that several processes hold. Whoever holds an object has a read lock on its byte
// of the node's file: a process by a mapping that children do not inherit, an exported descriptor
// by itself, wherever it is passed or inherited. So the kernel counts the holders, and the memory
// is gone when the last of them is, in whatever order and however they end. An exported descriptor
// names its object by its file offset.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "sim/node/account.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

// Lives as long as this process, or until it is unmapped, and takes the descriptor's locks along.
void* keep(const NodeDescriptor& file) {
  void* keeper = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (keeper == MAP_FAILED) return nullptr;
  madvise(keeper, 4096, MADV_DONTFORK);
  return keeper;
}

}  // namespace

void Account::let_go(const Physical& shared) {
  // While this process still holds it, a peak that counts it is one of the living.
  const ObjectRow& row = row_of(shared);
  if (row.device >= 0) node_->confirm_mark(static_cast<int>(row.tenant), row.device, row_index_);
  if (row.creator == row_->serial) {
    node_->file_->object[shared.object].creator_holds.fetch_sub(1);
    if (shared.is_own_import && row.device >= 0)
      row_->device[row.device].imported_own.fetch_sub(row.bytes);
  } else if (row.device >= 0) {
    row_->device[row.device].imported.fetch_sub(row.bytes);
    for (auto& importer : node_->file_->object[shared.object].importers) {
      uint64_t self = row_->serial;
      if (importer.compare_exchange_strong(self, 0)) break;
    }
  }
  munmap(shared.keeper, 4096);
  node_->reap(-1, row_index_);
}

bool Account::share(Physical* memory, ObjectKind kind, const uint32_t location[2]) {
  if (memory->object >= 0) return true;
  for (int i = 0; i < kMaxObjects; ++i) {
    ObjectRow& row = node_->file_->object[i];
    if (row.state.load(std::memory_order_relaxed) != static_cast<uint32_t>(ObjectState::kFree))
      continue;
    NodeDescriptor file(node_->path());
    if (file.fd() < 0) return false;
    // Exclusively until the row is claimed: with a shared lock, a process that loses the race for
    // the row would count as a holder of the object until it runs again.
    if (!file.lock(kObjectLockBase + i, false)) continue;
    void* keeper = keep(file);
    if (keeper == nullptr) return false;
    begin();
    node_->file_->header.objects.fetch_add(1);
    uint32_t expected = static_cast<uint32_t>(ObjectState::kFree);
    if (!row.state.compare_exchange_strong(expected,
                                           static_cast<uint32_t>(ObjectState::kClaimed))) {
      node_->file_->header.objects.fetch_sub(1);
      end();
      munmap(keeper, 4096);
      continue;
    }
    file.lock(kObjectLockBase + i, false, true);
    row.kind = static_cast<uint32_t>(kind);
    row.tenant = static_cast<uint32_t>(tenant_index_);
    row.device = memory->device;
    std::copy_n(location, 2, row.location);
    row.creator_row = static_cast<uint32_t>(row_index_);
    row.creator = row_->serial;
    row.creator_holds.store(1);
    for (auto& importer : row.importers) importer.store(0);
    row.serial = node_->file_->header.serial.fetch_add(1) + 1;
    row.bytes = memory->bytes;
    // The object before the row: a kill in between leaves the bytes in both, never in neither.
    row.state.store(static_cast<uint32_t>(ObjectState::kLive), std::memory_order_release);
    if (memory->device >= 0) {
      Counter& counter = row_->device[memory->device].allocation_bytes;
      counter.store(counter.load(std::memory_order_relaxed) - memory->bytes,
                    std::memory_order_relaxed);
    }
    end();
    memory->object = i;
    memory->serial = row.serial;
    memory->keeper = keeper;
    return true;
  }
  return false;
}

int Account::descriptor(const Physical& memory) {
  NodeDescriptor file(node_->path());
  const int64_t place = kObjectLockBase + memory.object;
  if (memory.object < 0 || file.fd() < 0 || !file.lock(place, true, true) ||
      lseek(file.fd(), place, SEEK_SET) != place)
    return -1;
  return file.leave();
}

bool Account::import(int fd, ObjectKind kind, Physical* out) {
  struct stat given {
  }, own{};
  if (fstat(fd, &given) != 0 || stat(node_->path().c_str(), &own) != 0 ||
      given.st_dev != own.st_dev || given.st_ino != own.st_ino)
    return false;
  const int64_t place = lseek(fd, 0, SEEK_CUR);
  if (place < kObjectLockBase || place >= kObjectLockBase + kMaxObjects) return false;
  const auto object = static_cast<int>(place - kObjectLockBase);
  const ObjectRow& row = node_->file_->object[object];
  return row.kind == static_cast<uint32_t>(kind) && import(object, row.serial, out);
}

bool Account::import(int object, uint64_t serial, Physical* out) {
  if (object < 0 || object >= kMaxObjects) return false;
  NodeDescriptor file(node_->path());
  if (file.fd() < 0 || !file.lock(kObjectLockBase + object, true, true)) return false;
  ObjectRow& row = node_->file_->object[object];
  if (!live(row) || row.serial != serial) return false;
  void* keeper = keep(file);
  if (keeper == nullptr) return false;
  *out = {.device = row.device,
          .object = object,
          .bytes = row.bytes,
          .serial = serial,
          .keeper = keeper};
  if (row.creator == row_->serial) {
    row.creator_holds.fetch_add(1);
    out->is_own_import = true;
    if (row.device >= 0) row_->device[row.device].imported_own.fetch_add(row.bytes);
  } else if (row.device >= 0) {
    row_->device[row.device].imported.fetch_add(row.bytes);
    node_->add_importer(row, row_->serial);
  }
  return true;
}

}  // namespace sim
