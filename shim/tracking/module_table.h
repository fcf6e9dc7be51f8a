// What loading and unloading a module does to the overhead, for modules that come and go.
//
// A reading of the driver-reported usage takes milliseconds, and the whole driver's locks
// meanwhile. A program that loads the same image again and again is spared it: once a load and the
// unload after it were measured, and the one gave back what the other took, the next pair is
// charged by what is known. That holds for one instance at a time, because a second one may need
// memory where the first one fitted into some that the driver had left. And it holds only while
// nothing was loaded since that may lie in the same chunk and keep it.
#pragma once

#include <cstdint>
#include <utility>

#include "shim/base/hash_table.h"

namespace fracgpu {

struct KnownModule {
  uint64_t image = 0;            // which image in which context; 0: a free entry
  const void* handle = nullptr;  // of the instance that lives, or null
  uint64_t grown = 0;            // units that its last load took, if `measured`
  uint64_t units = 0;            // what a load takes and an unload gives back, if `settled`
  uint64_t seen = 0;             // what an instance takes, by two loads that agree; 0: not known
  uint64_t seen_once = 0;        // by the last of them
  uint64_t used = 0;             // when, in the order of loads
  uint16_t context = 0;
  int device_index = -1;
  bool measured = false;
  bool settled = false;
};

// Has no lock of its own: whoever uses it holds `Process::cold_paths`.
class ModuleTable {
 public:
  // The entry of an image, made if there is none. Null for an image that is not identified (0), and
  // while every entry has a live instance.
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

  // The entry whose live instance this is, or null.
  KnownModule* of_handle(const void* handle) {
    if (handle == nullptr) return nullptr;
    for (KnownModule& entry : entries_) {
      if (entry.handle == handle) return &entry;
    }
    return nullptr;
  }

  // Stands for the handle of an instance that is being unloaded: the driver may give that to
  // another one at once.
  static constexpr char kLeaving = 0;

  // Programs that go round more images than this have two readings for each pair of load and
  // unload, those that go round fewer two for each image in all (16 to 1,024 tried). A walk takes
  // 80 ns, over 1,024 entries 0.4 us.
  static constexpr int kMax = 256;

  // The instance lives from now on. A handle that the driver gives out again means a new one.
  void enter(KnownModule* entry, const void* handle) {
    if (KnownModule* const stale = of_handle(handle); stale != nullptr) stale->handle = nullptr;
    entry->handle = handle;
    entry->used = ++loads_;
  }

  // A module was loaded that may lie in a chunk of an earlier one.
  void note_beside() { beside_ = ++loads_; }
  // No such one since this was loaded: what it took goes with it.
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

// What is charged by a guess, where the driver does not tell what this process holds: modules, by
// what the device's use grew by when they were loaded, limits, and pages of streams and graphs. Has
// no lock of its own: whoever uses it holds `Process::cold_paths`.
class GuessedCharges {
 public:
  struct Entry {
    uint64_t key = 0;  // 0: nothing
    uint64_t units = 0;
    int device_index = -1;
    uint16_t context = 0;
    uint64_t value = 0;  // of a limit: the highest that `units` are for
  };

  // Of a module, by its handle; 0 for none.
  static uint64_t key_of(const void* handle) { return reinterpret_cast<uint64_t>(handle); }
  // Of a limit of a context. No handle is so large.
  static uint64_t key_of_limit(uint16_t context, int limit) {
    return uint64_t{1} << 63 | uint64_t{context} << 8 | static_cast<uint64_t>(limit);
  }

  // Of the pages that the driver took for a context's streams and graphs. No limit is so large.
  static uint64_t key_of_pages(uint16_t context) { return key_of_limit(context, 0xff); }

  // Out of host memory it is not entered, and stays charged.
  void enter(const Entry& charge) {
    if (Entry* const entry = entries_.insert(charge.key); entry != nullptr) *entry = charge;
  }

  // An empty entry where it is not known.
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

  // Removes what is charged on the device without a visit: a reading has told what there is.
  void forget_device(int device_index) {
    entries_.erase_if([&](const Entry& entry) { return entry.device_index == device_index; });
  }

  // Removes what the context has, which the driver has destroyed, and calls visit(entry) for each.
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
