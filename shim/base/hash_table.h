// A hash table for trivially copyable entries with a 64-bit key; it has no lock of its own.
//
// Linear probing with backward-shift deletion, at most half full: probe runs stay within a cache
// line or two, and a look-up costs the same with one and with a million entries. Memory comes
// straight from mmap, because the shim may be below the program's malloc. The first few entries are
// in the table itself.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fracgpu {

// Addresses and handles are multiples of 256 or of 2 MiB, so the hash multiplies by an odd constant
// and uses the high bits of the product.
constexpr uint64_t hash_of(uint64_t key) {
  key *= 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
  return key ^ key >> 32;
}

// `Entry` has a member `uint64_t key`; 0 is no key. kSkip: hash bits that the caller already uses
// to spread entries over several tables.
template <typename Entry, size_t kInline, int kSkip = 0>
class HashTable {
 public:
  // The entry with this key, or null.
  Entry* find(uint64_t key) {
    Entry& entry = table()[slot_for(key)];
    return entry.key != 0 ? &entry : nullptr;
  }
  const Entry* find(uint64_t key) const {
    const Entry& entry = table()[slot_for(key)];
    return entry.key != 0 ? &entry : nullptr;
  }

  // The entry with this key, made (all zero except the key) if it was not there; null if the host
  // is out of memory. Moves other entries, so it invalidates pointers to them.
  Entry* insert(uint64_t key) {
    Entry* const known = &table()[slot_for(key)];
    return known->key != 0 ? known : enter(key, known);
  }

  // Moves other entries, so it invalidates pointers to them.
  void erase(Entry* entry) {
    Entry* const entries = table();
    size_t hole = static_cast<size_t>(entry - entries);
    for (size_t next = (hole + 1) & mask_; entries[next].key != 0; next = (next + 1) & mask_) {
      // An entry may move back into the hole unless its own slot is between the hole and it.
      const size_t distance_home = (next - home_of(entries[next].key)) & mask_;
      const size_t distance_hole = (next - hole) & mask_;
      if (distance_home >= distance_hole) {
        entries[hole] = entries[next];
        hole = next;
      }
    }
    entries[hole] = Entry{};
    --count_;
  }

  // Erases every entry for which `condition(Entry&)` holds.
  template <typename Condition>
  void erase_if(Condition condition) {
    for (size_t i = 0; i <= mask_;) {
      Entry& entry = table()[i];
      if (entry.key != 0 && condition(entry)) {
        erase(&entry);  // may move another entry here: check `i` again
      } else {
        ++i;
      }
    }
  }

  // Removes all entries and gives the memory back. The destructor does not give it back.
  void clear() {
    if (grown_ != nullptr) munmap(grown_, slots() * sizeof(Entry));
    *this = HashTable();
  }

  template <typename Visit>
  void for_each(Visit visit) {
    for (size_t i = 0; i <= mask_; ++i) {
      if (table()[i].key != 0) visit(table()[i]);
    }
  }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i <= mask_; ++i) {
      if (table()[i].key != 0) visit(table()[i]);
    }
  }

  size_t size() const { return count_; }
  size_t slots() const { return mask_ + 1; }

  // The first invariant that does not hold, in words, or nothing. Checks every slot.
  std::string_view check_invariants() const {
    const Entry* const entries = table();
    size_t taken = 0;
    for (size_t slot = 0; slot <= mask_; ++slot) taken += entries[slot].key != 0 ? 1 : 0;
    if (taken > mask_) return "a hash table has a free slot, at which look-ups end";
    if (taken != count_) return "a hash table counts its entries";
    for (size_t slot = 0; slot <= mask_; ++slot) {
      if (entries[slot].key != 0 && slot_for(entries[slot].key) != slot) {
        return "a look-up of an entry's key ends at that entry, so no key is there twice";
      }
    }
    return {};
  }

 private:
  Entry* table() { return grown_ != nullptr ? grown_ : first_; }
  const Entry* table() const { return grown_ != nullptr ? grown_ : first_; }
  size_t home_of(uint64_t key) const { return hash_of(key) >> kSkip & mask_; }

  // The key's slot, or the empty one where it would go.
  size_t slot_for(uint64_t key) const {
    const Entry* const entries = table();
    size_t slot = home_of(key);
    while (entries[slot].key != 0 && entries[slot].key != key) slot = (slot + 1) & mask_;
    return slot;
  }

  // Makes the entry in its slot, or elsewhere if the table must grow for it.
  [[gnu::noinline]] Entry* enter(uint64_t key, Entry* entry) {
    if ((count_ + 1) * 2 > mask_ + 1) {
      if (!make_room()) return nullptr;
      entry = &table()[slot_for(key)];
    }
    *entry = Entry{};
    entry->key = key;
    ++count_;
    return entry;
  }

  // Makes room for one more entry.
  [[gnu::cold]] bool make_room() {
    const size_t old_capacity = mask_ + 1, new_capacity = old_capacity * 4;
    void* bytes = mmap(nullptr, new_capacity * sizeof(Entry), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // One free slot must stay, or a look-up of an unknown key would never end.
    if (bytes == MAP_FAILED) return count_ + 1 < old_capacity;
    Entry* const old = table();
    Entry* const old_grown = grown_;
    grown_ = static_cast<Entry*>(bytes);
    mask_ = new_capacity - 1;
    for (size_t i = 0; i < old_capacity; ++i) {
      if (old[i].key != 0) grown_[slot_for(old[i].key)] = old[i];
    }
    if (old_grown != nullptr) munmap(old_grown, old_capacity * sizeof(Entry));
    return true;
  }

  static_assert((kInline & (kInline - 1)) == 0 && kInline >= 2);

  size_t mask_ = kInline - 1;
  size_t count_ = 0;
  Entry* grown_ = nullptr;  // null while the entries fit in `first_`
  Entry first_[kInline] = {};
};

}  // namespace fracgpu
