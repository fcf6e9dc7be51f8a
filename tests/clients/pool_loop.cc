// Allocates and frees in stream order, round after round, as training loops do.
//
//   pool_loop [OPTION]... PATTERN ROUNDS MIB...
//
//   turn      allocates and frees one size after the other, a kernel between
//   chain     allocates all sizes, then frees them in the same order
//   streams   as `turn`, each size on a stream of its own
//   handover  as `turn`, on two streams by turns; each waits for an event of the one before
//   early     the same, but the event is recorded before what is freed
//   follow    as `turn`, on two streams by turns, without any event
//
//   --stream=new|legacy|thread|unnamed   `thread`, `unnamed`: the per-thread stream, by name or 0
//   --pool=own|default  --keep           `keep`: release threshold without end
//   --alone                              streams do not take over what others freed before an event
//   --wait=stream|event                  waits after each round
//   --threads=N                          as many threads make the rounds, all on one stream
//
// Prints "allocated=N refused=N bad=RC shrunk=N": how often the pool became smaller from one round
// to the next, how many allocations were out of memory, and the first other result.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "random/actor.h"

namespace client {
namespace {

constexpr int kFollowsEvents = 1, kReleaseThreshold = 4, kReserved = 5;  // CU_MEMPOOL_ATTR_…

struct Options {
  std::string stream = "new", pool = "default", wait;
  bool keep = false, alone = false;
  int threads = 1;
};

struct Counts {
  unsigned long long allocated = 0, refused = 0, shrunk = 0;
  int bad = 0;

  bool count(int result) {
    if (result == 0) return true;
    if (result == kOutOfMemory) {
      ++refused;
    } else if (bad == 0) {
      bad = result;
    }
    return false;
  }
};

class Loop {
 public:
  Loop(const Options& options, size_t streams) : options_(options), streams_(streams) {
    if (options_.pool == "own") {
      CUmemPoolProps properties = {};
      properties.allocType = 1;
      properties.location = {.type = kLocationDevice, .id = 0};
      const CUmemPoolProps* wanted = &properties;
      counts_.count(call("cuMemPoolCreate", &pool_, wanted));
    } else {
      counts_.count(call("cuDeviceGetDefaultMemPool", &pool_, 0));
    }
    uint64_t threshold = options_.keep ? ~uint64_t{0} : 0;
    void* const value = &threshold;
    counts_.count(call("cuMemPoolSetAttribute", pool_, kReleaseThreshold, value));
    int none = 0;
    void* const off = &none;
    if (options_.alone) counts_.count(call("cuMemPoolSetAttribute", pool_, kFollowsEvents, off));
    for (CUstream& stream : streams_) stream = new_stream();
    counts_.count(call("cuModuleLoadData", &module_, static_cast<const void*>("any")));
    counts_.count(call("cuModuleGetFunction", &kernel_, module_, static_cast<const char*>("any")));
  }

  void round(const std::string& pattern, int number, const std::vector<size_t>& sizes) {
    if (pattern == "chain") return chain(sizes);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const bool early = pattern == "early", waits = pattern == "handover" || early;
      const bool by_turns = waits || pattern == "follow";
      const CUstream stream = streams_[pattern == "streams" ? i : by_turns ? number % 2 : 0];
      if (waits && number > 0) {
        counts_.count(call("cuStreamWaitEvent", stream, event_, 0u));
      }
      CUdeviceptr address = 0;
      if (!allocate(&address, sizes[i], stream)) continue;
      launch(stream);
      if (early) record(stream);
      free(address, stream);
      if (pattern == "handover") record(stream);
    }
  }

  void end_round() {
    if (options_.wait == "stream") counts_.count(call("cuStreamSynchronize", streams_[0]));
    if (options_.wait == "event") {
      record(streams_[0]);
      counts_.count(call("cuEventSynchronize", event_));
    }
    uint64_t reserved = 0;
    void* const value = &reserved;
    counts_.count(call("cuMemPoolGetAttribute", pool_, kReserved, value));
    if (reserved < reserved_) ++counts_.shrunk;
    reserved_ = reserved;
  }

  Counts counts_;

 private:
  void chain(const std::vector<size_t>& sizes) {
    std::vector<CUdeviceptr> held;
    for (const size_t bytes : sizes) {
      CUdeviceptr address = 0;
      if (allocate(&address, bytes, streams_[0])) held.push_back(address);
    }
    launch(streams_[0]);
    for (const CUdeviceptr address : held) free(address, streams_[0]);
  }

  CUstream new_stream() {
    if (options_.stream == "legacy" || options_.stream == "unnamed") return nullptr;
    if (options_.stream == "thread") return reinterpret_cast<CUstream>(2);
    CUstream stream = nullptr;
    counts_.count(call("cuStreamCreate", &stream, 1u));
    return stream;
  }

  bool per_thread() const { return options_.stream == "unnamed"; }

  bool allocate(CUdeviceptr* address, size_t bytes, CUstream stream) {
    const char* const name =
        options_.pool == "own"
            ? (per_thread() ? "cuMemAllocFromPoolAsync_ptsz" : "cuMemAllocFromPoolAsync")
            : (per_thread() ? "cuMemAllocAsync_ptsz" : "cuMemAllocAsync");
    const int result = options_.pool == "own" ? call(name, address, bytes, pool_, stream)
                                              : call(name, address, bytes, stream);
    if (!counts_.count(result)) return false;
    ++counts_.allocated;
    return true;
  }

  void free(CUdeviceptr address, CUstream stream) {
    counts_.count(call(per_thread() ? "cuMemFreeAsync_ptsz" : "cuMemFreeAsync", address, stream));
  }

  void launch(CUstream stream) {
    void** const nothing = nullptr;
    counts_.count(call(per_thread() ? "cuLaunchKernel_ptsz" : "cuLaunchKernel", kernel_, 1u, 1u, 1u,
                       1u, 1u, 1u, 0u, stream, nothing, nothing));
  }

  void record(CUstream stream) {
    if (event_ == nullptr) counts_.count(call("cuEventCreate", &event_, 0u));
    counts_.count(call("cuEventRecord", event_, stream));
  }

  const Options options_;
  CUmemoryPool pool_ = nullptr;
  std::vector<CUstream> streams_;
  void *module_ = nullptr, *kernel_ = nullptr, *event_ = nullptr;
  uint64_t reserved_ = 0;
};

int run(int argc, char** argv) {
  Options options;
  int next = 1;
  for (; next < argc && std::string(argv[next]).rfind("--", 0) == 0; ++next) {
    const std::string option = argv[next];
    const auto value = [&](const char* name, std::string* out) {
      const std::string head = std::string("--") + name + "=";
      const bool it = option.rfind(head, 0) == 0;
      if (it) *out = option.substr(head.size());
      return it;
    };
    std::string threads;
    if (option == "--keep") {
      options.keep = true;
    } else if (value("threads", &threads)) {
      options.threads = std::atoi(threads.c_str());
    } else if (option == "--alone") {
      options.alone = true;
    } else if (!value("stream", &options.stream) && !value("pool", &options.pool) &&
               !value("wait", &options.wait)) {
      argc = 0;
    }
  }
  if (argc - next < 3) {
    std::fprintf(stderr, "usage: pool_loop [OPTION]... PATTERN ROUNDS MIB...\n");
    return 2;
  }
  const std::string pattern = argv[next];
  const int rounds = std::atoi(argv[next + 1]);
  std::vector<size_t> sizes;
  for (int i = next + 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10) << 20);
  World world;
  if (!api.begin(world)) return 3;
  Loop loop(options, std::max<size_t>(sizes.size(), 2));
  std::mutex one_round;
  const auto rounds_of_thread = [&] {
    api.begin_thread(world);
    for (int i = 0; i < rounds; ++i) {
      const std::lock_guard lock(one_round);
      loop.round(pattern, i, sizes);
      loop.end_round();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < options.threads; ++i) threads.emplace_back(rounds_of_thread);
  rounds_of_thread();
  for (std::thread& thread : threads) thread.join();
  std::printf("allocated=%llu refused=%llu bad=%d shrunk=%llu\n", loop.counts_.allocated,
              loop.counts_.refused, loop.counts_.bad, loop.counts_.shrunk);
  return 0;
}

}  // namespace
}  // namespace client

int main(int argc, char** argv) {
  return client::run(argc, argv);
}
