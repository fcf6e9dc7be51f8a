// A small array under a lock; programs have a handful of contexts. See context_table.h.
#include "shim/tracking/context_table.h"

#include <algorithm>
#include <iterator>

namespace fracgpu {

Context* ContextTable::find_entry(const void* handle) {
  Context* leaving = nullptr;
  for (Context& entry : entries_) {
    if (entry.handle != handle || handle == nullptr) continue;
    if (!leaving_[&entry - entries_]) return &entry;
    leaving = &entry;
  }
  return leaving;
}

Context* ContextTable::find_free() {
  Context* const found = std::find_if(entries_, entries_ + kMax, [&](const Context& entry) {
    return entry.handle == nullptr && !retired_[&entry - entries_];
  });
  return found != entries_ + kMax ? found : nullptr;
}

bool ContextTable::find(const void* handle, Context& context) {
  Locked<SpinLock> lock(lock_);
  const Context* const entry = find_entry(handle);
  if (entry != nullptr) context = *entry;
  return entry != nullptr;
}

Context ContextTable::enter(const void* handle, int device, int device_index) {
  Context context{.handle = handle,
                  .id = kUntrackedContext,
                  .device = device,
                  .device_index = device_index,
                  .users = 1};
  Locked<SpinLock> lock(lock_);
  for (Context& entry : entries_) {
    if (entry.handle == handle) {
      if (!leaving_[&entry - entries_]) return entry;
      epoch_.fetch_add(1, std::memory_order_release);  // threads remember by the handle
    }
    if (entry.handle != nullptr) several_.store(true, std::memory_order_relaxed);
  }
  Context* const free_entry = find_free();
  if (free_entry == nullptr) return context;
  context.id = static_cast<uint16_t>(free_entry - entries_ + 1);
  *free_entry = context;
  for (Count& count : counts_[context.id - 1]) count = {};
  local_memory_[context.id - 1] = {};
  return context;
}

bool ContextTable::begin_drop(const void* handle, Context& context) {
  Locked<SpinLock> lock(lock_);
  const Context* const entry = find_entry(handle);
  if (entry == nullptr || leaving_[entry - entries_] || is_alias(*entry)) return false;
  context = *entry;
  leaving_[entry - entries_] = true;
  return true;
}

void ContextTable::finish_drop(const Context& context) {
  const int i = context.id - 1;
  Locked<SpinLock> lock(lock_);
  for (Context& entry : entries_) {
    if (entry.handle != nullptr && entry.id == context.id) entry = Context{};
  }
  leaving_[i] = false;
  retired_[i] = true;
  look_what_may_grow();
  epoch_.fetch_add(1, std::memory_order_release);
}

void ContextTable::abandon_drop(const Context& context) {
  Locked<SpinLock> lock(lock_);
  leaving_[context.id - 1] = false;
}

void ContextTable::enter_alias(const void* handle, const Context& base) {
  Locked<SpinLock> lock(lock_);
  Context* const known = find_entry(handle);
  Context* const entry = known != nullptr && is_alias(*known) ? known : find_free();
  if (entry == nullptr) return;
  *entry = base;
  entry->handle = handle;
  local_memory_[entry - entries_] = {};
  several_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
}

void ContextTable::forget_alias(const void* handle) {
  Locked<SpinLock> lock(lock_);
  Context* const entry = find_entry(handle);
  if (entry == nullptr || !is_alias(*entry)) return;
  *entry = Context{};
  epoch_.fetch_add(1, std::memory_order_release);
}

bool ContextTable::any_on(int device_index) {
  Locked<SpinLock> lock(lock_);
  return std::any_of(std::begin(entries_), std::end(entries_), [&](const Context& entry) {
    return entry.handle != nullptr && entry.device_index == device_index;
  });
}

void ContextTable::recycle(uint16_t id) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  retired_[id - 1] = false;
}

ContextTable::Mark ContextTable::add(uint16_t id, Kept kind, uint64_t amount) {
  if (id == kUntrackedContext) return {};
  Locked<SpinLock> lock(lock_);
  Count& count = counts_[id - 1][kind];
  count.live += amount;
  Mark mark{.most = count.most, .rise = 0, .any_removed = count.any_removed};
  if (count.live > count.most) {
    mark.rise = count.live - count.most;
    mark.most = count.most = count.live;
  }
  return mark;
}

void ContextTable::remove(uint16_t id, Kept kind, uint64_t amount) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  Count& count = counts_[id - 1][kind];
  count.live -= std::min(count.live, amount);
  count.any_removed = true;
}

bool ContextTable::any_yet(uint16_t id, Kept kind) {
  if (id == kUntrackedContext) return false;
  Locked<SpinLock> lock(lock_);
  return counts_[id - 1][kind].most > 0;
}

void ContextTable::cancel(uint16_t id, Kept kind, uint64_t amount, const Mark& mark) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  Count& count = counts_[id - 1][kind];
  count.live -= std::min(count.live, amount);
  // Another thread may have added as much meanwhile.
  if (count.most == mark.most) count.most = std::max(count.live, mark.most - mark.rise);
}

ContextTable::LocalMemory ContextTable::local_memory(uint16_t id) {
  if (id == kUntrackedContext) return {};
  Locked<SpinLock> lock(lock_);
  return local_memory_[id - 1];
}

void ContextTable::need_local_memory(uint16_t id, size_t bytes) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  size_t& needed = local_memory_[id - 1].needed;
  needed = std::max(needed, bytes);
  look_what_may_grow();
}

void ContextTable::see_local_memory(uint16_t id, size_t bytes) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  local_memory_[id - 1].seen = bytes;
  look_what_may_grow();
}

void ContextTable::look_what_may_grow() {
  const bool may_grow =
      std::any_of(std::begin(entries_), std::end(entries_), [&](const Context& entry) {
        return entry.handle != nullptr && local_memory_[&entry - entries_].may_grow();
      });
  if (may_grow_.exchange(may_grow, std::memory_order_relaxed) != may_grow)
    epoch_.fetch_add(1, std::memory_order_release);
}

int ContextTable::attach(const void* handle, int change) {
  Locked<SpinLock> lock(lock_);
  Context* const entry = find_entry(handle);
  return entry != nullptr ? entry->users += change : 0;
}

}  // namespace fracgpu
