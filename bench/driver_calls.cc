// Benchmarks of the driver calls of one process, and of starting processes. Needs no argument; run
// it with and without the library preloaded, or let run.py do both and compare.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "crowd.h"
#include "driver.h"
#include "samples.h"

namespace bench {
namespace {

constexpr size_t kSmall = 4u << 10;  // shares a chunk with others
constexpr size_t kWhole = 2u << 20;  // has pages of its own

// Allocations that stay while a benchmark runs. Kept between benchmarks, because making a million
// takes longer than measuring beside them, and every benchmark is entered several times.
class LiveSet {
 public:
  bool resize(size_t bytes, size_t count) {
    const Driver& driver = Driver::get();
    while (!pointers_.empty() && (bytes != bytes_ || pointers_.size() > count)) {
      driver.free(pointers_.back());
      pointers_.pop_back();
    }
    bytes_ = bytes;
    pointers_.reserve(count);
    while (pointers_.size() < count) {
      unsigned long long pointer = 0;
      if (driver.allocate(&pointer, bytes) != 0) return false;
      pointers_.push_back(pointer);
    }
    return true;
  }

  unsigned long long& any() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return pointers_[random_ % pointers_.size()];
  }

 private:
  size_t bytes_ = 0;
  std::vector<unsigned long long> pointers_;
  uint64_t random_ = 0x9e3779b97f4a7c15;
};
LiveSet live;

template <typename Call>
void measure(benchmark::State& state, Call call) {
  Samples samples;
  for (auto _ : state) samples.around(call);
  samples.report(state);
}

// One more allocation beside the live ones, and its release: what a burst does.
void alloc_free(benchmark::State& state, size_t bytes) {
  const Driver& driver = Driver::get();
  if (!live.resize(bytes, static_cast<size_t>(state.range(0)))) {
    return state.SkipWithError("the device has no room for the live allocations");
  }
  int failed = 0;
  measure(state, [&] {
    unsigned long long pointer = 0;
    failed |= driver.allocate(&pointer, bytes);
    failed |= driver.free(pointer);
  });
  if (failed != 0) state.SkipWithError("a call failed");
}

// Frees any of the live ones and allocates again, so that the tables are cold: what a long-lived
// program does.
void replace(benchmark::State& state, size_t bytes) {
  const Driver& driver = Driver::get();
  if (!live.resize(bytes, static_cast<size_t>(state.range(0)))) {
    return state.SkipWithError("the device has no room for the live allocations");
  }
  int failed = 0;
  measure(state, [&] {
    unsigned long long& pointer = live.any();
    failed |= driver.free(pointer);
    failed |= driver.allocate(&pointer, bytes);
  });
  if (failed != 0) state.SkipWithError("a call failed");
}

BENCHMARK_CAPTURE(alloc_free, 4KiB, kSmall)
    ->ArgName("live")
    ->Arg(1)
    ->Arg(1000)
    ->Arg(100'000)
    ->Arg(1'000'000);
BENCHMARK_CAPTURE(replace, 4KiB, kSmall)->ArgName("live")->Arg(1'000'000);
BENCHMARK_CAPTURE(alloc_free, 2MiB, kWhole)->ArgName("live")->Arg(1)->Arg(1000)->Arg(100'000);
BENCHMARK_CAPTURE(replace, 2MiB, kWhole)->ArgName("live")->Arg(1000)->Arg(10'000)->Arg(100'000);

void memory_info(benchmark::State& state) {
  const Driver& driver = Driver::get();
  size_t free = 0, total = 0;
  measure(state, [&] { driver.memory_info(&free, &total); });
  if (total == 0) state.SkipWithError("the call failed");
}
BENCHMARK(memory_info);

void total_memory(benchmark::State& state) {
  const Driver& driver = Driver::get();
  size_t total = 0;
  measure(state, [&] { driver.device_total(&total, 0); });
  if (total == 0) state.SkipWithError("the call failed");
}
BENCHMARK(total_memory);

// A kernel that does nothing, or null.
void* empty_kernel() {
  static constexpr char kEmptyKernel[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry empty() { ret; }\n";
  const Driver& driver = Driver::get();
  static void* function = nullptr;
  void* module = nullptr;
  if (function == nullptr && driver.load_module(&module, kEmptyKernel) == 0) {
    driver.get_function(&function, module, "empty");
  }
  return function;
}

int launch(void* function, void* stream) {
  return Driver::get().launch(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}

void launch_kernel(benchmark::State& state) {
  void* const function = empty_kernel();
  if (function == nullptr) return state.SkipWithError("cannot load the kernel");
  int failed = 0;
  measure(state, [&] { failed |= launch(function, nullptr); });
  if (failed != 0) state.SkipWithError("a call failed");
}
BENCHMARK(launch_kernel);

void* new_stream() {
  void* stream = nullptr;
  Driver::get().create_stream(&stream, 0);
  return stream;
}

int alloc_free_async(void* stream) {
  const Driver& driver = Driver::get();
  unsigned long long pointer = 0;
  const int failed = driver.allocate_async(&pointer, kWhole, stream);
  return failed | driver.free_async(pointer, stream);
}

// From the device's pool, which keeps what it has between the two.
void pool(benchmark::State& state) {
  static void* const stream = new_stream();
  int failed = 0;
  measure(state, [&] { failed |= alloc_free_async(stream); });
  if (failed != 0) state.SkipWithError("a call failed");
}
BENCHMARK(pool);

// Launches a graph of one kernel, or of an allocation and its release.
void launch_graph(benchmark::State& state, bool allocates) {
  const Driver& driver = Driver::get();
  static void* const stream = new_stream();
  void* const function = empty_kernel();
  void *graph = nullptr, *exec = nullptr;
  int failed = driver.begin_capture(stream, 0);
  failed |= allocates ? alloc_free_async(stream) : launch(function, stream);
  failed |= driver.end_capture(stream, &graph);
  if (failed != 0 || driver.instantiate(&exec, graph, 0) != 0) {
    return state.SkipWithError("cannot make the graph");
  }
  measure(state, [&] { failed |= driver.launch_graph(exec, stream); });
  if (failed != 0) state.SkipWithError("a call failed");
}
BENCHMARK_CAPTURE(launch_graph, kernel, false);
BENCHMARK_CAPTURE(launch_graph, memory, true);

void entry_point(benchmark::State& state, const char* name) {
  const Driver& driver = Driver::get();
  void* address = nullptr;
  measure(state, [&] { driver.get_proc_address(name, &address, 12000, 0, nullptr); });
  if (address == nullptr) state.SkipWithError("not found");
}
BENCHMARK_CAPTURE(entry_point, hooked, "cuMemAlloc");
BENCHMARK_CAPTURE(entry_point, not_hooked, "cuLaunchKernel");

void dlsym_of(benchmark::State& state, const char* library, const char* name) {
  Driver::get();
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  void* address = nullptr;
  measure(state, [&] { benchmark::DoNotOptimize(address = dlsym(handle, name)); });
  if (address == nullptr) state.SkipWithError("not found");
  dlclose(handle);
}
BENCHMARK_CAPTURE(dlsym_of, vendor_hooked, "libcuda.so.1", "cuMemAlloc_v2");
BENCHMARK_CAPTURE(dlsym_of, vendor_not_hooked, "libcuda.so.1", "cuLaunchKernel");
BENCHMARK_CAPTURE(dlsym_of, other, "libc.so.6", "qsort");

// The environment of a child: this process's own, with or without the cap it configures.
std::vector<char*> environment_of_child(bool capped) {
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (capped || strncmp(*entry, "FRACGPU_", 8) != 0 || strncmp(*entry, "FRACGPU_SIM_", 12) == 0) {
      environment.push_back(*entry);
    }
  }
  environment.push_back(nullptr);
  return environment;
}

// From posix_spawn to the end of a program that does nothing: the preload is paid by every
// process of a container, most of which never see a GPU.
void process_start(benchmark::State& state, bool capped, std::vector<std::string> command) {
  std::vector<char*> environment = environment_of_child(capped), arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  Samples samples;
  for (auto _ : state) {
    pid_t child = 0;
    int status = -1;
    const uint64_t before = now_ns();
    if (posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environment.data())) {
      return state.SkipWithError("posix_spawn failed");
    }
    waitpid(child, &status, 0);
    samples.add(now_ns() - before);
    if (status != 0) return state.SkipWithError("the child failed");
  }
  samples.report(state);
}
BENCHMARK_CAPTURE(process_start, no_cap, false, {"/bin/true"})->UseRealTime();
BENCHMARK_CAPTURE(process_start, capped, true, {"/bin/true"})->UseRealTime();
// A process that makes a context and one allocation: everything that happens once, together.
BENCHMARK_CAPTURE(process_start, first_allocation, true, {"/proc/self/exe", kOneAllocation})
    ->UseRealTime();

// From the first posix_spawn to the last end of 16 programs that start at once; a time of all.
void process_starts_at_once(benchmark::State& state, bool capped) {
  constexpr int kPrograms = 16;
  std::vector<char*> environment = environment_of_child(capped);
  char program[] = "/bin/true";
  char* const arguments[] = {program, nullptr};
  for (auto _ : state) {
    int failed = 0;
    pid_t children[kPrograms] = {};
    for (pid_t& child : children) {
      failed |= posix_spawn(&child, program, nullptr, nullptr, arguments, environment.data());
    }
    for (const pid_t child : children) {
      int status = 0;
      if (child > 0) waitpid(child, &status, 0);
      failed |= status;
    }
    if (failed != 0) return state.SkipWithError("a program failed");
  }
}
BENCHMARK_CAPTURE(process_starts_at_once, no_cap, false)->UseRealTime();
BENCHMARK_CAPTURE(process_starts_at_once, capped, true)->UseRealTime();

int one_allocation() {
  unsigned long long pointer = 0;
  return Driver::get().allocate(&pointer, kSmall);
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], bench::kOneAllocation) == 0) return bench::one_allocation();
  if (argc == 4 && strcmp(argv[1], bench::kWorker) == 0) {
    return bench::run_worker(std::atoi(argv[2]), std::atoi(argv[3]));
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
