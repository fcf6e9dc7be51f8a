// NVML's process list: whom it names, with how much, and what it costs. Without the library.
#include <unistd.h>

#include <thread>

#include "tests/hardware/cuda.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr uint64_t kHeld = 64 * kMiB;

// Holds this much, in a context made by this thread; answers with both its numbers.
void hold(Child& child) {
  begin_cuda();
  CUdeviceptr address = 0;
  cuda("cuMemAlloc_v2", &address, size_t{kHeld});
  child.answer(std::to_string(getpid()) + " " + std::to_string(gettid()));
  child.wait();
}

// How the list names a process: "pid", "tid" or "not at all".
std::string named_as(const std::string& answer, uint64_t* bytes, int* entries) {
  const int pid = std::stoi(answer);
  const int tid = std::stoi(answer.substr(answer.find(' ') + 1));
  std::string how = "not at all";
  *bytes = 0;
  *entries = 0;
  for (const Listed& row : nvml::processes()) {
    if (row.pid != pid && row.pid != tid) continue;
    how = row.pid == pid ? "pid" : "tid";
    *bytes = row.known ? row.bytes : 0;
    ++*entries;
  }
  return how;
}

void tell_names(const char* key, Child& child) {
  uint64_t bytes = 0;
  int entries = 0;
  const std::string how = named_as(child.ask(), &bytes, &entries);
  fact(std::string(key) + ".named_as", how);
  fact(std::string(key) + ".entries", entries);
  if (how == "not at all") throw Unmeasured("the list does not name it");
  fact(std::string(key) + ".bytes_missing",
       bytes >= kHeld ? 0.0 : static_cast<double>(kHeld - bytes));
}

double list_us(int count) {
  return time_us(count, [] { nvml::processes(); });
}

}  // namespace

void ask_process_list(const Options& options) {
  // Forked before anything here touches a driver.
  Child main_thread(hold);
  Child other_thread([](Child& child) {
    std::string failure;
    std::thread thread([&] {
      try {
        hold(child);
      } catch (const std::exception& error) {
        failure = error.what();
      }
    });
    thread.join();
    if (!failure.empty()) throw Unmeasured(failure);
  });
  question(
      {"list.main_thread.named_as", "list.main_thread.entries", "list.main_thread.bytes_missing"},
      [&] { tell_names("list.main_thread", main_thread); });
  question({"list.other_thread.named_as", "list.other_thread.entries",
            "list.other_thread.bytes_missing"},
           [&] { tell_names("list.other_thread", other_thread); });
  question({"list.latency_us"}, [] { fact("list.latency_us", list_us(15)); });
  question({"list.vmm_handles", "list.latency_many_us"}, [&] {
    begin_cuda();
    const uint64_t page = granularity();
    const uint64_t room = cuda_memory().free / 10 * 6 / page;
    const uint64_t wanted = std::min(options.number("handles", 40000), room);
    const CUmemAllocationProp properties = device_memory();
    const CUmemAllocationProp* one = &properties;
    std::vector<CUmemGenericAllocationHandle> handles(wanted);
    uint64_t made = 0;
    const double end = now_ms() + 20000;
    while (made < wanted && now_ms() < end &&
           try_cuda("cuMemCreate", &handles[made], size_t{page}, one, 0ull) == 0)
      ++made;
    if (made == 0) throw Unmeasured("cuMemCreate makes no handle");
    fact("list.vmm_handles", static_cast<double>(made));
    fact("list.latency_many_us", list_us(9));
    for (uint64_t i = 0; i < made; ++i) cuda("cuMemRelease", handles[i]);
  });
}

// Called in a PID namespace of its own, with a /proc of its own.
void ask_private_namespace(const Options&) {
  Child holder(hold);
  question({"list.private_namespace.named_as", "list.private_namespace.entries",
            "list.private_namespace.bytes_missing"},
           [&] { tell_names("list.private_namespace", holder); });
}

}  // namespace hardware
