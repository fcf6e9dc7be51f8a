// Runs rounds of calls in N processes at once; see crowd.h.
//
// A barrier in shared memory begins and ends each round, and workers note by the common clock when
// they began and ended, so that the time of waking them is not measured. The figure that can be
// compared between numbers of processes is time per operation and core: wall time of the round
// times the cores in use, min(cores, N), over all operations.
#include "crowd.h"

#include <benchmark/benchmark.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "clock.h"
#include "driver.h"
#include "samples.h"

namespace bench {
namespace {

constexpr int kMostWorkers = 64;
constexpr int kSamples = 128;  // per worker and round

enum class Operation { alloc_free, alloc_free_async, memory_info, leave };

struct Worker {
  uint64_t began_ns, ended_ns, cpu_ns;
  uint32_t sample_ns[kSamples];
};

struct Shared {
  pthread_barrier_t barrier;
  Operation operation;  // written by the starter between rounds
  int count;            // operations of each worker
  std::atomic<bool> failed;
  Worker worker[kMostWorkers];
};

Shared* map_shared(int descriptor) {
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Shared*>(at);
}

uint64_t cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void* own_stream(const Driver& driver) {
  static void* stream = nullptr;
  if (stream == nullptr) driver.create_stream(&stream, 0);
  return stream;
}

bool call(const Driver& driver, Operation operation) {
  if (operation == Operation::memory_info) {
    size_t free = 0, total = 0;
    return driver.memory_info(&free, &total) == 0;
  }
  unsigned long long pointer = 0;
  if (operation == Operation::alloc_free_async) {
    void* const stream = own_stream(driver);
    return driver.allocate_async(&pointer, 2u << 20, stream) == 0 &&
           driver.free_async(pointer, stream) == 0;
  }
  return driver.allocate(&pointer, 4096) == 0 && driver.free(pointer) == 0;
}

void run_round(const Driver& driver, Shared& shared, Worker& mine) {
  bool good = true;
  const int stride = std::max(shared.count / kSamples, 1);
  const uint64_t cpu_before = cpu_ns();
  mine.began_ns = now_ns();
  for (int i = 0; i < shared.count; ++i) {
    if (i % stride != 0 || i / stride >= kSamples) {
      good &= call(driver, shared.operation);
      continue;
    }
    const uint64_t before = now_ns();
    good &= call(driver, shared.operation);
    mine.sample_ns[i / stride] = static_cast<uint32_t>(now_ns() - before);
  }
  mine.ended_ns = now_ns();
  mine.cpu_ns = cpu_ns() - cpu_before;
  if (!good) shared.failed = true;
}

// The environment of a worker. With `own_node` each gets a simulated node of its own, with a device
// of the same identity: the library sees one device and one tenant, while the simulated driver,
// whose memory info looks for dead processes with system calls, sees one process.
std::vector<std::string> environment_of_worker(bool own_node, int index) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
    if (own_node && environment.back().rfind("FRACGPU_SIM_NODE=", 0) == 0) {
      environment.back() += "." + std::to_string(index);
    }
  }
  return environment;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// N workers, from construction to destruction.
class Crowd {
 public:
  Crowd(int processes, bool own_node) : own_node_(own_node) {
    // Inherited by the workers, so without MFD_CLOEXEC.
    const int descriptor = memfd_create("bench", 0);
    if (descriptor < 0 || ftruncate(descriptor, sizeof(Shared)) != 0) return;
    shared_ = map_shared(descriptor);
    if (shared_ == nullptr) return;
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared_->barrier, &attributes, static_cast<unsigned>(processes) + 1);
    for (int i = 0; i < processes; ++i) {
      std::vector<std::string> arguments = {"/proc/self/exe", kWorker, std::to_string(descriptor),
                                            std::to_string(i)};
      std::vector<std::string> environment = environment_of_worker(own_node, i);
      pid_t child = 0;
      if (posix_spawn(&child, arguments[0].c_str(), nullptr, nullptr, pointers_to(arguments).data(),
                      pointers_to(environment).data()) != 0) {
        break;
      }
      children_.push_back(child);
    }
    close(descriptor);
    complete_ = static_cast<int>(children_.size()) == processes;
    if (!complete_) return;
    wait();  // until all are loaded
    wait();  // until all have their context and an allocation
  }

  ~Crowd() {
    if (complete_) {
      shared_->operation = Operation::leave;
      wait();
    }
    for (const pid_t child : children_) {
      if (!complete_) kill(child, SIGKILL);  // it would wait for the missing ones for ever
      waitpid(child, nullptr, 0);
    }
    if (shared_ != nullptr) munmap(shared_, sizeof(Shared));
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  int processes() const { return static_cast<int>(children_.size()); }
  bool own_node() const { return own_node_; }
  bool good() const { return complete_ && !shared_->failed; }
  const Worker& worker(int i) const { return shared_->worker[i]; }

  // The wall time of a round in which every process makes `count` calls.
  uint64_t round_ns(Operation operation, int count) {
    shared_->operation = operation;
    shared_->count = count;
    wait();
    wait();
    return last_round_ns();
  }

  // The same of the round before; after construction, of everybody's first call and what it makes.
  uint64_t last_round_ns() const {
    uint64_t began = UINT64_MAX, ended = 0;
    for (int i = 0; i < processes(); ++i) {
      began = std::min(began, worker(i).began_ns);
      ended = std::max(ended, worker(i).ended_ns);
    }
    return ended - began;
  }

 private:
  void wait() { pthread_barrier_wait(&shared_->barrier); }

  const bool own_node_;
  Shared* shared_ = nullptr;
  std::vector<pid_t> children_;
  bool complete_ = false;
};

// Every benchmark is entered several times; the crowd stays until another one is wanted.
std::unique_ptr<Crowd> crowd;

void at_once(benchmark::State& state, Operation operation, int count, bool own_node) {
  const int processes = static_cast<int>(state.range(0));
  if (crowd == nullptr || crowd->processes() != processes || crowd->own_node() != own_node) {
    crowd.reset();
    crowd = std::make_unique<Crowd>(processes, own_node);
  }
  const int cores = std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
  double operations = 0, wall = 0, cpu = 0;
  Samples samples;
  if (crowd->good()) crowd->round_ns(operation, count / 4);  // warms up
  for (auto _ : state) {
    if (!crowd->good()) {
      crowd.reset();
      return state.SkipWithError("a process failed");
    }
    const uint64_t ns = crowd->round_ns(operation, count);
    state.SetIterationTime(static_cast<double>(ns) * 1e-9);
    wall += static_cast<double>(ns);
    operations += static_cast<double>(count) * processes;
    for (int i = 0; i < processes; ++i) {
      cpu += static_cast<double>(crowd->worker(i).cpu_ns);
      for (int k = 0; k < std::min(count, kSamples); ++k) {
        samples.add(crowd->worker(i).sample_ns[k]);
      }
    }
  }
  state.counters["ns_per_op"] = wall * std::min(cores, processes) / operations;
  state.counters["cpu_ns_per_op"] = cpu / operations;
  samples.report(state);
}

// Each process opens the driver and makes its context and its first allocation, all at once; one
// operation is all of it in all of them. The tenant is a new one, or the same that as many others
// have left by their ends, with memory that nobody freed. On a common node the simulated NVML would
// look at all processes several times for each of them.
void first_call(benchmark::State& state, bool is_new_tenant) {
  const int processes = static_cast<int>(state.range(0));
  double wall = 0, cpu = 0;
  Samples samples;
  const char* const tenant = getenv("FRACGPU_TENANT");
  const std::string ledger = std::string("/dev/shm/fracgpu-") + (tenant != nullptr ? tenant : "");
  crowd.reset();
  crowd = std::make_unique<Crowd>(processes, true);  // makes the nodes
  for (auto _ : state) {
    crowd.reset();
    if (is_new_tenant && tenant != nullptr) unlink(ledger.c_str());
    crowd = std::make_unique<Crowd>(processes, true);
    if (!crowd->good()) {
      crowd.reset();
      return state.SkipWithError("a process failed");
    }
    const auto ns = static_cast<double>(crowd->last_round_ns());
    state.SetIterationTime(ns * 1e-9);
    wall += ns;
    for (int i = 0; i < processes; ++i) {
      const Worker& worker = crowd->worker(i);
      cpu += static_cast<double>(worker.cpu_ns);
      samples.add(worker.ended_ns - worker.began_ns);
    }
  }
  const auto rounds = static_cast<double>(state.iterations());
  state.counters["ns_per_op"] = wall / rounds;
  state.counters["cpu_ns_per_process"] = cpu / rounds / processes;
  samples.report(state);
}

void numbers_of_processes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("processes")->Arg(1)->Arg(8)->Arg(64)->UseManualTime();
}
BENCHMARK_CAPTURE(at_once, alloc_free, Operation::alloc_free, 16384, false)
    ->Apply(numbers_of_processes);
BENCHMARK_CAPTURE(at_once, alloc_free_async, Operation::alloc_free_async, 16384, false)
    ->Apply(numbers_of_processes);
BENCHMARK_CAPTURE(at_once, memory_info, Operation::memory_info, 1024, false)
    ->Apply(numbers_of_processes);
BENCHMARK_CAPTURE(at_once, memory_info_own_node, Operation::memory_info, 65536, true)
    ->Apply(numbers_of_processes);
BENCHMARK_CAPTURE(first_call, of_a_new_tenant, true)->Apply(numbers_of_processes);
BENCHMARK_CAPTURE(first_call, where_others_died, false)->Apply(numbers_of_processes);

}  // namespace

int run_worker(int descriptor, int index) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the starter may die at a barrier
  Shared* shared = map_shared(descriptor);
  if (shared == nullptr) return 1;
  close(descriptor);
  Worker& mine = shared->worker[index];
  pthread_barrier_wait(&shared->barrier);
  const uint64_t cpu_before = cpu_ns();
  mine.began_ns = now_ns();
  const Driver& driver = Driver::get();
  // One allocation stays, as in any real program: the others share its chunk.
  unsigned long long stays = 0;
  if (driver.allocate(&stays, 4096) != 0) shared->failed = true;
  mine.ended_ns = now_ns();
  mine.cpu_ns = cpu_ns() - cpu_before;
  pthread_barrier_wait(&shared->barrier);
  for (;;) {
    pthread_barrier_wait(&shared->barrier);
    if (shared->operation == Operation::leave) return 0;
    run_round(driver, *shared, mine);
    pthread_barrier_wait(&shared->barrier);
  }
}

}  // namespace bench
