// Free lists and the page index of a simulated device address space.
// Free runs are kept by their exact length and never merged: with 64 TiB to hand out, fresh
// addresses last longer than any test, and every operation is constant time. A longer run is cut
// only once fresh addresses are gone.
#include "sim/cuda/space.h"

namespace sim {
namespace {
constexpr uint64_t kCommon = 1024;
}

uint64_t AddressSpace::take(uint64_t pages, Range* range) {
  uint64_t address = 0;
  std::vector<uint64_t>* list = nullptr;
  if (pages < kCommon) {
    if (free_.empty()) free_.resize(kCommon);
    list = &free_[pages];
  } else if (const auto found = free_large_.find(pages); found != free_large_.end()) {
    list = &found->second;
  }
  if (list != nullptr && !list->empty()) {
    address = list->back();
    list->pop_back();
  } else if (pages <= (end_ - next_) >> kShift) {
    address = next_;
    next_ += pages << kShift;
  } else {
    for (uint64_t longer = pages + 1; longer < kCommon && address == 0; ++longer) {
      if (free_.empty() || free_[longer].empty()) continue;
      address = free_[longer].back();
      free_[longer].pop_back();
      give_back(address + (pages << kShift), longer - pages);
    }
    for (auto& [longer, runs] : free_large_) {
      if (address != 0) break;
      if (longer <= pages || runs.empty()) continue;
      address = runs.back();
      runs.pop_back();
      give_back(address + (pages << kShift), longer - pages);
      break;  // the map may have grown
    }
    if (address == 0) return 0;
  }
  slot(address) = range;
  return address;
}

void AddressSpace::give_back(uint64_t address, uint64_t pages) {
  slot(address) = nullptr;
  if (pages < kCommon) {
    if (free_.empty()) free_.resize(kCommon);
    free_[pages].push_back(address);
  } else {
    free_large_[pages].push_back(address);
  }
}

Range*& AddressSpace::slot(uint64_t address) {
  const uint64_t page = (address - begin_) >> kShift;
  const uint64_t leaf = page / kLeaf;
  if (leaf >= leaves_.size()) leaves_.resize(leaf + 1);
  if (leaves_[leaf] == nullptr) leaves_[leaf] = std::make_unique<Range*[]>(kLeaf);
  return leaves_[leaf][page % kLeaf];
}

Range* AddressSpace::starting_at(uint64_t address) const {
  if (!contains(address)) return nullptr;
  const uint64_t page = (address - begin_) >> kShift;
  const uint64_t leaf = page / kLeaf;
  if (leaf >= leaves_.size() || leaves_[leaf] == nullptr) return nullptr;
  return leaves_[leaf][page % kLeaf];
}

Range* AddressSpace::at_or_below(uint64_t address) const {
  if (!contains(address)) return nullptr;
  for (uint64_t page = (address - begin_) >> kShift;; --page) {
    if (Range* range = starting_at(begin_ + (page << kShift))) return range;
    if (page == 0) return nullptr;
  }
}

}  // namespace sim
