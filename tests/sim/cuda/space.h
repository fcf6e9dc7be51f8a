// The device address space of one process: 2 MiB pages, and the ranges that occupy them.
// Pages are handed out from free lists, last returned first, so that addresses are reused at once
// as on the real driver. A second, small arena under 4 GiB serves the oldest calls, whose pointers
// have 32 bits.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace sim {

struct Range;

class AddressSpace {
 public:
  static constexpr int kShift = 21;
  AddressSpace(uint64_t begin, uint64_t end) : begin_(begin), next_(begin), end_(end) {}

  // The first address, or 0 when the space is used up.
  uint64_t take(uint64_t pages, Range* range);
  void give_back(uint64_t address, uint64_t pages);
  bool contains(uint64_t address) const { return address >= begin_ && address < end_; }
  // The range whose first page is this one.
  Range* starting_at(uint64_t page_address) const;
  // The nearest range that starts at or below an address and may reach it.
  Range* at_or_below(uint64_t address) const;

 private:
  static constexpr uint64_t kLeaf = 4096;
  Range*& slot(uint64_t address);

  uint64_t begin_, next_, end_;
  std::vector<std::unique_ptr<Range*[]>> leaves_;
  std::vector<std::vector<uint64_t>> free_;  // by number of pages, for the common small numbers
  std::unordered_map<uint64_t, std::vector<uint64_t>> free_large_;
};

}  // namespace sim
