// Which parts of the 2 MiB chunks that small allocations share are taken, in units of 512 bytes.
//
// NVIDIA's driver puts a small allocation into a hole of any of a context's chunks that is large
// enough, and takes a new chunk only if there is none (libcuda 535 and 550, found by the addresses
// of 4,661 allocations). Who knows the holes knows whether a new chunk will be needed.
#pragma once

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fracgpu/ledger_layout.h"
#include "shim/base/spin_lock.h"

namespace fracgpu {

// An allocation's place in its chunk, in units. No units: the place is not tracked.
struct ChunkPart {
  static constexpr uint32_t kNowhere = UINT32_MAX;

  uint32_t first = 0;
  uint32_t units = 0;
};

// One chunk. It has no lock of its own.
class ChunkOccupancy {
 public:
  static constexpr uint32_t kUnits = (2u << 20) / layout::kUnit;

  static constexpr bool holds(const ChunkPart& part) {
    return part.first < kUnits && part.units <= kUnits - part.first;
  }

  // The driver has given this part to an allocation; `holds(part)`. What was there before is free,
  // but its `release` may come later: other threads free and allocate at the same time.
  void take(const ChunkPart& part) {
    if (is_set(begins_, part.first)) {
      is_untrusted_ = is_untrusted_ || is_set(taken_over_, part.first);
      taken_over_[part.first / kBits] |= uint64_t{1} << part.first % kBits;
    }
    for_each_word(part, [&](uint32_t word, uint64_t bits) {
      taken_[word] |= bits;
      begins_[word] &= ~bits;
      used_words_ |= uint64_t{1} << word;
    });
    begins_[part.first / kBits] |= uint64_t{1} << part.first % kBits;
  }

  // An allocation that began there is gone. If another one had taken its place, that one stays.
  void release(uint32_t first) {
    if (first >= kUnits || !is_set(begins_, first)) return;
    if (is_set(taken_over_, first)) {
      taken_over_[first / kBits] &= ~(uint64_t{1} << first % kBits);
      return;
    }
    uint32_t end = first + 1;
    while (end < kUnits && is_set(taken_, end) && !is_set(begins_, end)) end += skip(end);
    for_each_word({first, end - first},
                  [&](uint32_t word, uint64_t bits) { taken_[word] &= ~bits; });
    begins_[first / kBits] &= ~(uint64_t{1} << first % kBits);
  }

  // Makes it all zero, as a new one is. Only the words that were used cost time.
  void clear() {
    for (; used_words_ != 0; used_words_ &= used_words_ - 1) {
      const auto word = static_cast<uint32_t>(std::countr_zero(used_words_));
      taken_[word] = begins_[word] = taken_over_[word] = 0;
    }
    is_untrusted_ = false;
  }

  // Calls visit(const ChunkPart&) for each hole, from the first to the last.
  template <typename Visit>
  void for_each_hole(Visit visit) const {
    for (uint32_t at = run(0, true); at < kUnits;) {
      const uint32_t end = run(at, false);
      visit(ChunkPart{at, end - at});
      at = run(end, true);
    }
  }

  // Whether a hole is at least that long, for certain.
  bool has_hole(uint32_t units) const {
    if (is_untrusted_) return false;
    uint32_t run = 0;  // free units before the place that is looked at
    for (const uint64_t word : taken_) {
      uint32_t at = 0;
      for (uint64_t bits = word; bits != 0;) {
        const auto free = static_cast<uint32_t>(std::countr_zero(bits));
        if (run + free >= units) return true;
        const auto taken = static_cast<uint32_t>(std::countr_one(bits >> free));
        run = 0;
        at += free + taken;
        bits = at < kBits ? word >> at : 0;
      }
      run += kBits - at;
      if (run >= units) return true;
    }
    return false;
  }

 private:
  static constexpr uint32_t kBits = 64;
  using Words = std::array<uint64_t, kUnits / kBits>;

  static bool is_set(const Words& words, uint32_t unit) {
    return (words[unit / kBits] >> unit % kBits & 1) != 0;
  }

  // Where the run of taken, or of free, units ends that begins at `at`.
  uint32_t run(uint32_t at, bool taken) const {
    while (at < kUnits) {
      const uint64_t word = taken ? taken_[at / kBits] : ~taken_[at / kBits];
      const auto length = static_cast<uint32_t>(std::countr_one(word >> at % kBits));
      at += length;
      if (length == 0 || at % kBits != 0) break;
    }
    return at;
  }

  // How many units from here on certainly belong to the same allocation.
  uint32_t skip(uint32_t unit) const {
    const bool whole =
        unit % kBits == 0 && taken_[unit / kBits] == ~uint64_t{0} && begins_[unit / kBits] == 0;
    return whole ? kBits : 1;
  }

  template <typename Visit>
  static void for_each_word(const ChunkPart& part, Visit visit) {
    const uint32_t end = part.first + part.units;
    for (uint32_t at = part.first; at < end;) {
      const uint32_t word = at / kBits, from = at % kBits;
      const uint32_t count = end - at < kBits - from ? end - at : kBits - from;
      const uint64_t bits = count == kBits ? ~uint64_t{0} : ((uint64_t{1} << count) - 1) << from;
      visit(word, bits);
      at += count;
    }
  }

  Words taken_ = {};
  Words begins_ = {};        // the first unit of each allocation
  Words taken_over_ = {};    // of these: those of which an earlier release is still to come
  uint64_t used_words_ = 0;  // those that may have bits set, a bit for each
  static_assert(kUnits / kBits == 64);
  bool is_untrusted_ = false;  // more than one is: whose it will be is not known
};

// The occupancies of all chunks of a process, each by a number that an entry of the live map keeps.
// Any thread may call any function; who uses a number holds the lock of its entry.
//
// While a chunk has one part, or none, its number says it all. Programs that make one small
// allocation at a time have such chunks alone, and pay for no map.
class ChunkOccupancies {
 public:
  static constexpr uint32_t kNone = 0;  // of a chunk whose parts are not tracked

  // Of a chunk with this part alone; `ChunkOccupancy::holds(part)`. No units: it is empty.
  static constexpr uint32_t of_one(const ChunkPart& part) {
    return kIsOne | part.first << kUnitsBits | part.units;
  }

  // One more part. Where a map is needed and the host is out of memory, or there are more than a
  // device has chunks, the number becomes kNone. So it does for a part in two chunks: no driver
  // that is known places an allocation so.
  void take(uint32_t& number, const ChunkPart& part) {
    if (number == kNone) return;
    if (!ChunkOccupancy::holds(part)) {
      drop(number);
      number = kNone;
    } else if (number == of_one({})) {
      number = of_one(part);
    } else {
      if (is_one(number)) number = make_map(part_of(number));
      if (number != kNone) place_of(number).occupancy.take(part);
    }
  }

  // The part that began there is gone.
  void release(uint32_t& number, uint32_t first) {
    if (!is_one(number)) {
      if (number != kNone) place_of(number).occupancy.release(first);
    } else if (part_of(number).first == first) {
      number = of_one({});
    }
  }

  // Whether a hole is at least that long, for certain.
  bool has_hole(uint32_t number, uint32_t units) const {
    if (!is_one(number)) return number != kNone && place_of(number).occupancy.has_hole(units);
    const ChunkPart part = part_of(number);
    const uint32_t end = part.first + part.units;
    return units <= part.first || units <= ChunkOccupancy::kUnits - end;
  }

  // Calls visit(const ChunkPart&) for each hole that is known, from the first to the last.
  template <typename Visit>
  void for_each_hole(uint32_t number, Visit visit) const {
    if (number == kNone) return;
    if (!is_one(number)) return place_of(number).occupancy.for_each_hole(visit);
    const ChunkPart part = part_of(number);
    const uint32_t end = part.first + part.units;
    if (part.first > 0) visit(ChunkPart{0, part.first});
    if (end < ChunkOccupancy::kUnits) visit(ChunkPart{end, ChunkOccupancy::kUnits - end});
  }

  // The chunk is gone.
  void drop(uint32_t number) {
    if (number != kNone && !is_one(number)) recycle(number);
  }

 private:
  // A mapping of 1 MiB for the first map of a process: address space, of which what is used becomes
  // memory.
  static constexpr uint32_t kSlabPlaces = 1024;
  static constexpr uint32_t kSlabs = 384;  // 768 GiB, more than a process may hold on a device

  // In the number of a chunk with one part: this, where the part begins, and its units.
  static constexpr uint32_t kIsOne = uint32_t{1} << 31;
  static constexpr uint32_t kUnitsBits = 13;
  static_assert(ChunkOccupancy::kUnits < 1u << kUnitsBits);
  static_assert(kSlabs * kSlabPlaces < kIsOne);

  static constexpr bool is_one(uint32_t number) { return (number & kIsOne) != 0; }
  static constexpr ChunkPart part_of(uint32_t number) {
    return {(number & ~kIsOne) >> kUnitsBits, number & ((1u << kUnitsBits) - 1)};
  }

  struct Place {
    ChunkOccupancy occupancy;
    uint32_t next;  // of one that was dropped
  };

  Place& place_of(uint32_t number) const {
    return slabs_[(number - 1) / kSlabPlaces][(number - 1) % kSlabPlaces];
  }

  // With this part in it; or kNone.
  [[gnu::noinline]] uint32_t make_map(const ChunkPart& part) {
    const uint32_t number = make_empty_map();
    if (number != kNone) place_of(number).occupancy.take(part);
    return number;
  }

  uint32_t make_empty_map() {
    Locked<SpinLock> lock(lock_);
    if (recycled_ != kNone) {
      const uint32_t number = recycled_;
      recycled_ = place_of(number).next;
      return number;
    }
    if (made_ == kSlabs * kSlabPlaces) return kNone;
    if (made_ % kSlabPlaces == 0) {
      void* const slab = mmap(nullptr, kSlabPlaces * sizeof(Place), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (slab == MAP_FAILED) return kNone;
      slabs_[made_ / kSlabPlaces] = static_cast<Place*>(slab);
    }
    return ++made_;
  }

  [[gnu::noinline]] void recycle(uint32_t number) {
    Place& place = place_of(number);
    place.occupancy.clear();
    Locked<SpinLock> lock(lock_);
    place.next = recycled_;
    recycled_ = number;
  }

  SpinLock lock_;
  uint32_t made_ = 0;
  uint32_t recycled_ = kNone;
  Place* slabs_[kSlabs] = {};
};

}  // namespace fracgpu
