// The storm's threads.
// Sizes are spread over powers of two, so that small shared chunks, single pages and large ranges
// all occur. The clock is read every few steps only, to spend the time in the driver.
#include "storm.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace client {
namespace {

struct Worker {
  StormResult result;
  void run(const DriverApi& api, void* context, const StormOptions& options, unsigned number) {
    if ((result.bad = api.set_current(context)) != 0) return;
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(options.seconds);
    std::mt19937_64 random(options.seed * 1000003ULL + number);
    int bits = 0;
    while (bits < 62 && (size_t{1} << (bits + 1)) <= options.max_bytes) ++bits;
    std::vector<Pointer>& held = result.kept;
    while (result.bad == 0 && std::chrono::steady_clock::now() < end) {
      for (int step = 0; step < 16 && result.bad == 0; ++step) {
        // Leaning to the side of allocation while little is held keeps the device near full without
        // stalling there.
        if (held.empty() || random() % 100 < (held.size() < 64 ? 60u : 45u)) {
          const size_t top = size_t{1} << (random() % static_cast<unsigned>(bits + 1));
          const size_t bytes = std::min(options.max_bytes, top + random() % top);
          Pointer address = 0;
          const int rc = api.allocate(&address, bytes);
          if (rc == 0) {
            ++result.allocations;
            held.push_back(address);
          } else if (rc == 2) {
            ++result.refused;
          } else {
            result.bad = rc;
          }
        } else {
          std::swap(held[random() % held.size()], held.back());
          result.bad = api.free(held.back());
          held.pop_back();
          ++result.frees;
        }
      }
    }
    if (options.keep) return;
    for (const Pointer address : held) {
      const int rc = api.free(address);
      if (result.bad == 0) result.bad = rc;
      ++result.frees;
    }
    held.clear();
  }
};

}  // namespace

StormResult storm(const DriverApi& api, void* context, const StormOptions& options) {
  std::vector<Worker> workers(static_cast<size_t>(std::max(1, options.threads)));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] { workers[i].run(api, context, options, i); });
  }
  for (std::thread& thread : threads) thread.join();
  StormResult sum;
  for (Worker& worker : workers) {
    sum.allocations += worker.result.allocations;
    sum.frees += worker.result.frees;
    sum.refused += worker.result.refused;
    if (sum.bad == 0) sum.bad = worker.result.bad;
    sum.kept.insert(sum.kept.end(), worker.result.kept.begin(), worker.result.kept.end());
  }
  return sum;
}

}  // namespace client
