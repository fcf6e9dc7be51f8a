// What loading and unloading a module does to the overhead, for modules that come and go.
//
// A reading of the driver-reported usage takes milliseconds, and the whole driver's locks
// meanwhile. A program that loads the same image again and again is spared it: once a load and the
// unload after it were measured, and the one gave back what the other took, the next pair is
// charged by what is known. That holds for one instance at a time, because a second one may need
// memory where the first one fitted into some that the driver had left.
#pragma once

#include <cstdint>
#include <utility>

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

  // The instance lives from now on. A handle that the driver gives out again means a new one.
  void enter(KnownModule* entry, const void* handle) {
    if (KnownModule* const stale = of_handle(handle); stale != nullptr) stale->handle = nullptr;
    entry->handle = handle;
    entry->used = ++loads_;
  }

  // The driver has destroyed the context, and its modules with it.
  void forget_context(uint16_t context) {
    for (KnownModule& entry : entries_) {
      if (entry.context == context) entry = {};
    }
  }

 private:
  // Programs that load by the thousand load each image once. Chosen, not measured.
  static constexpr int kMax = 64;

  KnownModule entries_[kMax];
  uint64_t loads_ = 0;
};

// What is charged by a guess, where the driver does not tell what this process holds: modules, by
// what the device's use grew by when they were loaded, and limits. Has no lock of its own: whoever
// uses it holds `Process::cold_paths`.
class GuessedCharges {
 public:
  struct Entry {
    const void* handle = nullptr;  // null: a free entry
    uint64_t units = 0;
    int device_index = -1;
    uint16_t context = 0;
    uint64_t value = 0;  // of a limit: the highest that `units` are for
  };

  // A limit of a context stands here under this in place of a handle: no pointer is so small.
  static const void* handle_of_limit(uint16_t context, int limit) {
    return reinterpret_cast<const void*>(uintptr_t{context} << 4 | static_cast<uintptr_t>(limit));
  }

  // False where there is no room for it: it stays charged then.
  bool enter(const Entry& charge) {
    for (Entry& entry : entries_) {
      if (entry.handle != nullptr && entry.handle != charge.handle) continue;
      entry = charge;
      return true;
    }
    return false;
  }

  // An empty entry where it is not known.
  Entry find(const void* handle) const {
    for (const Entry& entry : entries_) {
      if (handle != nullptr && entry.handle == handle) return entry;
    }
    return {};
  }

  // Removes it; an empty entry where it is not known.
  Entry take(const void* handle) {
    for (Entry& entry : entries_) {
      if (handle != nullptr && entry.handle == handle) return std::exchange(entry, {});
    }
    return {};
  }

  // Removes one of the context, which the driver has destroyed; an empty entry when none is left.
  Entry take_of(uint16_t context) {
    for (Entry& entry : entries_) {
      if (entry.handle != nullptr && entry.context == context) return std::exchange(entry, {});
    }
    return {};
  }

 private:
  static constexpr int kMax = 256;  // chosen, not measured

  Entry entries_[kMax];
};

}  // namespace fracgpu
