// Takes memory on one path until it is refused, under the library and a cap: watch (watch.cc) looks
// on from outside. A process without a cap stops by itself when it is well above.
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <thread>

#include "tests/clients/token.h"
#include "tests/hardware/cuda.h"
#include "tests/hardware/graph.h"
#include "tests/hardware/kernels.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

// Takes this much for good; the driver's result.
using Take = std::function<int(uint64_t bytes)>;

int take_linear(uint64_t bytes) {
  CUdeviceptr address = 0;
  return try_cuda("cuMemAlloc_v2", &address, size_t{bytes});
}

int take_managed(uint64_t bytes) {
  CUdeviceptr address = 0;
  if (const int rc = try_cuda("cuMemAllocManaged", &address, size_t{bytes}, 1u)) return rc;
  // Pages come to the device when the device writes to them.
  return try_cuda("cuMemsetD8_v2", address, static_cast<unsigned char>(0), size_t{bytes});
}

int take_vmm(uint64_t bytes) {
  const CUmemAllocationProp properties = device_memory();
  const CUmemAllocationProp* wanted = &properties;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  if (const int rc = try_cuda("cuMemCreate", &handle, size_t{bytes}, wanted, 0ull)) return rc;
  cuda("cuMemAddressReserve", &address, size_t{bytes}, size_t{0}, CUdeviceptr{0}, 0ull);
  return try_cuda("cuMemMap", address, size_t{bytes}, size_t{0}, handle, 0ull);
}

int take_array(uint64_t bytes) {
  // Rows of 4,096 floats.
  CUDA_ARRAY_DESCRIPTOR shape = {4096, bytes / 16384, 0x20, 1};  // CU_AD_FORMAT_FLOAT
  const CUDA_ARRAY_DESCRIPTOR* wanted = &shape;
  CUarray array = nullptr;
  return try_cuda("cuArrayCreate_v2", &array, wanted);
}

int take_graph(uint64_t bytes) {
  const CUstream stream = nullptr;
  const CUgraphExec exec = allocating_graph(bytes, 1, false);
  if (exec == nullptr) return kOutOfMemory;
  const int rc = try_cuda("cuGraphLaunch", exec, stream);
  cuda("cuStreamSynchronize", stream);
  return rc;
}

int take_module(uint64_t bytes) {
  CUmodule module = nullptr;
  if (const int rc = try_load_ptx(global_of(bytes), &module)) return rc;
  // Where modules are loaded lazily, their variables come when they are asked for.
  CUdeviceptr address = 0;
  size_t size = 0;
  const char* name = "room";
  return try_cuda("cuModuleGetGlobal_v2", &address, &size, module, name);
}

const std::map<std::string, Take>& paths() {
  static const std::map<std::string, Take> all = {
      {"alloc", take_linear},
      {"thread", take_linear},     // all of it in another thread than main()'s
      {"namespace", take_linear},  // started in a PID namespace of its own
      {"managed", take_managed},
      {"pool",
       [](uint64_t bytes) {
         CUdeviceptr address = 0;
         const CUstream stream = nullptr;
         return try_cuda("cuMemAllocAsync", &address, size_t{bytes}, stream);
       }},
      {"vmm", take_vmm},
      {"array", take_array},
      {"graph", take_graph},
      {"module", take_module},
  };
  return all;
}

// Memory of a sibling that a parent imports: handles, one after the other, until it is refused.
// They start when the parent has its context.
void export_all(Child& child, uint64_t most) {
  child.wait();
  begin_cuda();
  CUdeviceptr address = 0;
  for (uint64_t taken = 0; taken <= most; taken += 64 * kMiB) {
    CUipcMemHandle handle = {};
    const int rc = try_cuda("cuMemAlloc_v2", &address, size_t{64 * kMiB});
    if (rc != 0) break;
    cuda("cuIpcGetMemHandle", &handle, address);
    child.answer(client::hex(handle.reserved));
    child.wait();
  }
  child.answer("done");
  child.wait();
}

}  // namespace

void let_watch_look() {
  std::puts("look");
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
}

Filled fill_until_refused(uint64_t most, const std::function<int(uint64_t)>& take) {
  Filled filled;
  for (const uint64_t bytes : {64 * kMiB, 2 * kMiB}) {
    while (filled.bytes <= most) {
      filled.rc = take(bytes);
      if (filled.rc != 0) break;
      filled.bytes += bytes;
    }
  }
  return filled;
}

void fill(const Options& options) {
  const std::string path = options.text("path");
  const std::string key = "cap." + path;
  const uint64_t most = options.number("cap") + 256 * kMiB;
  const std::string granted = key + ".granted_bytes", refusal = key + ".refusal",
                    shown = key + ".shown_total_bytes";
  if (path == "ipc") {
    Child exporter([&](Child& child) { export_all(child, most); });
    question({granted.c_str()}, [&] {
      begin_cuda();
      exporter.tell();
      uint64_t imported = 0;
      for (std::string token; (token = exporter.ask()) != "done"; imported += 64 * kMiB) {
        CUipcMemHandle handle = {};
        CUdeviceptr address = 0;
        client::read_hex(token, handle.reserved);
        cuda("cuIpcOpenMemHandle_v2", &address, handle, 1u);
        exporter.tell();
      }
      fact(granted, static_cast<double>(imported));
      let_watch_look();
    });
    return;
  }
  question({granted.c_str(), refusal.c_str(), shown.c_str()}, [&] {
    const auto found = paths().find(path);
    if (found == paths().end()) throw Unmeasured("no such path");
    Filled filled;
    const auto work = [&] {
      begin_cuda();
      filled = fill_until_refused(most, found->second);
    };
    if (path == "thread") {
      std::string failure;
      std::thread([&] {
        try {
          work();
        } catch (const std::exception& error) {
          failure = error.what();
        }
      }).join();
      if (!failure.empty()) throw Unmeasured(failure);
      begin_cuda();
    } else {
      work();
    }
    if (filled.rc != 0 && filled.bytes == 0) {
      if (filled.rc != kOutOfMemory) throw Unmeasured(cuda_failure(path.c_str(), filled.rc));
    }
    fact(granted, static_cast<double>(filled.bytes));
    fact(refusal, filled.rc);
    fact(shown, static_cast<double>(cuda_memory().total));
    let_watch_look();
  });
}

}  // namespace hardware
