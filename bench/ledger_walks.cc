// What walks over all devices or all processes of a tenant, on ledgers of 1 to 128 devices and 1 to
// 1,000 processes: the ledger alone, without a driver, so there is no pair to compare. Each process
// is a Ledger of this one, with a slot and its lock; they are as many to the kernel.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "shim/ledger/ledger.h"

namespace {

using namespace fracgpu;

constexpr uint64_t kCap = uint64_t{64} << 30;

void require(bool condition, const Message& error) {
  if (condition) return;
  std::fprintf(stderr, "the ledger: %s\n", error.c_str());
  std::exit(1);
}

// Everybody holds a little on every device.
class Tenant {
 public:
  Tenant(int64_t devices, int64_t processes) {
    for (int64_t i = 0; i < processes; ++i) {
      members_.push_back(std::make_unique<Ledger>());
      join(*members_.back());
      for (int64_t device = 0; device < devices; ++device) use(*members_.back(), device);
    }
  }
  ~Tenant() { unlink(first().path()); }
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;

  Ledger& first() { return *members_.front(); }

  void join(Ledger& ledger) {
    Message error;
    require(ledger.join(name_.c_str(), ProcessIdentity::of_self(), nullptr, error), error);
  }
  static void use(Ledger& ledger, int64_t device) {
    Message error;
    Refusal refusal;
    const int index = ledger.device(key(device).c_str(), kCap, kCap, error);
    require(index >= 0 && ledger.reserve(index, 100, refusal), error);
  }
  static std::string key(int64_t device) { return "GPU-bench-" + std::to_string(device); }

 private:
  const std::string name_ = "bench-" + std::to_string(getpid());
  std::vector<std::unique_ptr<Ledger>> members_;
};

void memory_info(benchmark::State& state) {
  Tenant tenant(state.range(0), state.range(1));
  for (auto _ : state) benchmark::DoNotOptimize(tenant.first().held(0));
}

void find_the_last_device(benchmark::State& state) {
  Tenant tenant(state.range(0), state.range(1));
  const std::string key = Tenant::key(state.range(0) - 1);
  for (auto _ : state) benchmark::DoNotOptimize(tenant.first().find_device(key.c_str()));
}

// With looking for the dead, which asks the kernel about each process.
void look_for_the_dead(benchmark::State& state) {
  Tenant tenant(state.range(0), state.range(1));
  for (auto _ : state) benchmark::DoNotOptimize(tenant.first().reap_dead());
}

// A process that comes, holds something on one device and dies.
void join_and_die(benchmark::State& state) {
  Tenant tenant(state.range(0), state.range(1));
  for (auto _ : state) {
    Ledger ledger;
    tenant.join(ledger);
    Tenant::use(ledger, 0);
  }
}

void explain_a_refusal(benchmark::State& state) {
  Tenant tenant(state.range(0), state.range(1));
  Refusal refusal;
  for (auto _ : state) tenant.first().explain(0, 1, refusal);
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"devices", "processes"});
  for (const auto& shape : {std::pair{1, 1}, {1, 64}, {1, 1000}, {64, 1}, {64, 64}, {128, 1}}) {
    benchmark->Args({shape.first, shape.second});
  }
}

BENCHMARK(memory_info)->Apply(shapes);
BENCHMARK(find_the_last_device)->Apply(shapes);
BENCHMARK(look_for_the_dead)->Apply(shapes);
BENCHMARK(join_and_die)->Apply(shapes);
BENCHMARK(explain_a_refusal)->Apply(shapes);

}  // namespace

BENCHMARK_MAIN();
