// A process is killed while it holds most of the memory: until when does NVML's list name it, and
// until when is the memory in use? Without the library.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "tests/hardware/cuda.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr uint64_t kMost = uint64_t{60} << 30, kChunk = 256 * kMiB;
constexpr double kPatienceMs = 30000;

bool listed(int pid) {
  const std::vector<Listed> all = nvml::processes();
  return std::any_of(all.begin(), all.end(), [&](const Listed& row) { return row.pid == pid; });
}

}  // namespace

void ask_death(const Options&) {
  Child victim([](Child& child) {
    begin_cuda();
    const uint64_t wanted = std::min(kMost, cuda_memory().free / 10 * 8);
    uint64_t held = 0;
    for (CUdeviceptr address = 0; held + kChunk <= wanted; held += kChunk) {
      if (try_cuda("cuMemAlloc_v2", &address, size_t{kChunk}) != 0) break;
    }
    child.answer(std::to_string(held));
    child.wait();
  });
  question({"death.held_bytes", "death.listed_ms", "death.in_use_ms", "death.in_use_unlisted_ms"},
           [&] {
             const uint64_t before_it = nvml::memory().used;
             const double held = std::stod(victim.ask());
             fact("death.held_bytes", held);
             const uint64_t at_most =
                 std::max(before_it, nvml::memory().used) - static_cast<uint64_t>(held / 2);
             if (!listed(victim.pid())) throw Unmeasured("NVML's list does not name the process");
             victim.kill();
             const double start = now_ms();
             double gone = -1, freed = -1;
             while ((gone < 0 || freed < 0) && now_ms() - start < kPatienceMs) {
               if (gone < 0 && !listed(victim.pid())) gone = now_ms() - start;
               if (freed < 0 && nvml::memory().used <= at_most) freed = now_ms() - start;
             }
             if (gone < 0 || freed < 0) throw Unmeasured("not over after half a minute");
             fact("death.listed_ms", gone);
             fact("death.in_use_ms", freed);
             fact("death.in_use_unlisted_ms", std::max(0.0, freed - gone));
           });
}

}  // namespace hardware
