// What recording adds to a call: pairs of an allocation and a free, from the bottom of a stack of
// so many functions. bench/recording.py runs it with and without a recorder.
//
// Pairs come in bursts that a ring has room for, and who records has time between them. Otherwise
// what is dropped, which is cheap, would be measured. The time is the thread's processor time, so
// that other programs count little.
#include <benchmark/benchmark.h>
#include <time.h>

#include "driver.h"

namespace {

constexpr int kBurst = 4000;  // two records each, of the 16,384 of a ring

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

[[gnu::noinline]] double burst(int depth, size_t bytes, bool pool, void* stream) {
  if (depth > 0) {
    const double seconds = burst(depth - 1, bytes, pool, stream);
    benchmark::ClobberMemory();  // no tail call: each is a frame
    return seconds;
  }
  const bench::Driver& driver = bench::Driver::get();
  const double began = cpu_seconds();
  for (int i = 0; i < kBurst; ++i) {
    unsigned long long pointer = 0;
    if (pool) {
      driver.allocate_async(&pointer, bytes, stream);
      driver.free_async(pointer, stream);
    } else {
      driver.allocate(&pointer, bytes);
      driver.free(pointer);
    }
  }
  return (cpu_seconds() - began) / kBurst;
}

void pairs(benchmark::State& state, size_t bytes, bool pool) {
  const bench::Driver& driver = bench::Driver::get();
  void* stream = nullptr;
  driver.create_stream(&stream, 0);
  for ([[maybe_unused]] auto _ : state) {
    state.SetIterationTime(burst(static_cast<int>(state.range(0)), bytes, pool, stream));
    const timespec rest = {0, 20'000'000};
    nanosleep(&rest, nullptr);
  }
}

}  // namespace

#define PAIRS(name, bytes, pool)              \
  BENCHMARK_CAPTURE(pairs, name, bytes, pool) \
      ->ArgName("depth")                      \
      ->Arg(0)                                \
      ->Arg(30)                               \
      ->Arg(120)                              \
      ->UseManualTime()                       \
      ->Iterations(20)                        \
      ->Unit(benchmark::kNanosecond)
PAIRS(2MiB, 2u << 20, false);
PAIRS(4KiB, 4u << 10, false);
PAIRS(pool, 2u << 20, true);

BENCHMARK_MAIN();
