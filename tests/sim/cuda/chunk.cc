// The block lists of the small-allocation heap.
// A block's length and state are written at both its ends, so that a neighbour is found by looking
// one unit away; all inner units are kept clear, so that a pointer into the middle of a block is
// never taken for its start.
#include "sim/cuda/chunk.h"

#include <algorithm>

namespace sim {

SmallHeap::SmallHeap() : head_(new uint32_t[kUnits + 1]) {
  std::fill_n(head_.get(), kUnits + 1, kNone);
}

void SmallHeap::mark(uint32_t first, uint32_t length, bool used) {
  Unit& start = at(first);
  Unit& end = at(first + length - 1);
  const uint16_t flag = used ? kUsed : 0;
  start.state = static_cast<uint16_t>(kStart | flag);
  start.length = static_cast<uint16_t>(length);
  end.state = static_cast<uint16_t>(end.state | kEnd | flag);
  if (length > 1) end.state = static_cast<uint16_t>(kEnd | flag);
  end.length = static_cast<uint16_t>(length);
}

void SmallHeap::erase(uint32_t first, uint32_t length) {
  at(first).state = 0;
  at(first + length - 1).state = 0;
}

void SmallHeap::link(uint32_t first, uint32_t length) {
  Unit& start = at(first);
  start.previous_or_bytes = kNone;
  start.next = head_[length];
  if (start.next != kNone) at(start.next).previous_or_bytes = first;
  head_[length] = first;
  words_[length / 64] |= 1ULL << (length % 64);
  summary_[length / 64 / 64] |= 1ULL << (length / 64 % 64);
}

void SmallHeap::unlink(uint32_t first, uint32_t length) {
  const Unit& start = at(first);
  if (start.next != kNone) at(start.next).previous_or_bytes = start.previous_or_bytes;
  if (start.previous_or_bytes != kNone) {
    at(start.previous_or_bytes).next = start.next;
    return;
  }
  head_[length] = start.next;
  if (start.next != kNone) return;
  words_[length / 64] &= ~(1ULL << (length % 64));
  if (words_[length / 64] == 0) summary_[length / 64 / 64] &= ~(1ULL << (length / 64 % 64));
}

bool SmallHeap::take(uint32_t bytes, Place* place) {
  const uint32_t wanted = (bytes + kUnit - 1) / kUnit;
  uint32_t word = wanted / 64;
  uint64_t bits = words_[word] & (~0ULL << (wanted % 64));
  if (bits == 0) {
    ++word;
    uint32_t group = word / 64;
    if (group > 1) return false;
    uint64_t groups = summary_[group] & (~0ULL << (word % 64));
    if (groups == 0 && group == 0) groups = summary_[group = 1];
    if (groups == 0) return false;
    word = group * 64 + static_cast<uint32_t>(__builtin_ctzll(groups));
    bits = words_[word];
  }
  const uint32_t length = word * 64 + static_cast<uint32_t>(__builtin_ctzll(bits));
  const uint32_t first = head_[length];
  unlink(first, length);
  erase(first, length);
  mark(first, wanted, true);
  at(first).previous_or_bytes = bytes;
  if (length > wanted) {
    mark(first + wanted, length - wanted, false);
    link(first + wanted, length - wanted);
  }
  *place = {first / kUnits, first % kUnits};
  return true;
}

uint32_t SmallHeap::add_chunk(Range* range) {
  uint32_t number;
  if (!spare_.empty()) {
    number = spare_.back();
    spare_.pop_back();
  } else {
    number = static_cast<uint32_t>(chunks_.size());
    chunks_.emplace_back();
    chunks_.back().unit = std::make_unique<Unit[]>(kUnits);
  }
  chunks_[number].range = range;
  mark(number * kUnits, kUnits, false);
  link(number * kUnits, kUnits);
  return number;
}

bool SmallHeap::give_back(Place place, bool* empty) {
  uint32_t first = place.chunk * kUnits + place.unit;
  constexpr uint16_t kWanted = kStart | kUsed;
  if ((at(first).state & kWanted) != kWanted) return false;
  uint32_t length = at(first).length;
  erase(first, length);
  if (first % kUnits != 0) {
    const Unit before = at(first - 1);
    if ((before.state & kUsed) == 0) {
      unlink(first - before.length, before.length);
      erase(first - before.length, before.length);
      first -= before.length;
      length += before.length;
    }
  }
  if ((first + length) % kUnits != 0) {
    const Unit after = at(first + length);
    if ((after.state & kUsed) == 0) {
      unlink(first + length, after.length);
      erase(first + length, after.length);
      length += after.length;
    }
  }
  mark(first, length, false);
  link(first, length);
  *empty = length == kUnits;
  return true;
}

void SmallHeap::remove_chunk(uint32_t chunk) {
  unlink(chunk * kUnits, kUnits);
  erase(chunk * kUnits, kUnits);
  chunks_[chunk].range = nullptr;
  spare_.push_back(chunk);
}

bool SmallHeap::find(Place inside, uint32_t* first, uint32_t* bytes) const {
  const Chunk& chunk = chunks_[inside.chunk];
  for (uint32_t unit = inside.unit;; --unit) {
    const Unit& here = chunk.unit[unit];
    if ((here.state & kStart) != 0) {
      if ((here.state & kUsed) == 0 || unit + here.length <= inside.unit) return false;
      *first = unit;
      *bytes = here.previous_or_bytes;
      return true;
    }
    if (unit == 0) return false;
  }
}

}  // namespace sim
