// What AMD's two tool libraries (libamd_smi, librocm_smi64) have in common in telling a tenant of
// its devices: which are capped, and lists of processes with nobody else's in them.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hooks/kfd/truth.h"
#include "shim/identity.h"
#include "shim/observation.h"

namespace fracgpu::kfd {

// The tenant's view of a device; false when it is not capped. `physical` is the library's own
// figure, used where the kernel tells none, so that a share of the device is the same share for
// all.
bool view(const Observation& look, const Key& key, uint64_t physical, TenantView& view);

// Whether any device of the machine is capped for the tenant.
bool any_capped(const Observation& look);

// What a process of the tenant holds on all devices together: as the ledger says where the device
// is capped, and as the kernel does elsewhere.
uint64_t held_everywhere(const Observation& look, int slot, uint32_t pid);

// A process in the lists that KFD makes of all devices together; the same in both libraries and in
// all their versions.
struct ComputeProcess {
  uint32_t process_id;
  uint32_t unused;
  uint64_t vram_usage;  // bytes
  uint64_t sdma_usage;
  uint32_t cu_occupancy;
  uint32_t unused_too;
};
static_assert(sizeof(ComputeProcess) == 32 && offsetof(ComputeProcess, vram_usage) == 8);

// A library's whole list, read into memory of our own: the caller's array may have room for the
// tenant's processes and not for everybody's.
class Entries {
 public:
  explicit Entries(size_t entry_bytes) : entry_bytes_(entry_bytes) {}
  ~Entries() { unmap(); }
  Entries(const Entries&) = delete;
  Entries& operator=(const Entries&) = delete;

  // Calls read(entries, &count), with more room each time that the answer is `too_small`, and
  // returns the last answer.
  template <typename Read>
  int read_all(int too_small, const Read& read) {
    int result = too_small;
    for (uint32_t capacity = 64; result == too_small && capacity <= 1 << 16; capacity *= 8) {
      unmap();
      bytes_ = capacity * entry_bytes_;
      void* memory =
          mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) break;
      first_ = static_cast<unsigned char*>(memory);
      count_ = capacity;
      result = read(memory, &count_);
      if (count_ > capacity) result = too_small;
    }
    if (result == too_small) count_ = 0;
    return result;
  }

  // Leaves only the entries for which keep(entry) is true, in their order; it may edit them.
  template <typename Keep>
  void keep_if(const Keep& keep) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      unsigned char* const entry = first_ + i * entry_bytes_;
      if (!keep(entry)) continue;
      if (kept != i) memcpy(first_ + kept * entry_bytes_, entry, entry_bytes_);
      ++kept;
    }
    count_ = kept;
  }

  uint32_t count() const { return count_; }
  void copy_to(void* to, uint32_t capacity) const {
    if (count_ > 0) memcpy(to, first_, std::min(count_, capacity) * entry_bytes_);
  }

 private:
  void unmap() {
    if (first_ != nullptr) munmap(first_, bytes_);
    first_ = nullptr;
  }

  size_t entry_bytes_;
  size_t bytes_ = 0;
  unsigned char* first_ = nullptr;
  uint32_t count_ = 0;
};

// Makes an entry the tenant's view of the process; false for a process that is not the tenant's.
bool show(const Observation& look, ComputeProcess& process);

// The list of all compute processes, as both libraries give it: without an array the count alone,
// and too small an array filled and answered with `too_small`, the count left as it was. `real`
// stands for the library's own function.
template <typename Real>
int list_compute_processes(const Observation& look, int too_small, void* list, uint32_t* count,
                           const Real& real) {
  Entries entries(sizeof(ComputeProcess));
  const int result = entries.read_all(too_small, real);
  if (result != 0) return result;
  entries.keep_if(
      [&](unsigned char* entry) { return show(look, *reinterpret_cast<ComputeProcess*>(entry)); });
  const uint32_t capacity = *count;
  if (list != nullptr) {
    entries.copy_to(list, capacity);
    if (capacity < entries.count()) return too_small;
  }
  *count = entries.count();
  return result;
}

// What a library tells of one process: nothing where it is not the tenant's, of which `not_found`
// is the library's word. `edit(look, slot)` sets what `real` has told.
template <typename Real, typename Edit>
int tell_of_process(bool active, uint32_t pid, int not_found, const Real& real, const Edit& edit) {
  Process* process = active ? Process::self() : nullptr;
  if (process == nullptr) return real();
  const Observation look(*process);
  if (!any_capped(look)) return real();
  const int slot = look.find(process_of_either(pid));
  if (slot < 0) return not_found;
  const int result = real();
  if (result == 0) edit(look, slot);
  return result;
}

}  // namespace fracgpu::kfd
