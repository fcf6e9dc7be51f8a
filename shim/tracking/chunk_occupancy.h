// The parts of the 2 MiB chunks of small allocations that are taken, in units of 512 bytes.
//
// NVIDIA's driver puts a small allocation into a hole of any of a context's chunks that is large
// enough, and takes a new chunk only if there is none (libcuda 470, 535 and 550: each of some 5,000
// addresses in tests/kernel/nvidia/figures_test.py). So the holes show whether a new chunk will be
// needed.
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

  // The driver has given this part to an allocation; `holds(part)`. The part's earlier allocation
  // is gone, but its `release` may come later: other threads free and allocate at the same time.
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

  // An allocation that began there is gone. If another one has taken its place, that one stays.
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

  // Sets everything to zero, as in a new one. Only the words that were used cost time.
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

  // Whether a hole is certainly at least that long.
  bool has_hole(uint32_t units) const {
    if (is_untrusted_) return false;
    uint32_t run = 0;  // free units before the current place
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

  // The end of the run of taken, or of free, units that begins at `at`.
  uint32_t run(uint32_t at, bool taken) const {
    while (at < kUnits) {
      const uint64_t word = taken ? taken_[at / kBits] : ~taken_[at / kBits];
      const auto length = static_cast<uint32_t>(std::countr_one(word >> at % kBits));
      at += length;
      if (length == 0 || at % kBits != 0) break;
    }
    return at;
  }

  // How many units from this one on certainly belong to the same allocation.
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
  Words taken_over_ = {};    // those with an earlier release still to come
  uint64_t used_words_ = 0;  // one bit per word that may have bits set
  static_assert(kUnits / kBits == 64);
  bool is_untrusted_ = false;  // one has two releases to come: which one is whose is not known
};

// The occupancies of all chunks of a process. An entry of the live map keeps the number of its
// chunk's occupancy. Any thread may call any function. A caller with a number holds the lock of its
// entry.
//
// While a chunk has at most one part, its number encodes that part. Programs that make one small
// allocation at a time have only such chunks, and pay for no map.
class ChunkOccupancies {
 public:
  static constexpr uint32_t kNone = 0;  // for a chunk whose parts are not tracked

  // For a chunk with only this part; `ChunkOccupancy::holds(part)`. No units: it is empty.
  static constexpr uint32_t of_one(const ChunkPart& part) {
    return kIsOne | part.first << kUnitsBits | part.units;
  }

  // Adds a part. The number becomes kNone if a map is needed and the host is out of memory, or if
  // there are more maps than a device has chunks. It also becomes kNone for a part in two chunks:
  // no known driver places an allocation so.
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

  // Whether a hole is certainly at least that long.
  bool has_hole(uint32_t number, uint32_t units) const {
    if (!is_one(number)) return number != kNone && place_of(number).occupancy.has_hole(units);
    const ChunkPart part = part_of(number);
    const uint32_t end = part.first + part.units;
    return units <= part.first || units <= ChunkOccupancy::kUnits - end;
  }

  // Calls visit(const ChunkPart&) for each known hole, from the first to the last.
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
  // The first map of a process makes a mapping of 1 MiB: address space, only the used part of which
  // becomes memory.
  static constexpr uint32_t kSlabPlaces = 1024;
  static constexpr uint32_t kSlabs = 384;  // 768 GiB, more than a process may hold on a device

  // The number of a chunk with one part: this bit, the part's beginning, and its units.
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
    uint32_t next;  // free place after this one, once it was dropped
  };

  Place& place_of(uint32_t number) const {
    return slabs_[(number - 1) / kSlabPlaces][(number - 1) % kSlabPlaces];
  }

  // A map with this part; or kNone.
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
