// What a recording tells: everything that `fracgpu report` shows, in whatever form, comes from
// here.
//
// It is made in one pass, in memory that does not grow with the number of events: a timeline keeps
// its number of points by making each of them stand for a longer time, and each keeps the greatest
// moment of its time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/recording/event.h"
#include "tools/recording/reader.h"

namespace fracgpu::tools::report {

// Bytes; event.h says what they mean. What pools hold and could give back, `taken` - `needed`, is
// of each pool what it has reserved, less the chunks in which something lives (pool_chunks.h).
struct Sums {
  uint64_t taken = 0, live = 0, needed = 0;
  bool operator==(const Sums&) const = default;
};

// `taken`, by MemoryKind. Here and in Part, `pool` is what lives in pools, and `reserved` what
// pools have reserved beyond that, so that all kinds add up to `taken`.
using ByKind = std::array<uint64_t, recording::kMemoryKinds>;

// What one process had by one call stack, at one moment.
struct Part {
  uint32_t process = recording::kNone;
  recording::MemoryKind kind = recording::MemoryKind::linear;
  uint32_t stack = 0;  // 0: none was taken, or no call stands for it
  uint64_t taken = 0;  // bytes; parts add up to Sums::taken, or more where pools are overfull
  uint64_t live = 0;   // bytes; parts add up to Sums::live
  uint64_t count = 0;  // of allocations
  bool operator==(const Part&) const = default;
};

// What memory was made of at a moment; the largest part first.
struct Moment {
  uint64_t time_ns = 0;
  Sums sums{};
  ByKind by_kind{};
  std::vector<Part> parts{};
};

struct ProcessShare {
  uint32_t process = recording::kNone;
  uint64_t taken = 0;
};

// A stretch of the timeline, by the moment in it at which the most was taken.
struct Point {
  uint64_t time_ns = 0;                    // of that moment
  Sums sums{};                             // then
  ByKind by_kind{};                        // then
  std::vector<ProcessShare> by_process{};  // then; none that had nothing
  uint64_t cap = 0;                        // then; 0: none
};

// The most that there was of something, and when first.
struct Peak {
  uint64_t bytes = 0, time_ns = 0;
};

// Of allocations of at least 2^i and less than 2^(i+1) bytes; those of none are in [0] too.
struct SizeClass {
  uint64_t count = 0, bytes = 0;
};
using Sizes = std::array<SizeClass, 64>;

struct DeviceUse {
  uint32_t device = recording::kNone;  // kNone: of what the recorder did not know the device
  Peak taken{}, live{}, needed{};
  Moment peak{};  // of `taken`
  Sums at_end{};
  uint64_t cap = 0;               // the last one; 0: none
  std::vector<Point> timeline{};  // at most Choice::points, in order of time
  std::vector<Moment> moments{};  // at most Choice::moments: the same, coarser, with all parts
  Sizes sizes{};
  uint64_t refusals = 0;
};

// One process on one device.
struct ProcessUse {
  uint32_t process = recording::kNone, device = recording::kNone;
  Peak taken{}, live{}, needed{};
  Moment peak{};  // of `taken`
  Sums at_end{};  // when it ended, or the recording
  uint64_t refusals = 0;
};

// One call stack of one process on one device, over all time. What it left is what had not been
// released when the process ended, or the recording: a leak, or what lives as long as the process.
struct Site {
  uint32_t process = recording::kNone, device = recording::kNone;
  recording::MemoryKind kind = recording::MemoryKind::linear;
  uint32_t stack = 0;
  uint64_t allocations = 0, allocated_bytes = 0;
  uint64_t releases = 0;
  uint64_t left_count = 0, left_bytes = 0;
  uint64_t most_live = 0;         // bytes at once
  uint64_t mean_lifetime_ns = 0;  // of its allocations; of those left, until the end
  // Released before the process allocated anything else on the device.
  uint64_t temporary_count = 0, temporary_bytes = 0;
};

// One thread of one process on one device: what it allocated, and released.
struct ThreadUse {
  uint32_t process = recording::kNone, device = recording::kNone;
  uint32_t thread = 0;  // kernel's thread id, as the process's own namespace has it
  uint64_t allocations = 0, allocated_bytes = 0, releases = 0, released_bytes = 0;
};

// One pool. Its fragmentation is what it has reserved and nobody uses.
struct Pool {
  uint32_t process = recording::kNone, device = recording::kNone;
  uint64_t owner = 0;  // which of the process's pools
  struct Look {
    uint64_t time_ns = 0, reserved = 0, live = 0;  // bytes
    uint64_t unused() const { return reserved > live ? reserved - live : 0; }
  };
  Look peak{};   // when the most was reserved
  Look worst{};  // when the most was reserved and not used, for a millisecond at least
  Look at_end{};
  uint64_t allocations = 0, allocated_bytes = 0;
};

struct Refusal {
  recording::Event event{};    // of EventType::refused
  uint64_t unused_own = 0;     // bytes that pools of the process itself could have given back
  uint64_t unused_others = 0;  // and those of the others on the device
  ProcessShare largest{};      // who had the most of the device then
};

struct ProcessLife {
  bool ended = false;
  uint64_t how = recording::kExited;  // it ended; of one that did
  uint64_t ended_ns = 0;
  uint64_t dropped = 0;  // events that are missing
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
      damage{};  // what is wrong with the file, in one line; all else is of what precedes it

  uint64_t duration_ns = 0;  // to the last event, or the end of the span
  uint64_t from_ns = 0;      // the span's beginning
  bool is_span = false;      // not all of the recording
  uint64_t events = 0, allocations = 0, releases = 0, refusals_total = 0;
  uint64_t dropped = 0;    // events that the recorder could not keep
  uint64_t unmatched = 0;  // releases of what no event had allocated

  std::vector<DeviceUse> devices{};      // those with events, in the recording's order
  std::vector<ProcessUse> uses{};        // those with events, the greatest peak first
  std::vector<ProcessLife> processes{};  // as Tables::processes
  std::vector<Site> sites{};             // the most allocated bytes first
  std::vector<ThreadUse> threads{};      // the most allocated bytes first
  std::vector<Pool> pools{};             // the greatest fragmentation first
  std::vector<Refusal> refusals{};       // the first kMostRefusals, in order
  std::vector<Mark> marks{};             // the first kMostMarks, in order
};

inline constexpr size_t kMostRefusals = 10'000, kMostMarks = 1'000;

// Of what, and how fine.
struct Choice {
  std::string device{};   // its index in the recording, or its key or the beginning of it; "": all
  std::string process{};  // a PID, or a command; "": all
  // A span of the recording: peaks and call sites are those in it, and what was not released is
  // what there was at its end.
  uint64_t from_ns = 0, to_ns = UINT64_MAX;
  size_t points = 1024;
  size_t moments = 128;
};

// Throws std::runtime_error with one line where the choice names nothing that is in the recording.
Analysis analyse(recording::Reader& reader, const Choice& choice = {});

}  // namespace fracgpu::tools::report
