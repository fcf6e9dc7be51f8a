// The analysis of a recording. Everything that `fracgpu report` shows, in any format, comes from
// here.
//
// It takes one pass, and its memory does not grow with the number of events. A timeline limits its
// number of points by making each of them cover a longer time. Each point keeps the greatest moment
// of its time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/recording/event.h"
#include "tools/recording/reader.h"

namespace fracgpu::tools::report {

// In bytes; event.h defines the fields. `taken` - `needed` is the memory that pools hold and could
// give back: for each pool, the reserved memory less the chunks that contain live memory
// (pool_chunks.h).
struct Sums {
  uint64_t taken = 0, live = 0, needed = 0;
  bool operator==(const Sums&) const = default;
};

// `taken`, by MemoryKind. Here and in Part, `pool` is the live memory in pools, and `reserved` is
// the memory that pools have reserved beyond that. So all kinds add up to `taken`.
using ByKind = std::array<uint64_t, recording::kMemoryKinds>;

// The memory of one process by one call stack, at one moment.
struct Part {
  uint32_t process = recording::kNone;
  recording::MemoryKind kind = recording::MemoryKind::linear;
  uint32_t stack = 0;  // 0: no stack was taken, or the memory belongs to no call
  uint64_t taken = 0;  // bytes; parts add up to Sums::taken, or more where pools are overfull
  uint64_t live = 0;   // bytes; parts add up to Sums::live
  uint64_t count = 0;  // number of allocations
  bool operator==(const Part&) const = default;
};

// The composition of memory at a moment, the largest part first.
struct Moment {
  uint64_t time_ns = 0;
  Sums sums{};
  ByKind by_kind{};
  std::vector<Part> parts{};
  uint64_t cap = 0;  // of the device, at that moment; 0: none
};

struct ProcessShare {
  uint32_t process = recording::kNone;
  uint64_t taken = 0;
};

// A stretch of the timeline, represented by its moment with the most memory taken.
struct Point {
  uint64_t time_ns = 0;                    // of that moment
  Sums sums{};                             // at that moment
  ByKind by_kind{};                        // at that moment
  std::vector<ProcessShare> by_process{};  // at that moment; only processes with memory
  uint64_t cap = 0;                        // at that moment; 0: none
};

// The maximum of an amount, and the first time of it.
struct Peak {
  uint64_t bytes = 0, time_ns = 0;
};

// Allocations of at least 2^i and less than 2^(i+1) bytes. [0] also has those of 0 bytes.
struct SizeClass {
  uint64_t count = 0, bytes = 0;
};
using Sizes = std::array<SizeClass, 64>;

struct DeviceUse {
  uint32_t device = recording::kNone;  // kNone: the recorder did not know the device
  Peak taken{}, live{}, needed{};
  Moment peak{};  // of `taken`
  Sums at_end{};
  uint64_t cap = 0;               // the last one; 0: none
  std::vector<Point> timeline{};  // at most Choice::points, in order of time
  std::vector<Moment> moments{};  // at most Choice::moments: likewise, coarser, with all parts
  Sizes sizes{};
  uint64_t refusals = 0;
};

// One process on one device.
struct ProcessUse {
  uint32_t process = recording::kNone, device = recording::kNone;
  Peak taken{}, live{}, needed{};
  Moment peak{};  // of `taken`
  Sums at_end{};  // when the process or the recording ended
  uint64_t refusals = 0;
};

// One call stack of one process on one device, over all time. Its `left_*` fields count allocations
// that were not released when the process or the recording ended: a leak, or memory that lives as
// long as the process.
struct Site {
  uint32_t process = recording::kNone, device = recording::kNone;
  recording::MemoryKind kind = recording::MemoryKind::linear;
  uint32_t stack = 0;
  uint64_t allocations = 0, allocated_bytes = 0;
  uint64_t releases = 0;
  uint64_t left_count = 0, left_bytes = 0;
  uint64_t most_live = 0;         // bytes at once
  uint64_t mean_lifetime_ns = 0;  // of its allocations; of those left, until the end
  // Allocations that were released before the process allocated anything else on the device.
  uint64_t temporary_count = 0, temporary_bytes = 0;
};

// The allocations and releases of one thread of one process on one device.
struct ThreadUse {
  uint32_t process = recording::kNone, device = recording::kNone;
  uint32_t thread = 0;  // kernel's thread id, as the process's own namespace has it
  uint64_t allocations = 0, allocated_bytes = 0, releases = 0, released_bytes = 0;
};

// One pool. Its fragmentation is its reserved and unused memory.
struct Pool {
  uint32_t process = recording::kNone, device = recording::kNone;
  uint64_t owner = 0;  // identifies the pool within the process
  struct Look {
    uint64_t time_ns = 0, reserved = 0, live = 0;  // bytes
    uint64_t unused() const { return reserved > live ? reserved - live : 0; }
  };
  Look peak{};   // when the most was reserved
  Look worst{};  // with the most unused memory, for a millisecond at least
  Look at_end{};
  uint64_t allocations = 0, allocated_bytes = 0;
};

struct Refusal {
  recording::Event event{};    // of EventType::refused
  uint64_t unused_own = 0;     // bytes that the process's own pools could have given back
  uint64_t unused_others = 0;  // the same for other processes on the device
  ProcessShare largest{};      // the process with the most memory then
};

struct ProcessLife {
  bool ended = false;
  uint64_t how = recording::kExited;  // how it ended, if it did
  uint64_t ended_ns = 0;
  uint64_t dropped = 0;  // missing events
};

struct Mark {
  uint64_t time_ns = 0;
  uint32_t process = recording::kNone;
  std::string text{};
};

struct Analysis {
  recording::Header header{};
  recording::Tables tables{};
  std::string
      damage{};  // what is wrong with the file, in one line; all else describes the data before it

  uint64_t duration_ns = 0;  // to the last event, or to the end of the span
  uint64_t from_ns = 0;      // the span's beginning
  bool is_span = false;      // not the whole recording
  uint64_t events = 0, allocations = 0, releases = 0, refusals_total = 0;
  uint64_t dropped = 0;    // events that the recorder could not keep
  uint64_t unmatched = 0;  // releases without a recorded allocation

  std::vector<DeviceUse> devices{};      // those with events, in the recording's order
  std::vector<ProcessUse> uses{};        // those with events, the greatest peak first
  std::vector<ProcessLife> processes{};  // as Tables::processes
  std::vector<Site> sites{};             // the most allocated bytes first
  std::vector<ThreadUse> threads{};      // the most allocated bytes first
  std::vector<Pool> pools{};             // the greatest fragmentation first
  std::vector<Refusal> refusals{};       // the first kMostRefusals, in order
  std::vector<Mark> marks{};  // the first kMostMarks, and later ones of no process, in order
};

inline constexpr size_t kMostRefusals = 10'000, kMostMarks = 1'000;

// The part of the recording to analyse, and the resolution.
struct Choice {
  std::string device{};   // its index, or its key or the beginning of it; "": all
  std::string process{};  // a PID, or a command; "": all
  // A span of the recording. Peaks and call sites are those in the span. Memory counts as not
  // released if it exists at the end of the span.
  uint64_t from_ns = 0, to_ns = UINT64_MAX;
  size_t points = 1024;
  size_t moments = 128;
};

// Throws std::runtime_error with one line if the choice selects nothing in the recording.
Analysis analyse(recording::Reader& reader, const Choice& choice = {});

}  // namespace fracgpu::tools::report
