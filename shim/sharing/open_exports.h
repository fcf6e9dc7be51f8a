// Descriptors by which this process has exported memory, and freed memory that they still hold.
//
// The driver keeps exported memory until the last descriptor of the export is closed, in any
// process. Once the exporter has freed the memory, NVIDIA's driver counts it for no process
// (gpu_rmapi.c of the open modules 535.261.03 skips RM's own clients), and neither does KFD. So it
// stays charged to this process.
//
// An epoll instance watches the exports' open file descriptions. It keeps none of them open, and
// /proc/self/fdinfo lists each that is open anywhere. Without /proc, memory counts as free when it
// is freed.
#pragma once

#include <atomic>
#include <cstdint>

#include "fracgpu/ledger_layout.h"
#include "shim/base/hash_table.h"
#include "shim/base/sleep_lock.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// Any thread may call any function. Amounts are units.
class OpenExports {
 public:
  // What an export is of. Tokens of different kinds never meet.
  enum class Of : uint64_t { physical, allocation, pool, driver_memory, gem_buffer, objects };
  // `key`: the number of physical memory, the key of an allocation, the address of a pool, the
  // number of memory that a driver's library has requested or of a GEM buffer, or the number of a
  // descriptor that stands for many objects. Less than 2^61.
  static constexpr uint64_t token_of(Of kind, uint64_t key) {
    return static_cast<uint64_t>(kind) << kKeyBits | key;
  }
  static constexpr Of kind_of(uint64_t token) { return static_cast<Of>(token >> kKeyBits); }

  // Memory with this token was exported by `fd`.
  void watch(int fd, uint64_t token);

  // The descriptor that is watched with the token (Of::objects, `descriptor`) holds the memory with
  // `token` at this place, less than 2^16, and no longer what it held there. 0: nothing.
  void hold(uint32_t descriptor, uint32_t place, uint64_t token);

  // Memory with this token was freed: keeps `units` of it while a descriptor holds it. False, with
  // nothing kept, if none is open.
  bool keep(uint64_t token, int device_index, uint64_t units);
  // The same, but also keeps what no descriptor holds, until the next `free_closed`.
  void keep_until_freed(uint64_t token, int device_index, uint64_t units);

  // Calls free(token, device_index, units) for kept memory that no descriptor holds any more. It is
  // kept on if that returns false.
  template <typename Free>
  void free_closed(Free free);

  // Whether anything is kept.
  bool any() const { return kept_count_.load(std::memory_order_relaxed) != 0; }
  // The units that are kept on a device. `changes` differs from an earlier value if any came or
  // went.
  void sum(int device_index, uint64_t& units, uint64_t& changes);

 private:
  static constexpr int kKeyBits = 61;

  struct Kept {
    uint64_t key;  // the token
    uint64_t units;
    int device_index;
    bool is_open;
  };
  struct Place {
    uint64_t key;  // the descriptor's number above the place
    uint64_t token;
    bool is_open;
  };
  static constexpr int kPlaceBits = 16;

  // Calls visit(token) for each open description. False if that cannot be found out now.
  template <typename Visit>
  bool visit_open(Visit visit) const;
  // The same for each memory that one holds.
  template <typename Visit>
  bool visit_held(Visit visit);
  bool enter(uint64_t token, int device_index, uint64_t units);
  void add(int fd, uint64_t token);
  void find_closed();

  SleepLock lock_;  // held while the descriptions are listed
  int epoll_ = -1;
  int copies_ = 0;  // made so far
  HashTable<Kept, 8> kept_;
  HashTable<Place, 8> places_;
  std::atomic<uint32_t> kept_count_{0};
  uint64_t changes_ = 0;
};

template <typename Free>
void OpenExports::free_closed(Free free) {
  if (!any()) return;
  const Locked<SleepLock> lock(lock_);
  find_closed();
  kept_.erase_if([&](const Kept& each) {
    if (each.is_open || !free(each.key, each.device_index, each.units)) return false;
    kept_count_.fetch_sub(1, std::memory_order_relaxed);
    ++changes_;
    return true;
  });
}

}  // namespace fracgpu
