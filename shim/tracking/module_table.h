// The effect of loading and unloading a module on the overhead, for modules that come and go.
//
// A reading of the driver-reported usage takes milliseconds, and holds the whole driver's locks
// meanwhile. A program that loads the same image again and again is spared it. Once a load and its
// unload were measured, and the unload gave back what the load took, the next pair is charged by
// the known size. That holds for one instance at a time, because a second one may need memory where
// the first one fitted into some that the driver had left. It also holds only while no later load
// may be in the same chunk and keep it.
#pragma once

#include <cstdint>
#include <utility>

#include "shim/base/hash_table.h"

namespace fracgpu {

struct KnownModule {
  uint64_t image = 0;            // image and context; 0: a free entry
  const void* handle = nullptr;  // of the live instance, or null
  uint64_t grown = 0;            // units that its last load took, if `measured`
  uint64_t units = 0;            // units that a load takes and an unload gives back, if `settled`
  uint64_t seen = 0;             // units that two equal loads took; 0: not known
  uint64_t seen_once = 0;        // units that the last load took
  uint64_t used = 0;             // number of the last load, in the order of loads
  uint16_t context = 0;
  int device_index = -1;
  bool measured = false;
  bool settled = false;
};

// Has no lock of its own: callers hold `Process::cold_paths`.
class ModuleTable {
 public:
  // The entry of an image, made if there is none. Null for an unidentified image (0), and while
  // every entry has a live instance.
  KnownModule* of_image(uint64_t image, uint16_t context) {
    if (image == 0) return nullptr;
    KnownModule* oldest = nullptr;
    for (KnownModule& entry : entries_) {
      if (entry.image == image && entry.context == context) return &entry;
      if (entry.handle == nullptr && (oldest == nullptr || entry.used < oldest->used))
        oldest = &entry;
    }
    if (oldest != nullptr) *oldest = {.image = image, .context = context};
    return oldest;
  }

  // The entry with this live instance, or null.
  KnownModule* of_handle(const void* handle) {
    if (handle == nullptr) return nullptr;
    for (KnownModule& entry : entries_) {
      if (entry.handle == handle) return &entry;
    }
    return nullptr;
  }

  // Replaces the handle of an instance that is being unloaded: the driver may give that handle to
  // another one at once.
  static constexpr char kLeaving = 0;

  // Programs that cycle through more images than this have two readings for each pair of load and
  // unload; with fewer images, two for each image in all (16 to 1,024 tried). A walk takes 80 ns,
  // over 1,024 entries 0.4 us.
  static constexpr int kMax = 256;

  // The instance lives from now on. If the driver has given a handle out again, it means a new one.
  void enter(KnownModule* entry, const void* handle) {
    if (KnownModule* const stale = of_handle(handle); stale != nullptr) stale->handle = nullptr;
    entry->handle = handle;
    entry->used = ++loads_;
  }

  // A module was loaded that may share a chunk with an earlier one.
  void note_beside() { beside_ = ++loads_; }
  // No such module since this one was loaded: its memory goes with it.
  bool is_apart(const KnownModule& entry) const { return entry.used > beside_; }

  // The driver has destroyed the context, and its modules with it.
  void forget_context(uint16_t context) {
    for (KnownModule& entry : entries_) {
      if (entry.context == context) entry = {};
    }
  }

 private:
  KnownModule entries_[kMax];
  uint64_t loads_ = 0, beside_ = 0;
};

// Charges that are guesses, because the driver does not report what this process holds. They are
// for modules (by the growth of the device's usage during the load), limits, and pages of streams
// and graphs. Has no lock of its own: callers hold `Process::cold_paths`.
class GuessedCharges {
 public:
  struct Entry {
    uint64_t key = 0;  // 0: no entry
    uint64_t units = 0;
    int device_index = -1;
    uint16_t context = 0;
    uint64_t value = 0;  // of a limit: the highest value that `units` cover
  };

  // The key of a module, by its handle; 0 for none.
  static uint64_t key_of(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
  // The key of a context's limit. No handle is so large.
  static uint64_t key_of_limit(uint16_t context, int limit) {
    return uint64_t{1} << 63 | uint64_t{context} << 8 | static_cast<uint64_t>(limit);
  }

  // The key of the pages that the driver took for a context's streams and graphs. No limit is so
  // large.
  static uint64_t key_of_pages(uint16_t context) { return key_of_limit(context, 0xff); }

  // If the host is out of memory, the charge is not entered, and stays.
  void enter(const Entry& charge) {
    if (Entry* const entry = entries_.insert(charge.key); entry != nullptr) *entry = charge;
  }

  // An empty entry if it is not known.
  Entry find(uint64_t key) {
    const Entry* const entry = key != 0 ? entries_.find(key) : nullptr;
    return entry != nullptr ? *entry : Entry{};
  }

  // The same, and removes it.
  Entry take(uint64_t key) {
    const Entry charge = find(key);
    if (charge.key != 0) entries_.erase(entries_.find(key));
    return charge;
  }

  // Removes the device's charges without a visit: a reading has reported the usage.
  void forget_device(int device_index) {
    entries_.erase_if([&](const Entry& entry) { return entry.device_index == device_index; });
  }

  // Removes the charges of a context that the driver has destroyed, and calls visit(entry) for
  // each.
  template <typename Visit>
  void take_of(uint16_t context, Visit visit) {
    entries_.erase_if([&](const Entry& entry) {
      if (entry.context == context) visit(entry);
      return entry.context == context;
    });
  }

 private:
  HashTable<Entry, 4> entries_;
};

}  // namespace fracgpu
