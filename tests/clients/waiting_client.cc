// waiting_client constructor LIBRARY | retaining_constructor LIBRARY | contexts THREADS | readings
// THREADS: threads that have to wait for one another in the library. Prints one line; ends by
// SIGALRM where nobody goes on.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "random/actor.h"

namespace {

using client::call;
using fracgpu::cuda::CUdeviceptr;

std::atomic<bool> in_constructor{false};
std::atomic<int> other_thread{0};
std::atomic<bool> other_done{false};
int result_in_constructor = -1;

// 'S' for a thread that sleeps in the kernel.
char state_of(int thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t end = text.rfind(") ");
  return end != std::string::npos ? text[end + 2] : '?';
}

int ask_total() {
  size_t bytes = 0;
  return call("cuDeviceTotalMem_v2", &bytes, 0);
}

int retain() {
  void* context = nullptr;
  return call("cuDevicePrimaryCtxRetain", &context, 0);
}

int (*first_use)() = ask_total;

uint64_t microseconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000 + static_cast<uint64_t>(now.tv_nsec) / 1000;
}

// Two threads make the first use of a device, one of them in a constructor.
int use_in_constructor(const char* library) {
  if (call("cuInit", 0u) != 0) return 3;
  for (const char* name : {"cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain"})
    client::driver_function(name);  // looked up under a lock of this program
  int result = -1;
  std::thread other([&] {
    other_thread = static_cast<int>(syscall(SYS_gettid));
    while (!in_constructor) sched_yield();
    result = first_use();
    other_done = true;
  });
  if (dlopen(library, RTLD_NOW) == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  other.join();
  std::printf("constructor rc=%d\n", std::max(result, result_in_constructor));
  return 0;
}

// Every thread makes the same call at the same time, and this one allocates meanwhile. Prints the
// most processor time of a thread, how long all took, and how many allocations there were.
int together(int threads, const std::function<int()>& work, bool allocates, void* context) {
  std::atomic<int> running{threads}, worst{0};
  std::atomic<uint64_t> most{0};
  const uint64_t begin = microseconds(CLOCK_MONOTONIC);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      if (context != nullptr) call("cuCtxSetCurrent", context);
      if (const int rc = work(); rc != 0) worst = rc;
      const uint64_t used = microseconds(CLOCK_THREAD_CPUTIME_ID);
      for (uint64_t seen = most; used > seen && !most.compare_exchange_weak(seen, used);) {
      }
      --running;
    });
  }
  long long allocations = 0;
  while (allocates && running > 0) {
    CUdeviceptr address = 0;
    if (call("cuMemAlloc_v2", &address, size_t{2} << 20) == 0) {
      ++allocations;
      call("cuMemFree_v2", address);
    }
    // So that a reading comes between two of them.
    timespec pause = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&pause, nullptr);
  }
  for (std::thread& thread : all) thread.join();
  std::printf("together rc=%d cpu_us=%llu wall_us=%llu allocations=%lld\n", worst.load(),
              static_cast<unsigned long long>(most.load()),
              static_cast<unsigned long long>(microseconds(CLOCK_MONOTONIC) - begin), allocations);
  return 0;
}

}  // namespace

extern "C" [[gnu::visibility("default")]] void client_in_constructor() {
  while (other_thread == 0) sched_yield();
  in_constructor = true;
  // Until the other one waits for something, for the loader's lock at the latest.
  for (int asleep = 0; asleep < 20 && !other_done; sched_yield()) {
    asleep = state_of(other_thread) == 'S' ? asleep + 1 : 0;
  }
  result_in_constructor = first_use();
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  alarm(60);
  const std::string what = argv[1];
  if (what == "retaining_constructor") first_use = retain;
  if (what.ends_with("constructor")) return use_in_constructor(argv[2]);
  const int threads = std::atoi(argv[2]);
  if (what == "contexts") {
    if (call("cuInit", 0u) != 0) return 3;
    return together(threads, ask_total, false, nullptr);
  }
  client::World world;
  if (!client::api.begin(world)) return 3;
  CUdeviceptr first = 0;
  call("cuMemAlloc_v2", &first, size_t{64} << 20);
  call("cuMemFree_v2", first);  // leaves a lease that is large enough
  constexpr int kHeap = 2;
  static std::atomic<size_t> heap{size_t{8} << 20};  // lower each time: another value is set
  return together(
      threads, [] { return call("cuCtxSetLimit", kHeap, heap -= 4096); }, true, world.context);
}
