// What machine this is: driver, kernel modules, GPU, PID namespace, totals, the table of entry
// points. Without the library.
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <regex>

#include "tests/hardware/cuda.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

// The kernel's number of the first PID namespace (PROC_PID_INIT_INO).
constexpr ino_t kHostPidNamespace = 0xEFFFFFFC;

void tell_module_flavour() {
  question({"driver.module_flavour", "driver.module_version"}, [] {
    std::ifstream file("/proc/driver/nvidia/version");
    std::string line;
    if (!std::getline(file, line)) throw Unmeasured("there is no /proc/driver/nvidia/version");
    fact("driver.module_flavour", line.find("Open Kernel Module") != line.npos ? "open" : "closed");
    std::smatch match;
    if (std::regex_search(line, match, std::regex("[0-9]+\\.[0-9]+(\\.[0-9]+)?"))) {
      fact("driver.module_version", match.str());
    }
  });
}

// The version column of the hooks' table, of which the first number is enough here.
struct Version {
  int number;
  constexpr Version(int first) : number(first) {}
  constexpr Version declared(int) const { return *this; }
  constexpr Version until(int) const { return *this; }
  constexpr Version undeclared() const { return *this; }
};
constexpr Version since(int first) {
  return {first};
}
[[maybe_unused]] constexpr Version by(int first) {
  return {first};
}
struct Symbol {
  const char* name;
  Version version;
};
constexpr Symbol kHooked[] = {
#define FRACGPU_HOOKED(family, version, name, parameters) {#name, version},
#define FRACGPU_CALLED(family, version, name, parameters)
#define FRACGPU_NAMED(family, version, name, parameters)
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
#undef FRACGPU_NAMED
};

// "cuMemAllocAsync_ptsz" is asked for as "cuMemAllocAsync", with a flag for the stream.
std::string base_name(std::string name, uint64_t* flags) {
  *flags = 0;
  for (const char* suffix : {"_ptsz", "_ptds"}) {
    if (name.size() > 5 && name.compare(name.size() - 5, 5, suffix) == 0) {
      name.resize(name.size() - 5);
      *flags = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
    }
  }
  return std::regex_replace(name, std::regex("_v[0-9]+$"), "");
}

struct EntryPoints {
  int asked = 0, differing = 0;
  std::string first;
};

// Of the functions that the library hooks, those for which cuGetProcAddress answers with another
// address than the linker would.
EntryPoints compare_entry_points() {
  EntryPoints seen;
  int spoken = 0;
  cuda("cuDriverGetVersion", &spoken);
  for (const Symbol& symbol : kHooked) {
    if (symbol.version.number > spoken) continue;  // the getter answers with an older form
    void* const exported = cuda_function(symbol.name);
    uint64_t flags = 0;
    const std::string base = base_name(symbol.name, &flags);
    void* found = nullptr;
    // Before 12.0 the getter has no status; asked for that version, the new one is as the old.
    if (exported == nullptr ||
        try_cuda("cuGetProcAddress", base.c_str(), &found, symbol.version.number, flags) != 0 ||
        found == nullptr)
      continue;
    ++seen.asked;
    if (found == exported) continue;
    if (seen.differing++ == 0) seen.first = symbol.name;
  }
  return seen;
}

}  // namespace

void ask_identity(const Options&) {
  tell_module_flavour();
  question({"pid_namespace"}, [] {
    struct stat about {};
    if (stat("/proc/self/ns/pid", &about) != 0) throw Unmeasured("no /proc/self/ns/pid");
    fact("pid_namespace", about.st_ino == kHostPidNamespace ? "host" : "private");
  });
  question({"nvml.init_ms"}, [] {
    void* const init = nvml::function("nvmlInit_v2");
    if (init == nullptr) throw Unmeasured("NVML has no nvmlInit_v2");
    const double start = now_ms();
    if (const int rc = reinterpret_cast<int (*)()>(init)()) {
      throw Unmeasured("nvmlInit_v2: NVML error " + std::to_string(rc));
    }
    fact("nvml.init_ms", now_ms() - start);
  });
  question({"driver.version"}, [] { fact("driver.version", nvml::driver_version()); });
  question({"driver.cuda_version"}, [] {
    int version = 0;
    cuda("cuDriverGetVersion", &version);
    fact("driver.cuda_version", version);
  });
  question({"gpu.name", "gpu.compute_capability", "gpu.multiprocessors"}, [] {
    cuda("cuInit", 0u);
    char name[128] = {};
    cuda("cuDeviceGetName", static_cast<char*>(name), int{sizeof name}, CUdevice{0});
    fact("gpu.name", name);
    int major = 0, minor = 0, multiprocessors = 0;
    cuda("cuDeviceGetAttribute", &major, 75, CUdevice{0});
    cuda("cuDeviceGetAttribute", &minor, 76, CUdevice{0});
    fact("gpu.compute_capability", std::to_string(major) + "." + std::to_string(minor));
    cuda("cuDeviceGetAttribute", &multiprocessors, kMultiprocessors, CUdevice{0});
    fact("gpu.multiprocessors", multiprocessors);
  });
  question({"memory.cuda_total", "memory.nvml_total", "memory.nvml_above_cuda"}, [] {
    size_t total = 0;
    cuda("cuDeviceTotalMem_v2", &total, CUdevice{0});
    fact("memory.cuda_total", static_cast<double>(total));
    const NvmlMemory memory = nvml::memory();
    fact("memory.nvml_total", static_cast<double>(memory.total));
    fact("memory.nvml_above_cuda", static_cast<double>(memory.total) - static_cast<double>(total));
  });
  question({"memory.nvml_total_v2", "memory.nvml_reserved"}, [] {
    const NvmlMemory memory = nvml::memory();
    if (!memory.has_v2) throw Unmeasured("NVML has no nvmlDeviceGetMemoryInfo_v2");
    fact("memory.nvml_total_v2", static_cast<double>(memory.total_v2));
    fact("memory.nvml_reserved", static_cast<double>(memory.reserved));
  });
  question({"gpu.processes_before"},
           [] { fact("gpu.processes_before", static_cast<double>(nvml::processes().size())); });
  question({"memory.granularity"}, [] {
    begin_cuda();
    fact("memory.granularity", static_cast<double>(granularity()));
  });
}

// The same question with and without the library: it must be the one that answers.
void ask_entry_points(const Options& options) {
  const std::string with = options.text("with", "plain");
  const std::string differing = "entry_points." + with + ".differing";
  const std::string asked = "entry_points." + with + ".asked";
  question({differing.c_str(), asked.c_str()}, [&] {
    const EntryPoints seen = compare_entry_points();
    if (seen.asked == 0) throw Unmeasured("cuGetProcAddress finds nothing");
    fact(asked, seen.asked);
    fact(differing, seen.differing);
    if (seen.differing != 0) fact("entry_points." + with + ".first", seen.first);
  });
  if (with != "library") return;
  question({"entry_points.library.escaping"}, [] {
    Dl_info about = {};
    int escaping = 0;
    for (const Symbol& symbol : kHooked) {
      void* const found = cuda_function(symbol.name);
      if (found == nullptr || dladdr(found, &about) == 0 || about.dli_fname == nullptr) continue;
      escaping += std::string(about.dli_fname).find("libcuda.so") != std::string::npos;
    }
    fact("entry_points.library.escaping", escaping);
  });
}

}  // namespace hardware
