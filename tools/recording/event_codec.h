// Events as columns of a chunk; format.h describes them.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/recording/event.h"
#include "tools/recording/format.h"
#include "tools/recording/table_codec.h"
#include "tools/recording/varint.h"

namespace fracgpu::recording {

// Numbers for live allocations. Writer and reader assign them alike. An allocation gets the number
// of the last released allocation of its size, because drivers tend to return the same address
// then.
class Slots {
 public:
  struct Slot {
    uint64_t address = 0, bytes = 0, taken = 0, owner = 0;
    uint32_t device = kNone, stack = 0;
    uint32_t size_class = 0;
    uint32_t next = kNone;  // of the released ones of the class
    MemoryKind kind = MemoryKind::linear;
    bool lives = false;
  };

  Slots() : released_(kSizeClasses, kNone) {}

  // The slot then still has the address of its previous allocation.
  uint32_t take(const Event& allocated);
  // The slot must be live.
  void release(uint32_t slot);
  Slot& operator[](uint32_t slot) { return slots_[slot]; }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  // Whether `take` would forget all other slots first.
  bool forgets(const Event& allocated) const {
    return slots_.size() == kSlots && released_[size_class_of(allocated)] == kNone;
  }

 private:
  static constexpr uint32_t kSizeClasses = 1 << 14;  // different sizes sometimes share a class
  static uint32_t size_class_of(const Event& allocated);

  std::vector<Slot> slots_;
  std::vector<uint32_t> released_;  // the last one of each class
};

template <typename Whole, typename Split>
struct Columns {
  Whole shapes{}, rules{};
  Split codes{}, times{}, sizes{}, addresses{}, slots{};

  // In the order of the file.
  std::array<Whole*, 12> all() {
    return {&shapes,     &codes.high, &codes.low,      &times.high,    &times.low,  &rules,
            &sizes.high, &sizes.low,  &addresses.high, &addresses.low, &slots.high, &slots.low};
  }
};
using EncodedColumns = Columns<Encoder, SplitEncoder>;
using DecodedColumns = Columns<Decoder, SplitDecoder>;

// The common fields of events, and the size of the last such event.
struct Shape {
  Event event{};
  uint64_t bytes = 0, taken = 0;
};

class EventEncoder {
 public:
  void add(const Event& event, EncodedColumns& columns);

 private:
  struct Hash {
    size_t operator()(const Event& shape) const;
  };
  struct Place {
    uint64_t address;
    uint32_t process;
    bool operator==(const Place&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const Place& place) const;
  };

  uint32_t take_slot(const Event& event);
  uint32_t shape_of(const Event& shape, EncodedColumns& columns, uint64_t& told);
  bool tell_size(const Event& event, Shape& shape, EncodedColumns& columns);

  std::unordered_map<Event, uint32_t, Hash> numbers_;
  std::vector<Shape> shapes_;
  uint32_t next_shape_ = 0;
  std::unordered_map<Place, uint32_t, PlaceHash> living_;
  Slots slots_;
  uint64_t last_time_ = 0, last_address_ = 0;
};

class EventDecoder {
 public:
  // Starts a chunk's columns: the next events come from them. `sizes`: the sizes of the tables.
  void open(const DecodedColumns& columns, const TableSizes& sizes);
  // Throws Damage.
  void next(Event& event);
  // Whether all columns are fully read.
  bool at_end() const;

 private:
  void add_shape();
  void read_size(Shape& shape);

  DecodedColumns columns_;
  const TableSizes* sizes_ = nullptr;
  std::vector<Shape> shapes_;
  uint32_t next_shape_ = 0;
  Slots slots_;
  uint64_t last_time_ = 0, last_address_ = 0;
};

}  // namespace fracgpu::recording
