// Finds out which releases each allocation comes after; see graph_peak.h.
#include "shim/charge/graph_peak.h"

#include <sys/mman.h>

#include <algorithm>

namespace fracgpu {
namespace {

// Zeroed memory straight from the kernel: the shim may sit below the program's malloc.
template <typename T>
class Scratch {
 public:
  explicit Scratch(size_t count) : bytes_(std::max<size_t>(count, 1) * sizeof(T)) {
    // Reached by 11,000 pairs of an allocation and a release in a row, which take 0.3 s; 1,000 take
    // 1 ms, 30,000 would take 2.3 s. Beyond it, the sum of all is the answer.
    constexpr size_t kMostBytes = 64u << 20;
    if (count > kMostBytes / sizeof(T)) return;
    void* const mapped =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) data_ = static_cast<T*>(mapped);
  }
  ~Scratch() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  explicit operator bool() const { return data_ != nullptr; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  size_t bytes_;
  T* data_ = nullptr;
};

struct ByAddress {
  uint64_t key = 0;
  uint32_t step = 0;
};

}  // namespace

bool add_graph_peaks(const GraphStep* steps, size_t step_count, const GraphEdge* edges,
                     size_t edge_count, uint64_t* peaks, int devices) {
  using Kind = GraphStep::Kind;
  // The steps in an order in which they may run, by counting what each still waits for. `next` are
  // the places of a step's successors: those of step i begin at first[i].
  Scratch<uint32_t> order(step_count), waits_for(step_count), first(step_count + 1);
  Scratch<uint32_t> next(edge_count);
  if (!order || !waits_for || !first || !next) return false;
  for (size_t i = 0; i < edge_count; ++i) {
    if (edges[i].from >= step_count || edges[i].to >= step_count) return false;
    ++waits_for[edges[i].to];
    ++first[edges[i].from + 1];
  }
  for (size_t i = 0; i < step_count; ++i) first[i + 1] += first[i];
  {
    Scratch<uint32_t> filled(step_count);
    if (!filled) return false;
    for (size_t i = 0; i < edge_count; ++i) {
      const uint32_t from = edges[i].from;
      next[first[from] + filled[from]++] = edges[i].to;
    }
  }
  size_t ordered = 0;
  for (uint32_t i = 0; i < step_count; ++i) {
    if (waits_for[i] == 0) order[ordered++] = i;
  }
  for (size_t at = 0; at < ordered; ++at) {
    for (uint32_t i = first[order[at]]; i < first[order[at] + 1]; ++i) {
      if (--waits_for[next[i]] == 0) order[ordered++] = next[i];
    }
  }
  if (ordered != step_count) return false;

  // Releases of what this graph allocates, each with a bit, and for each step a set of those that
  // it comes after.
  size_t releases = 0, allocations = 0;
  for (size_t i = 0; i < step_count; ++i) {
    releases += steps[i].kind == Kind::release ? 1 : 0;
    allocations += steps[i].kind == Kind::allocation ? 1 : 0;
  }
  const size_t first_allocation = (releases + 63) / 64 * 64;
  const size_t words = (first_allocation + allocations + 63) / 64;
  Scratch<uint64_t> after(step_count * words);
  Scratch<uint32_t> released(releases);  // the step that allocates what is released
  Scratch<uint32_t> usable(releases);    // from which allocation on it may be used again
  Scratch<uint32_t> missed(releases);    // by how many allocations it may not be used
  Scratch<uint32_t> allocation_of(step_count);
  Scratch<uint32_t> sure_after(allocations + 1);  // see below
  if (!after || !released || !usable || !missed || !allocation_of || !sure_after) return false;
  Scratch<ByAddress> by_address(allocations);
  if (!by_address) return false;
  size_t known = 0;
  for (uint32_t i = 0; i < step_count; ++i) {
    if (steps[i].kind == Kind::allocation) by_address[known++] = {steps[i].address, i};
  }
  const auto earlier = [](const ByAddress& a, const ByAddress& b) { return a.key < b.key; };
  if (known > 0) std::sort(&by_address[0], &by_address[0] + known, earlier);
  const auto allocation_at = [&](uint64_t address) -> int64_t {
    const ByAddress* const begin = &by_address[0];
    const ByAddress* const found =
        std::lower_bound(begin, begin + known, ByAddress{.key = address}, earlier);
    return found != begin + known && found->key == address ? found->step : -1;
  };

  size_t release = 0;
  uint32_t allocation = 0;
  for (size_t at = 0; at < step_count; ++at) {
    const uint32_t step = order[at];
    if (steps[step].kind == Kind::allocation) {
      // What it does not come after may not be used before the next allocation.
      for (size_t bit = 0; bit < releases; ++bit) {
        if ((after[step * words + bit / 64] >> bit % 64 & 1) != 0) continue;
        usable[bit] = allocation + 1;
        ++missed[bit];
      }
      // How many allocations, from the first one on, it is sure to come after.
      uint32_t& sure = sure_after[allocation];
      const auto comes_after = [&](size_t bit) {
        return (after[step * words + bit / 64] >> bit % 64 & 1) != 0;
      };
      while (sure < allocation && comes_after(first_allocation + sure)) ++sure;
      const size_t own = first_allocation + allocation;
      after[step * words + own / 64] |= uint64_t{1} << own % 64;
      allocation_of[step] = allocation++;
    } else if (steps[step].kind == Kind::release) {
      const int64_t made = allocation_at(steps[step].address);
      // Memory of another graph counts for nobody: as if it were never released.
      released[release] = made >= 0 ? static_cast<uint32_t>(made) : UINT32_MAX;
      after[step * words + release / 64] |= uint64_t{1} << release % 64;
      ++release;
    }
    for (uint32_t i = first[step]; i < first[step + 1]; ++i) {
      for (size_t word = 0; word < words; ++word)
        after[next[i] * words + word] |= after[step * words + word];
    }
  }

  // Any order in which the steps may run is as good as this one for the driver. So a release counts
  // only where all allocations that may not use it come before all that may, in every order.
  sure_after[allocations] = UINT32_MAX;
  for (size_t i = allocations; i-- > 0;) sure_after[i] = std::min(sure_after[i], sure_after[i + 1]);
  const auto counts = [&](size_t bit) {
    return released[bit] != UINT32_MAX && missed[bit] == usable[bit] &&
           sure_after[usable[bit]] >= usable[bit];
  };

  // What becomes usable at each allocation, device by device.
  Scratch<uint64_t> becomes_usable(allocations + 1);
  if (!becomes_usable) return false;
  for (int device = 0; device < devices; ++device) {
    bool any = false;
    for (size_t i = 0; i < step_count && !any; ++i)
      any = steps[i].kind == Kind::allocation && steps[i].device == device;
    if (!any) continue;
    for (size_t i = 0; i <= allocations; ++i) becomes_usable[i] = 0;
    for (size_t bit = 0; bit < releases; ++bit) {
      if (counts(bit) && steps[released[bit]].device == device)
        becomes_usable[usable[bit]] += steps[released[bit]].units;
    }
    uint64_t free = 0;
    for (size_t at = 0; at < step_count; ++at) {
      const GraphStep& step = steps[order[at]];
      if (step.kind != Kind::allocation) continue;
      free += becomes_usable[allocation_of[order[at]]];
      if (step.device != device) continue;
      const uint64_t used_again = std::min(free, step.units);
      free -= used_again;
      peaks[device] += step.units - used_again;
    }
  }
  return true;
}

}  // namespace fracgpu
