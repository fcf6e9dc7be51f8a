// The state of memory while a recording is read. It applies events one by one, and keeps the
// greatest moments and the totals over all time.
//
// An event costs one look-up and a few additions, because there may be a hundred million of them.
// The composition of memory is not copied at each new peak. Instead, each value remembers its
// amount at the peak when it changes afterwards (AtMoment).
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/report/analysis.h"
#include "tools/report/pool_chunks.h"
#include "tools/report/timeline.h"

namespace fracgpu::tools::report {

class Memory {
 public:
  Memory(const Choice& choice, const recording::Tables& tables);

  void apply(const recording::Event& event);  // (memory_events.cc)

  // `begin_span` starts the reported span: existing memory stays, and the history is forgotten.
  // `end_span` ends the span here if the last event is earlier. (memory_span.cc)
  void begin_span(uint64_t time_ns);
  void end_span(uint64_t time_ns);

  // Ends the timelines, and moves all results into `analysis`, unsorted. (memory_results.cc)
  void finish(Analysis& analysis);

 private:
  struct Amounts {
    uint64_t taken = 0, live = 0, count = 0;  // `taken` as in Part
    bool operator==(const Amounts&) const = default;
  };
  // One call stack of one process on one device. The fields that each event needs come first.
  struct Cell {
    uint32_t process = recording::kNone, device = recording::kNone, stack = 0;
    recording::MemoryKind kind = recording::MemoryKind::linear;
    uint32_t use = 0;
    Amounts now{};
    AtMoment<Amounts> of_device{}, of_use{};  // at the peak of either
    uint64_t allocations = 0, allocated_bytes = 0, releases = 0, most_live = 0;
    uint64_t carried = 0;     // what existed at the beginning of the span
    double lifetimes_ns = 0;  // less the allocation times of live memory
    uint64_t left_count = 0, left_bytes = 0;
    uint64_t temporary_count = 0, temporary_bytes = 0;
  };
  struct PoolState {
    Pool pool{};
    uint64_t reserved = 0, live = 0;
    PoolChunks chunks{};
    uint64_t unused() const { return reserved - std::min(reserved, live); }
    uint64_t returnable() const;
  };
  struct LevelKey {
    recording::MemoryKind kind;
    uint64_t owner;
    bool operator==(const LevelKey&) const = default;
  };
  struct LevelHash {
    size_t operator()(const LevelKey& key) const;
  };
  struct UseState {
    ProcessUse use{};
    uint32_t device = 0;  // in devices_
    Sums now{};
    AtMoment<uint64_t> taken{};  // now.taken, at the peak of the timeline's stretch
    uint64_t moment = 1;         // the peak of `taken`
    uint64_t last_address = 0;   // of its last allocation
    std::vector<uint32_t> cells{};
    std::unordered_map<uint32_t, ThreadUse> threads{};
    ThreadUse* last_thread = nullptr;  // of the last event: the next one is mostly by the same
    std::unordered_map<LevelKey, uint64_t, LevelHash> levels{};
    std::unordered_map<uint64_t, PoolState> pools{};
  };
  // The greatest moment of a stretch that has not ended yet.
  struct Stretch {
    uint64_t end_ns = 0, moment = 1;
    uint64_t time_ns = 0, cap = 0;
    Sums sums{};
    ByKind by_kind{};
  };
  struct DeviceState {
    explicit DeviceState(const Choice& choice) : points(choice.points), moments(choice.moments) {}
    DeviceUse use{};
    Sums now{};
    ByKind by_kind{};
    std::vector<uint32_t> uses{};
    Stretch point{}, moment{};
    Timeline<Point> points;
    Timeline<Moment> moments;
  };

  uint32_t device_of(uint32_t device);
  uint32_t use_of(uint32_t process, uint32_t device);
  Cell& cell_of(uint32_t process, uint32_t device, recording::MemoryKind kind, uint32_t stack);
  uint32_t number_of(uint32_t process, uint32_t device, recording::MemoryKind kind, uint32_t stack);
  ProcessLife& life_of(uint32_t process);
  static ThreadUse& thread_of(UseState& use, uint32_t thread);

  void allocate(const recording::Event& event);
  void release(const recording::Event& event);
  void set_level(const recording::Event& event);
  void refuse(const recording::Event& event);
  void end_process(uint32_t process);

  // Adds the amounts to a cell and its totals. A negative amount subtracts.
  void change(Cell& cell, uint64_t taken, uint64_t live, uint64_t count);
  void change_taken(UseState& use, uint64_t by);
  // `change_chunks(PoolChunks&)` changes the pool's chunks accordingly.
  template <typename ChangeChunks>
  void change_pool(UseState& use, uint64_t owner, uint64_t reserved_by, uint64_t live_by,
                   ChangeChunks change_chunks);
  void note_pool(UseState& use, PoolState& state, uint64_t unused, uint64_t returnable);
  void note_fragmentation(PoolState& state);
  PoolState& pool_of(UseState& use, uint64_t owner);
  void release_all(UseState& use);
  void note_peaks(UseState& use);

  void go_on_to(DeviceState& device, uint64_t time_ns);
  void see(const DeviceState& device, Stretch& stretch, uint64_t time_ns);
  void end_point(DeviceState& device);
  void end_moment(DeviceState& device);
  std::vector<Part> parts_of_device(const DeviceState& device) const;
  void finish_device(DeviceState& device);
  void finish_use(UseState& use);

  const Choice& choice_;
  const recording::Tables& tables_;
  uint64_t now_ns_ = 0;
  uint64_t from_ns_ = 0;
  std::unordered_map<uint64_t, uint32_t> cell_numbers_, use_numbers_, device_numbers_;
  std::vector<uint32_t> last_cells_;  // by stack: most have one cell, found without a hash
  std::vector<Cell> cells_;
  std::vector<UseState> uses_;
  std::vector<DeviceState> devices_;
  std::unordered_map<uint32_t, std::vector<uint32_t>> uses_of_process_;
  std::vector<ProcessLife> processes_;
  std::vector<Refusal> refusals_;
  std::vector<Mark> marks_;
  std::vector<Pool> ended_pools_;
  uint64_t events_ = 0, allocations_ = 0, releases_ = 0, refusals_total_ = 0, dropped_ = 0,
           unmatched_ = 0;
};

}  // namespace fracgpu::tools::report
