// AMD: which device is meant, what KFD counts, what becomes physical, and the cap on each path.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>

#include "tests/clients/token.h"
#include "tests/hardware/hsa.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr int kAgentDriverNode = 0xA004;  // HSA_AMD_AGENT_INFO_DRIVER_NODE_ID
constexpr int kAgentDriverUid = 0xA112;   // HSA_AMD_AGENT_INFO_DRIVER_UID, since ROCr 5.7
constexpr ino_t kHostPidNamespace = 0xEFFFFFFC;
constexpr uint64_t kSizes[] = {4 * kKiB,    64 * kKiB,   512 * kKiB, kMiB,
                               1025 * kKiB, 1536 * kKiB, 2 * kMiB,   2 * kMiB + kKiB,
                               3 * kMiB,    5 * kMiB,    64 * kMiB};
constexpr size_t kEach = 8;

// A handle as text, byte by byte.
std::string text_of(const hsa_amd_ipc_memory_t& handle) {
  unsigned char bytes[sizeof handle];
  std::memcpy(bytes, &handle, sizeof handle);
  return client::hex(bytes);
}

hsa_amd_ipc_memory_t handle_of(const std::string& text) {
  hsa_amd_ipc_memory_t handle = {};
  unsigned char bytes[sizeof handle];
  client::read_hex(text, bytes);
  std::memcpy(&handle, bytes, sizeof handle);
  return handle;
}

KfdDevice first_device() {
  const auto devices = kfd::devices();
  if (devices.empty()) throw Unmeasured("KFD shows no GPU");
  return devices[0];
}

uint64_t counted() {
  uint64_t bytes = 0;
  if (!kfd::bytes_of(getpid(), first_device().gpu_id, &bytes)) {
    throw Unmeasured("KFD shows no vram_<gpu_id> for this process");
  }
  return bytes;
}

int take_pool(const HsaGpu& gpu, uint64_t bytes, void** out) {
  return try_hsa("hsa_amd_memory_pool_allocate", gpu.pool, size_t{bytes}, 0u, out);
}

void ask_device() {
  question({"amd.node_differs", "amd.uid_differs", "amd.runtime_total_differs"}, [] {
    const KfdDevice device = first_device();
    fact("amd.gpu_id", static_cast<double>(device.gpu_id));
    fact("amd.vram_bytes", static_cast<double>(device.vram_bytes));
    const HsaGpu gpu = begin_hsa();
    size_t size = 0;
    void* const out = &size;
    hsa("hsa_amd_memory_pool_get_info", gpu.pool, kPoolSize, out);
    fact("amd.runtime_total_differs",
         static_cast<double>(size) - static_cast<double>(device.vram_bytes));
    const auto node = agent_value<uint32_t>(gpu.agent, kAgentDriverNode);
    fact("amd.node_differs", node != device.node);
    fact("amd.uid_differs",
         agent_value<uint64_t>(gpu.agent, kAgentDriverUid) != uint64_t{device.gpu_id});
  });
}

void ask_sizes() {
  question({"amd.runtime_bytes", "amd.block_bytes", "amd.alloc_table"}, [] {
    const HsaGpu gpu = begin_hsa();
    const uint64_t start = counted();
    fact("amd.runtime_bytes", static_cast<double>(start));
    std::string table;
    uint64_t smallest = UINT64_MAX;
    for (const uint64_t size : kSizes) {
      std::vector<void*> held;
      const uint64_t before = counted();
      uint64_t last = before;
      for (size_t i = 0; i < kEach; ++i) {
        void* address = nullptr;
        if (const int rc = take_pool(gpu, size, &address)) {
          throw Unmeasured("hsa_amd_memory_pool_allocate: status " + std::to_string(rc));
        }
        held.push_back(address);
        const uint64_t now = counted();
        if (size == 4 * kKiB && now > last) smallest = std::min(smallest, now - last);
        last = now;
      }
      table += (table.empty() ? "" : "; ") + std::to_string(kEach) + " x " +
               std::to_string(size / kKiB) + " KiB take " + std::to_string((last - before) / kKiB) +
               " KiB";
      for (void* const address : held) hsa("hsa_amd_memory_pool_free", address);
    }
    fact("amd.alloc_table", table);
    if (smallest == UINT64_MAX) throw Unmeasured("KFD's count never grew");
    fact("amd.block_bytes", static_cast<double>(smallest));
  });
}

void ask_sharing_of_amd(Child& exporter) {
  question({"amd.ipc_importer_bytes"}, [&] {
    const std::string token = exporter.ask();
    const HsaGpu gpu = begin_hsa();
    const uint64_t before = counted();
    const hsa_amd_ipc_memory_t handle = handle_of(token);
    void* address = nullptr;
    const hsa_amd_ipc_memory_t* const from = &handle;
    const hsa_agent_t* const agents = &gpu.agent;
    hsa("hsa_amd_ipc_memory_attach", from, size_t{64 * kMiB}, 1u, agents, &address);
    fact("amd.ipc_importer_bytes", static_cast<double>(counted()) - static_cast<double>(before));
  });
}

void ask_death_of_amd(Child& victim) {
  question({"amd.death_listed_ms", "amd.death_in_use_unlisted_ms"}, [&] {
    const KfdDevice device = first_device();
    const double held = std::stod(victim.ask());
    uint64_t used = 0, bytes = 0;
    const bool device_tells = kfd::device_used(device, &used);
    const auto at_most = static_cast<uint64_t>(static_cast<double>(used) - held / 2);
    if (!kfd::bytes_of(victim.pid(), device.gpu_id, &bytes)) {
      throw Unmeasured("KFD shows no vram_<gpu_id> for the process");
    }
    victim.kill();
    const double start = now_ms();
    double gone = -1, freed = device_tells ? -1 : 0;
    while ((gone < 0 || freed < 0) && now_ms() - start < 30000) {
      if (gone < 0 && !kfd::bytes_of(victim.pid(), device.gpu_id, &bytes)) gone = now_ms() - start;
      if (freed < 0 && kfd::device_used(device, &used) && used <= at_most) freed = now_ms() - start;
    }
    if (gone < 0 || freed < 0) throw Unmeasured("not over after half a minute");
    fact("amd.death_listed_ms", gone);
    if (!device_tells) throw Unmeasured("there is no mem_info_vram_used");
    fact("amd.death_in_use_unlisted_ms", std::max(0.0, freed - gone));
  });
}

// Handles of 2 MiB units, of VMM.
int take_vmem(const HsaGpu& gpu, uint64_t bytes) {
  hsa_amd_vmem_alloc_handle_t handle = {};
  hsa_amd_vmem_alloc_handle_t* const out = &handle;
  return try_hsa("hsa_amd_vmem_handle_create", gpu.pool, size_t{bytes}, 0, uint64_t{0}, out);
}

// Memory of a sibling of the same tenant, until it is refused there. It starts when the parent has
// initialised its runtime.
void export_all(Child& child, uint64_t most) {
  child.wait();
  const HsaGpu gpu = begin_hsa();
  for (uint64_t taken = 0; taken <= most; taken += 64 * kMiB) {
    void* address = nullptr;
    hsa_amd_ipc_memory_t handle = {};
    hsa_amd_ipc_memory_t* const out = &handle;
    if (take_pool(gpu, 64 * kMiB, &address) != 0) break;
    hsa("hsa_amd_ipc_memory_create", address, size_t{64 * kMiB}, out);
    child.answer(text_of(handle));
    child.wait();
  }
  child.answer("done");
  child.wait();
}

void import_all(Child& exporter) {
  const HsaGpu gpu = begin_hsa();
  exporter.tell();
  uint64_t imported = 0;
  for (std::string token; (token = exporter.ask()) != "done"; imported += 64 * kMiB) {
    const hsa_amd_ipc_memory_t handle = handle_of(token);
    void* address = nullptr;
    const hsa_amd_ipc_memory_t* const from = &handle;
    const hsa_agent_t* const agents = &gpu.agent;
    const int rc =
        try_hsa("hsa_amd_ipc_memory_attach", from, size_t{64 * kMiB}, 1u, agents, &address);
    if (rc != 0) throw Unmeasured("hsa_amd_ipc_memory_attach: status " + std::to_string(rc));
    exporter.tell();
  }
  fact("cap.amd_ipc.granted_bytes", static_cast<double>(imported));
  let_watch_look();
}

}  // namespace

void ask_amd(const Options&) {
  Child exporter([](Child& child) {
    const HsaGpu gpu = begin_hsa();
    void* address = nullptr;
    hsa_amd_ipc_memory_t handle = {};
    hsa_amd_ipc_memory_t* const out = &handle;
    if (take_pool(gpu, 64 * kMiB, &address) != 0) throw Unmeasured("64 MiB are refused");
    hsa("hsa_amd_ipc_memory_create", address, size_t{64 * kMiB}, out);
    child.answer(text_of(handle));
    child.wait();
  });
  Child victim([](Child& child) {
    const HsaGpu gpu = begin_hsa();
    uint64_t held = 0;
    for (void* address = nullptr; held < uint64_t{60} << 30; held += 256 * kMiB) {
      if (held * 10 > first_device().vram_bytes * 7) break;
      if (take_pool(gpu, 256 * kMiB, &address) != 0) break;
    }
    child.answer(std::to_string(held));
    child.wait();
  });
  question({"amd.pid_namespace"}, [] {
    struct stat about {};
    if (stat("/proc/self/ns/pid", &about) != 0) throw Unmeasured("no /proc/self/ns/pid");
    fact("amd.pid_namespace", about.st_ino == kHostPidNamespace ? "host" : "private");
  });
  question({"amd.kernel_driver"}, [] {
    std::ifstream file("/sys/module/amdgpu/version");
    std::string version;
    if (!(file >> version)) throw Unmeasured("there is no /sys/module/amdgpu/version");
    fact("amd.kernel_driver", version);
  });
  ask_death_of_amd(victim);
  ask_device();
  ask_sizes();
  ask_sharing_of_amd(exporter);
}

// With the library: the ledger beside KFD's count.
void ask_amd_books(const Options& options) {
  question({"amd.alloc_undercharged_bytes", "amd.alloc_overcharged_bytes"}, [&] {
    Books books(Vendor::amd);
    const HsaGpu gpu = begin_hsa();
    double under = 0, over = 0;
    const auto look = [&] {
      const Books::Page page = books.look();
      if (!page.driver_knows) throw Unmeasured("KFD shows no vram_<gpu_id> for this process");
      under = std::max(under, static_cast<double>(page.driver) - static_cast<double>(page.ledger));
      over = std::max(over, static_cast<double>(page.ledger) - static_cast<double>(page.driver));
    };
    for (const uint64_t size : kSizes) {
      if (size * kEach > options.number("cap") / 2) break;
      std::vector<void*> held(kEach);
      for (void*& address : held) {
        if (take_pool(gpu, size, &address) != 0) throw Unmeasured("an allocation is refused");
      }
      look();
      for (void* const address : held) hsa("hsa_amd_memory_pool_free", address);
      look();
    }
    fact("amd.alloc_undercharged_bytes", under);
    fact("amd.alloc_overcharged_bytes", over);
  });
}

void fill_amd(const Options& options) {
  const std::string path = options.text("path");
  const std::string key = "cap.amd_" + path;
  const std::string granted = key + ".granted_bytes", refusal = key + ".refusal";
  const uint64_t most = options.number("cap") + 256 * kMiB;
  if (path == "ipc") {
    Child exporter([&](Child& child) { export_all(child, most); });
    question({granted.c_str()}, [&] { import_all(exporter); });
    return;
  }
  question({granted.c_str(), refusal.c_str()}, [&] {
    std::function<int(uint64_t)> take = [](uint64_t bytes) {
      void* address = nullptr;
      return try_hip("hipMalloc", &address, size_t{bytes});
    };
    if (path != "hip") {
      const HsaGpu gpu = begin_hsa();
      take = [=](uint64_t bytes) {
        void* address = nullptr;
        return path == "hsa" ? take_pool(gpu, bytes, &address) : take_vmem(gpu, bytes);
      };
    }
    const Filled filled = fill_until_refused(most, take);
    fact(granted, static_cast<double>(filled.bytes));
    fact(refusal, filled.rc);
    let_watch_look();
  });
}

}  // namespace hardware
