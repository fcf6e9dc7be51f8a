// NVML for this command: loaded at run time, initialised once, never closed. The process ends soon,
// and a driver's library may not handle closing well.
#pragma once

#include <dlfcn.h>

#include <optional>
#include <vector>

#include "hooks/smi/nvml/abi.h"
#include "shim/base/real_dlfcn.h"

namespace fracgpu::tools {

class NvmlLibrary {
 public:
  // The machine's NVML. If there is none, calls nothing of it.
  static const NvmlLibrary& get() {
    static const NvmlLibrary library;
    return library;
  }

  bool ready() const { return ready_; }

  // Null if the library has no such function.
  template <typename Function>
  Function* find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
  }

  // The same, but bypasses the preloaded library if this command runs under a cap. The preloaded
  // library would show the cap instead of the GPU.
  template <typename Function>
  Function* find_uncapped(const char* name) const {
    static const auto real_dlsym = real_dl_function<void* (*)(void*, const char*)>("dlsym");
    if (real_dlsym == nullptr) return find<Function>(name);
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(real_dlsym(library_, name));
  }

 private:
  NvmlLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    const auto init = find<nvml::nvmlReturn_t()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == nvml::kSuccess;
  }

  void* library_;
  bool ready_ = false;
};

// One of a GPU's MIG devices, and its number on that GPU.
struct MigDevice {
  unsigned number = 0;
  nvml::nvmlDevice_t handle = nullptr;
};

// The MIG instances of a GPU, which are separate devices. None if the GPU is not in MIG mode.
// `library` finds functions as NvmlLibrary does.
template <typename Library>
std::optional<std::vector<MigDevice>> mig_instances(const Library& library,
                                                    nvml::nvmlDevice_t gpu) {
  using namespace nvml;
  const auto mode_of = library.template find<nvmlReturn_t(nvmlDevice_t, unsigned*, unsigned*)>(
      "nvmlDeviceGetMigMode");
  const auto count_of = library.template find<nvmlReturn_t(nvmlDevice_t, unsigned*)>(
      "nvmlDeviceGetMaxMigDeviceCount");
  const auto handle_of = library.template find<nvmlReturn_t(nvmlDevice_t, unsigned, nvmlDevice_t*)>(
      "nvmlDeviceGetMigDeviceHandleByIndex");
  unsigned now = 0, pending = 0, most = 0;
  if (!mode_of || !count_of || !handle_of || mode_of(gpu, &now, &pending) != kSuccess || now == 0 ||
      count_of(gpu, &most) != kSuccess) {
    return std::nullopt;
  }
  std::vector<MigDevice> instances;
  for (unsigned i = 0; i < most; ++i) {
    // Their numbers have gaps.
    if (nvmlDevice_t one = nullptr; handle_of(gpu, i, &one) == kSuccess) {
      instances.push_back({i, one});
    }
  }
  return instances;
}

}  // namespace fracgpu::tools
