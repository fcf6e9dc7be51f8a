// Times of single calls, for p50 and p99. Only one call in 64 is timed, since reading the clock
// twice costs about as much as the calls of interest; the two readings are part of each sample.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "clock.h"

namespace bench {

class Samples {
 public:
  // Makes the call and times it when its turn has come.
  template <typename Call>
  void around(Call call) {
    if (++calls_ % 64 != 0) return call();
    const uint64_t before = now_ns();
    call();
    add(now_ns() - before);
  }

  void add(uint64_t ns) {
    if (times_.size() < kMost) times_.push_back(ns);
  }

  void report(benchmark::State& state) {
    if (times_.empty()) return;
    std::sort(times_.begin(), times_.end());
    state.counters["p50_ns"] = static_cast<double>(times_[times_.size() / 2]);
    state.counters["p99_ns"] = static_cast<double>(times_[times_.size() * 99 / 100]);
  }

 private:
  static constexpr size_t kMost = 1u << 20;

  uint64_t calls_ = 0;
  std::vector<uint64_t> times_;
};

}  // namespace bench
