#include "measurement.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "sim/node/calls.h"

namespace client {
namespace {

Counts counts_now() {
  static const auto counts = sim::CallCounts::open(std::getenv(sim::kCallsVariable));
  Counts now;
  counts->visit([&](std::string_view name, uint64_t count) { now[std::string(name)] = count; });
  return now;
}

}  // namespace

Shared shared;

void give_up(const char* what, int result) {
  std::fprintf(stderr, "call_counts: %s: %d\n", what, result);
  std::exit(1);
}

void* function_of(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  static std::map<std::string, void*> known;
  void*& function = known[name];
  if (function == nullptr && driver != nullptr) function = dlsym(driver, name);
  if (function == nullptr) give_up(name, -1);
  return function;
}

Measurement& Measurement::step(const std::string& name, Step step) {
  steps_.emplace_back(name, std::move(step));
  return *this;
}

void Measurement::run(AllCounts& all) const {
  for (int i = 0; i < kWarm + kMeasured; ++i) {
    for (const auto& [name, step] : steps_) {
      const bool measured = i >= kWarm && !name.empty();
      const Counts before = measured ? counts_now() : Counts{};
      step();
      if (!measured) continue;
      for (const auto& [function, count] : counts_now()) {
        const auto known = before.find(function);
        const uint64_t more = count - (known != before.end() ? known->second : 0);
        if (more != 0) all[name].counts[function] += more;
      }
      ++all[name].repetitions;
    }
  }
}

Exporter::Exporter() {
  int told[2], end[2];
  if (pipe(told) != 0 || pipe(end) != 0 || (pid_ = fork()) < 0) give_up("fork", pid_);
  if (pid_ == 0) {
    close(end[1]);
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    call("cuInit", 0u);
    call("cuDevicePrimaryCtxRetain", &context, 0);
    call("cuCtxSetCurrent", context);
    call("cuMemAlloc_v2", &memory, kPage);
    call("cuIpcGetMemHandle", &memory_, memory);
    const bool written = write(told[1], &memory_, sizeof memory_) == sizeof memory_;
    char none = 0;
    _exit(written && read(end[0], &none, 1) == 0 ? 0 : 1);
  }
  close(told[1]);
  close(end[0]);
  end_ = end[1];
  if (read(told[0], &memory_, sizeof memory_) != sizeof memory_) give_up("the exporter", -1);
  close(told[0]);
}

Exporter::~Exporter() {
  close(end_);
  waitpid(pid_, nullptr, 0);
}

}  // namespace client
