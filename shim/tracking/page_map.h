// A page map: a table of entries by address that keeps neighbours in memory together. It has no
// lock of its own.
//
// An entry whose key is the beginning of a 2 MiB page (its lowest bit may be set) has its page's
// place in a leaf of 32. A hash table finds the leaf, which covers 64 MiB: calls that go through
// addresses in order find what they need in the caches. Other keys, and the second key of a page,
// are in a hash table, which stays empty in most programs. Memory comes straight from mmap.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "shim/base/hash_table.h"

namespace fracgpu {

// `Entry` is trivially copyable and has a member `uint64_t key`; 0 is no key, and all zero is no
// entry. kSkip: as for HashTable, of the hash of `neighbourhood`.
template <typename Entry, int kSkip = 0>
class PageMap {
 public:
  static constexpr int kPageBits = 21;

  static constexpr bool is_page(uint64_t key) {
    return (key & ((uint64_t{1} << kPageBits) - 2)) == 0;
  }
  // Equal for keys that are in one leaf.
  static constexpr uint64_t neighbourhood(uint64_t key) {
    return is_page(key) ? (key >> (kPageBits + kLeafBits)) + 1 : key;
  }

  // The entry with this key, or null.
  Entry* find(uint64_t key) {
    if (is_page(key)) {
      Entry* const place = find_place(key);
      if (place != nullptr && place->key == key) return place;
      if (others_.size() == 0) return nullptr;
    }
    return others_.find(key);
  }

  // The entry with this key, made (all zero except the key) if it was not there; null if the host
  // is out of memory. Invalidates pointers to other entries.
  Entry* insert(uint64_t key) {
    if (is_page(key)) {
      Leaf* const leaf = leaves_.find(neighbourhood(key));
      if (leaf != nullptr) {
        Entry& place = place_of(*leaf, key);
        if (place.key == key) return &place;
        if (place.key == 0 && others_.size() == 0) return enter(*leaf, key);
      }
    }
    return insert_elsewhere(key);
  }

  // Invalidates pointers to other entries.
  void erase(Entry* entry) {
    Leaf* const leaf = is_page(entry->key) ? leaves_.find(neighbourhood(entry->key)) : nullptr;
    if (leaf == nullptr || &place_of(*leaf, entry->key) != entry) return others_.erase(entry);
    *entry = Entry{};
    if (--leaf->count == 0) keep_idle(leaf->key);
  }

  // Erases every entry for which `condition(Entry&)` holds.
  template <typename Condition>
  void erase_if(Condition condition) {
    leaves_.erase_if([&](Leaf& leaf) {
      for (size_t i = 0; i < kLeafEntries && leaf.count > 0; ++i) {
        if (leaf.entries[i].key == 0 || !condition(leaf.entries[i])) continue;
        leaf.entries[i] = Entry{};
        --leaf.count;
      }
      if (leaf.count == 0) recycle(leaf.entries);
      return leaf.count == 0;
    });
    others_.erase_if(condition);
  }

  template <typename Visit>
  void for_each(Visit visit) const {
    leaves_.for_each([&](const Leaf& leaf) {
      for (size_t i = 0; i < kLeafEntries; ++i) {
        if (leaf.entries[i].key != 0) visit(leaf.entries[i]);
      }
    });
    others_.for_each(visit);
  }

  // The number of places in the table.
  size_t slots() const { return leaves_.size() * kLeafEntries + others_.slots(); }

  // The first invariant that does not hold, in words, or nothing. Checks every place.
  std::string_view check_invariants() const {
    std::string_view broken = leaves_.check_invariants();
    if (broken.empty()) broken = others_.check_invariants();
    leaves_.for_each([&](const Leaf& leaf) {
      uint32_t taken = 0;
      for (size_t i = 0; i < kLeafEntries; ++i) {
        const Entry& entry = leaf.entries[i];
        if (entry.key == 0) continue;
        ++taken;
        if (!is_page(entry.key) || neighbourhood(entry.key) != leaf.key ||
            &place_of(leaf, entry.key) != &entry) {
          broken = "an entry of a leaf lies in the place of its page";
        } else if (others_.find(entry.key) != nullptr) {
          broken = "no key is in a leaf and in the hash table beside";
        }
      }
      if (taken != leaf.count) broken = "a leaf counts its entries";
    });
    return broken;
  }

 private:
  friend struct TableCorrupter;  // a unit test, which breaks each invariant

  static constexpr int kLeafBits = 5;
  static constexpr size_t kLeafEntries = size_t{1} << kLeafBits;
  static constexpr size_t kMoreLeaves = 32;  // of 1 KiB each

  struct Leaf {
    uint64_t key = 0;  // the `neighbourhood` of its entries
    Entry* entries = nullptr;
    uint32_t count = 0;
  };

  static Entry& place_of(const Leaf& leaf, uint64_t key) {
    return leaf.entries[key >> kPageBits & (kLeafEntries - 1)];
  }

  // Null if there is no leaf.
  Entry* find_place(uint64_t key) {
    Leaf* const leaf = leaves_.find(neighbourhood(key));
    return leaf != nullptr ? &place_of(*leaf, key) : nullptr;
  }

  static Entry* enter(Leaf& leaf, uint64_t key) {
    ++leaf.count;
    Entry& entry = place_of(leaf, key);
    entry.key = key;
    return &entry;
  }

  // Inserts a key that is not known to be in its page's place.
  [[gnu::noinline]] Entry* insert_elsewhere(uint64_t key) {
    if (Entry* const known = others_.find(key); known != nullptr) return known;
    Leaf* const leaf = is_page(key) ? leaf_for(key) : nullptr;
    const bool is_free = leaf != nullptr && place_of(*leaf, key).key == 0;
    return is_free ? enter(*leaf, key) : others_.insert(key);
  }

  // Null if the host is out of memory.
  Leaf* leaf_for(uint64_t key) {
    if (Leaf* const known = leaves_.find(neighbourhood(key)); known != nullptr) return known;
    Entry* const entries = new_entries();
    if (entries == nullptr) return nullptr;
    Leaf* const leaf = leaves_.insert(neighbourhood(key));
    if (leaf != nullptr) {
      leaf->entries = entries;
    } else {
      recycle(entries);
    }
    return leaf;
  }

  // Keeps one empty leaf: a program that allocates and frees at one place needs it again at once.
  void keep_idle(uint64_t key) {
    Leaf* const idle = idle_ != key && idle_ != 0 ? leaves_.find(idle_) : nullptr;
    idle_ = key;
    if (idle == nullptr || idle->count > 0) return;
    recycle(idle->entries);
    leaves_.erase(idle);
  }

  // Entries for a leaf, all zero; null if the host is out of memory.
  [[gnu::cold]] Entry* new_entries() {
    if (recycled_ != nullptr) {
      Entry* const entries = recycled_;
      recycled_ = reinterpret_cast<Entry*>(entries->key);
      entries->key = 0;
      return entries;
    }
    if (fresh_left_ == 0) {
      constexpr size_t kBytes = kMoreLeaves * kLeafEntries * sizeof(Entry);
      void* const bytes =
          mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (bytes == MAP_FAILED) return nullptr;
      fresh_ = static_cast<Entry*>(bytes);
      fresh_left_ = kMoreLeaves;
    }
    Entry* const entries = fresh_;
    fresh_ += kLeafEntries;
    --fresh_left_;
    return entries;
  }

  // The entries are all zero. The first one's key leads to the next free leaf from now on.
  void recycle(Entry* entries) {
    entries->key = reinterpret_cast<uint64_t>(recycled_);
    recycled_ = entries;
  }

  HashTable<Leaf, 8, kSkip> leaves_;
  HashTable<Entry, 16, kSkip> others_;
  uint64_t idle_ = 0;          // key of a leaf that became empty; it may be gone or used again
  Entry* recycled_ = nullptr;  // leaves that are free
  Entry* fresh_ = nullptr;     // leaves that were never used
  size_t fresh_left_ = 0;
};

}  // namespace fracgpu
