// Small allocations: blocks of whole 512-byte units inside 2 MiB chunks, each chunk belonging to
// one context. The smallest free block that fits is taken, in constant time by bitmap; neighbours
// merge when they are freed, and an empty chunk is handed back. All bookkeeping is outside the
// (imaginary) device memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sim {

inline constexpr uint32_t kUnit = 512;
inline constexpr uint32_t kUnits = 4096;  // per chunk

struct Range;

class SmallHeap {
 public:
  struct Place {
    uint32_t chunk = 0;
    uint32_t unit = 0;
  };

  SmallHeap();
  // False when no chunk has a free block that long: add one and ask again.
  bool take(uint32_t bytes, Place* place);
  uint32_t add_chunk(Range* range);
  // True if a block was allocated exactly there; sets *empty when its chunk holds nothing any more.
  bool give_back(Place place, bool* empty);
  void remove_chunk(uint32_t chunk);
  // The allocated block around a unit: its first unit and the bytes that were asked for.
  bool find(Place inside, uint32_t* first, uint32_t* bytes) const;
  Range* range(uint32_t chunk) const { return chunks_[chunk].range; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum : uint16_t { kStart = 1, kEnd = 2, kUsed = 4 };
  // Meaningful only at the first and the last unit of a block; zero inside one.
  struct Unit {
    uint16_t length;
    uint16_t state;
    uint32_t previous_or_bytes;
    uint32_t next;
  };
  struct Chunk {
    std::unique_ptr<Unit[]> unit;
    Range* range = nullptr;
  };

  Unit& at(uint32_t index) { return chunks_[index / kUnits].unit[index % kUnits]; }
  void mark(uint32_t first, uint32_t length, bool used);
  void erase(uint32_t first, uint32_t length);
  void link(uint32_t first, uint32_t length);
  void unlink(uint32_t first, uint32_t length);

  std::vector<Chunk> chunks_;
  std::vector<uint32_t> spare_;       // chunk numbers without memory
  std::unique_ptr<uint32_t[]> head_;  // first free block of each length
  uint64_t words_[kUnits / 64 + 1] = {};
  uint64_t summary_[2] = {};
};

}  // namespace sim
