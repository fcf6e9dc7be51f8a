// What many processes and threads pay for one reservation and its release: by the ledger, by one
// shared atomic counter, and by a counter under a robust mutex. The counters forget nothing when a
// process dies only because nobody dies here; they are the measure for speed, not for correctness.
//
//   contention [--smoke] [--seconds S] [--processes N] [--threads N]
//
// `ledger tight` has so little room that leases must be taken back all the time.
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "shim/ledger/ledger.h"
#include "shim/vendor/backend.h"

// No vendors: the ledger alone is measured.
constinit const std::span<const fracgpu::VendorBackend* const> fracgpu::vendor_backends = {};

namespace {

using fracgpu::Ledger;
namespace layout = fracgpu::layout;

constexpr int kMostProcesses = 64, kMostThreads = 16;
constexpr uint64_t kUnits = 4096;  // 2 MiB
constexpr uint64_t kRoomyCap = uint64_t{80} << 21;

enum class Kind { ledger, tight_ledger, atomic_counter, robust_mutex };
constexpr std::array kKinds = {Kind::ledger, Kind::tight_ledger, Kind::atomic_counter,
                               Kind::robust_mutex};
constexpr const char* kNames[] = {"ledger", "ledger tight", "atomic", "robust mutex"};

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Times of single operations in buckets of an eighth of their power of two.
struct Histogram {
  static constexpr unsigned kBuckets = 64 * 8;
  uint32_t count[kBuckets];

  void add(uint64_t ns) {
    ns = std::max<uint64_t>(ns, 8);
    const unsigned power = static_cast<unsigned>(std::bit_width(ns)) - 1;
    ++count[power * 8 + (ns >> (power - 3) & 7)];
  }
  static double middle(unsigned bucket) {
    return static_cast<double>(uint64_t{1} << (bucket / 8)) * (1 + (bucket % 8 + 0.5) / 8);
  }
};

struct Worker {
  uint64_t began_ns, ended_ns;
  uint64_t operations;
  uint64_t refused;
  Histogram times;
};

struct Shared {
  pthread_barrier_t barrier;
  std::atomic<bool> stop;
  std::atomic<bool> failed;
  alignas(64) std::atomic<uint64_t> used;
  alignas(64) pthread_mutex_t mutex;
  uint64_t used_under_mutex;
  Worker worker[kMostProcesses * kMostThreads];
};

class Meter {
 public:
  Meter(Kind kind, Shared& shared, const char* tenant, uint64_t cap)
      : kind_(kind), shared_(shared), cap_(cap) {
    if (kind_ != Kind::ledger && kind_ != Kind::tight_ledger) return;
    fracgpu::Message error;
    good_ = ledger_->join(tenant, fracgpu::ProcessIdentity::of_self(), nullptr, error) &&
            (device_ = ledger_->device("GPU-bench", cap * layout::kUnit, cap * layout::kUnit,
                                       error)) >= 0;
  }
  bool good() const { return good_; }

  bool reserve(uint64_t units) {
    if (kind_ == Kind::atomic_counter) {
      if (shared_.used.fetch_add(units) + units <= cap_) return true;
      shared_.used.fetch_sub(units);
      return false;
    }
    if (kind_ == Kind::robust_mutex) {
      lock();
      const bool fits = shared_.used_under_mutex + units <= cap_;
      if (fits) shared_.used_under_mutex += units;
      pthread_mutex_unlock(&shared_.mutex);
      return fits;
    }
    fracgpu::Refusal refusal;
    return ledger_->reserve(device_, units, refusal);
  }

  void release(uint64_t units) {
    if (kind_ == Kind::atomic_counter) {
      shared_.used.fetch_sub(units);
    } else if (kind_ == Kind::robust_mutex) {
      lock();
      shared_.used_under_mutex -= units;
      pthread_mutex_unlock(&shared_.mutex);
    } else {
      ledger_->release(device_, units);
    }
  }

 private:
  void lock() {
    if (pthread_mutex_lock(&shared_.mutex) == EOWNERDEAD) pthread_mutex_consistent(&shared_.mutex);
  }

  Kind kind_;
  Shared& shared_;
  uint64_t cap_;
  std::unique_ptr<Ledger> ledger_ = std::make_unique<Ledger>();
  int device_ = -1;
  bool good_ = true;
};

void work(Meter& meter, Shared& shared, Worker& mine, unsigned seed) {
  std::minstd_rand random(seed);
  pthread_barrier_wait(&shared.barrier);
  mine.began_ns = now_ns();
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const uint64_t units = kUnits * (random() % 4 + 1);
    // Reading the clock twice costs more than the operation: one of sixteen is timed.
    const uint64_t before = mine.operations % 16 == 0 ? now_ns() : 0;
    if (meter.reserve(units)) {
      meter.release(units);
    } else {
      ++mine.refused;
    }
    if (before != 0) mine.times.add(now_ns() - before);
    ++mine.operations;
  }
  mine.ended_ns = now_ns();
}

Shared* map_shared(unsigned workers) {
  void* bytes =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return nullptr;
  auto* shared = static_cast<Shared*>(bytes);  // all-zero is the initial state
  pthread_barrierattr_t of_barrier;
  pthread_barrierattr_init(&of_barrier);
  pthread_barrierattr_setpshared(&of_barrier, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &of_barrier, workers + 1);
  pthread_mutexattr_t of_mutex;
  pthread_mutexattr_init(&of_mutex);
  pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&of_mutex, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->mutex, &of_mutex);
  return shared;
}

void print_row(Kind kind, int processes, int threads, const Shared& shared) {
  const int workers = processes * threads;
  // By the workers' own clocks: who starts and stops them may wait long for a core.
  uint64_t began = UINT64_MAX, ended = 0;
  std::vector<uint64_t> sum(Histogram::kBuckets);
  double operations = 0, squares = 0, refused = 0, timed = 0;
  for (int i = 0; i < workers; ++i) {
    const Worker& worker = shared.worker[i];
    began = std::min(began, worker.began_ns);
    ended = std::max(ended, worker.ended_ns);
    const double mine = static_cast<double>(worker.operations);
    operations += mine;
    squares += mine * mine;
    refused += static_cast<double>(worker.refused);
    for (unsigned b = 0; b < Histogram::kBuckets; ++b) sum[b] += worker.times.count[b];
  }
  for (const uint64_t count : sum) timed += static_cast<double>(count);
  const double seconds = static_cast<double>(ended - began) * 1e-9;
  const auto percentile = [&](double part) {
    double below = 0;
    for (unsigned b = 0; b < Histogram::kBuckets; ++b) {
      below += static_cast<double>(sum[b]);
      if (below >= timed * part) return Histogram::middle(b);
    }
    return 0.0;
  };
  const double jain = squares > 0 ? operations * operations / (workers * squares) : 0;
  std::printf("%-13s %4d %4d %9.2f M/s %9.0f %11.0f %11.0f %7.3f %7.1f %%\n",
              kNames[static_cast<int>(kind)], processes, threads, operations / seconds * 1e-6,
              percentile(0.5), percentile(0.99), percentile(0.999), jain,
              operations > 0 ? 100 * refused / operations : 0);
  std::fflush(stdout);
}

bool measure(Kind kind, int processes, int threads, double seconds) {
  const std::string tenant = "bench-contention-" + std::to_string(getpid());
  // Room for half of what all workers may want at once.
  const uint64_t cap =
      kind == Kind::tight_ledger
          ? std::max<uint64_t>(4, static_cast<uint64_t>(processes * threads)) * kUnits * 5 / 4
          : kRoomyCap;
  Shared* shared = map_shared(static_cast<unsigned>(processes * threads));
  if (shared == nullptr) return false;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      Meter meter(kind, *shared, tenant.c_str(), cap);
      if (!meter.good()) shared->failed = true;
      std::vector<std::thread> crowd;
      for (int t = 0; t < threads; ++t) {
        const int index = p * threads + t;
        crowd.emplace_back([&, index] {
          work(meter, *shared, shared->worker[index], static_cast<unsigned>(index) + 1);
        });
      }
      for (std::thread& thread : crowd) thread.join();
      _exit(0);
    }
    if (child < 0) return false;
    children.push_back(child);
  }
  pthread_barrier_wait(&shared->barrier);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  shared->stop = true;
  bool good = !shared->failed;
  for (const pid_t child : children) {
    int status = 0;
    good = waitpid(child, &status, 0) == child && status == 0 && good;
  }
  if (good) print_row(kind, processes, threads, *shared);
  munmap(shared, sizeof(Shared));
  unlink((layout::kFilePrefix + tenant).c_str());
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.5;
  std::vector<int> processes = {1, 2, 8, 64}, threads = {1, 4, 16};
  for (int i = 1; i < argc; ++i) {
    const bool has_value = i + 1 < argc;
    if (strcmp(argv[i], "--smoke") == 0) {
      seconds = 0.02;
      processes = {2};
      threads = {2};
    } else if (strcmp(argv[i], "--seconds") == 0 && has_value) {
      seconds = atof(argv[++i]);
    } else if (strcmp(argv[i], "--processes") == 0 && has_value) {
      processes = {std::clamp(atoi(argv[++i]), 1, kMostProcesses)};
    } else if (strcmp(argv[i], "--threads") == 0 && has_value) {
      threads = {std::clamp(atoi(argv[++i]), 1, kMostThreads)};
    } else {
      std::fprintf(stderr, "usage: %s [--smoke] [--seconds S] [--processes N] [--threads N]\n",
                   argv[0]);
      return 2;
    }
  }
  std::printf("%u cores; an operation is one reservation and its release\n",
              std::thread::hardware_concurrency());
  std::printf("%-13s %4s %4s %13s %9s %11s %11s %7s %9s\n", "", "proc", "thr", "throughput",
              "p50 ns", "p99 ns", "p99.9 ns", "Jain", "refused");
  for (const int p : processes) {
    for (const int t : threads) {
      for (const Kind kind : kKinds) {
        if (!measure(kind, p, t, seconds)) {
          std::fprintf(stderr, "%s failed\n", kNames[static_cast<int>(kind)]);
          return 1;
        }
      }
    }
  }
  return 0;
}
