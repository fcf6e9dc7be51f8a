// A small array under a lock; programs have a handful of contexts. See context_table.h.
#include "shim/tracking/context_table.h"

#include <algorithm>

namespace fracgpu {

ContextTable::Entry* ContextTable::find_entry(const void* handle) {
  Entry* leaving = nullptr;
  for (Entry& entry : used()) {
    if (entry.context.handle != handle || handle == nullptr) continue;
    if (!entry.leaving) return &entry;
    leaving = &entry;
  }
  return leaving;
}

ContextTable::Entry* ContextTable::find_free() {
  for (Entry& entry : used()) {
    if (entry.context.handle == nullptr && !entry.retired) return &entry;
  }
  return used_ < kMax ? &entries_.make(used_++) : nullptr;
}

bool ContextTable::find(const void* handle, Context& context) {
  Locked<SpinLock> lock(lock_);
  const Entry* const entry = find_entry(handle);
  if (entry != nullptr) context = entry->context;
  return entry != nullptr;
}

Context ContextTable::enter(const void* handle, int device, int device_index) {
  Context context{.handle = handle,
                  .id = kUntrackedContext,
                  .device = device,
                  .device_index = device_index,
                  .users = 1};
  Locked<SpinLock> lock(lock_);
  for (const Entry& entry : used()) {
    if (entry.context.handle == handle) {
      if (!entry.leaving) return entry.context;
      epoch_.fetch_add(1, std::memory_order_release);  // threads cache by the handle
    }
    if (entry.context.handle != nullptr) several_.store(true, std::memory_order_relaxed);
  }
  Entry* const entry = find_free();
  if (entry == nullptr) return context;
  context.id = static_cast<uint16_t>(entry - &entries_[0] + 1);
  *entry = Entry{.context = context, .counts = {}, .local_memory = {}};
  return context;
}

bool ContextTable::begin_drop(const void* handle, Context& context) {
  Locked<SpinLock> lock(lock_);
  Entry* const entry = find_entry(handle);
  if (entry == nullptr || entry->leaving || is_alias(*entry)) return false;
  context = entry->context;
  return entry->leaving = true;
}

void ContextTable::finish_drop(const Context& context) {
  Locked<SpinLock> lock(lock_);
  for (Entry& entry : used()) {
    if (entry.context.handle != nullptr && entry.context.id == context.id)
      entry.context = Context{};
  }
  entry_of(context.id).leaving = false;
  entry_of(context.id).retired = true;
  look_what_may_grow();
  epoch_.fetch_add(1, std::memory_order_release);
}

void ContextTable::abandon_drop(const Context& context) {
  Locked<SpinLock> lock(lock_);
  entry_of(context.id).leaving = false;
}

void ContextTable::enter_alias(const void* handle, const Context& base) {
  Locked<SpinLock> lock(lock_);
  Entry* const known = find_entry(handle);
  Entry* const entry = known != nullptr && is_alias(*known) ? known : find_free();
  if (entry == nullptr) return;
  entry->context = base;
  entry->context.handle = handle;
  entry->local_memory = {};
  several_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
}

void ContextTable::forget_alias(const void* handle) {
  Locked<SpinLock> lock(lock_);
  Entry* const entry = find_entry(handle);
  if (entry == nullptr || !is_alias(*entry)) return;
  entry->context = Context{};
  epoch_.fetch_add(1, std::memory_order_release);
}

bool ContextTable::any_on(int device_index) {
  Locked<SpinLock> lock(lock_);
  return std::ranges::any_of(used(), [&](const Entry& entry) {
    return entry.context.handle != nullptr && entry.context.device_index == device_index;
  });
}

void ContextTable::recycle(uint16_t id) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  entry_of(id).retired = false;
}

ContextTable::Mark ContextTable::add(uint16_t id, Kept kind, uint64_t amount) {
  if (id == kUntrackedContext) return {};
  Locked<SpinLock> lock(lock_);
  Count& count = entry_of(id).counts[kind];
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
  Count& count = entry_of(id).counts[kind];
  count.live -= std::min(count.live, amount);
  count.any_removed = true;
}

bool ContextTable::any_yet(uint16_t id, Kept kind) {
  if (id == kUntrackedContext) return false;
  Locked<SpinLock> lock(lock_);
  return entry_of(id).counts[kind].most > 0;
}

void ContextTable::cancel(uint16_t id, Kept kind, uint64_t amount, const Mark& mark) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  Count& count = entry_of(id).counts[kind];
  count.live -= std::min(count.live, amount);
  // Another thread may have added as much meanwhile.
  if (count.most == mark.most) count.most = std::max(count.live, mark.most - mark.rise);
}

ContextTable::LocalMemory ContextTable::local_memory(uint16_t id) {
  if (id == kUntrackedContext) return {};
  Locked<SpinLock> lock(lock_);
  return entry_of(id).local_memory;
}

void ContextTable::need_local_memory(uint16_t id, size_t bytes) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  size_t& needed = entry_of(id).local_memory.needed;
  needed = std::max(needed, bytes);
  look_what_may_grow();
}

void ContextTable::see_local_memory(uint16_t id, size_t bytes) {
  if (id == kUntrackedContext) return;
  Locked<SpinLock> lock(lock_);
  entry_of(id).local_memory.seen = bytes;
  look_what_may_grow();
}

void ContextTable::look_what_may_grow() {
  const bool may_grow = std::ranges::any_of(used(), [](const Entry& entry) {
    return entry.context.handle != nullptr && entry.local_memory.may_grow();
  });
  if (may_grow_.exchange(may_grow, std::memory_order_relaxed) != may_grow)
    epoch_.fetch_add(1, std::memory_order_release);
}

int ContextTable::attach(const void* handle, int change) {
  Locked<SpinLock> lock(lock_);
  Entry* const entry = find_entry(handle);
  return entry != nullptr ? entry->context.users += change : 0;
}

}  // namespace fracgpu
