// The variables that cap a process: FRACGPU_MEMORY_LIMIT, and those of other projects, so that
// their launchers work with this library instead of theirs.
//
//   FRACGPU_MEMORY_LIMIT               any device       the grammar of limits.h
//   CUDA_DEVICE_MEMORY_LIMIT[_<i>]     NVIDIA's         HAMi-core: 3000m, 1g, 1048576k or bytes
//   HIP_DEVICE_MEMORY_LIMIT[_<i>]      AMD's            the same
//   NVIDIA_GPU_MEMORY_LIMIT            NVIDIA's         NVIDIA Container Toolkit: whole MiB
//
// Each variable caps the devices in its row, and the smallest cap holds. A variable with an index
// takes precedence over the same one without. The index is nvidia-smi's or rocm-smi's, which in a
// container is the order of its devices. As in HAMi-core, an empty variable counts as not set,
// except FRACGPU_MEMORY_LIMIT, which is then malformed. Sources: HAMi-core 8f3a89c6,
// src/multiprocess/multiprocess_memory_limit.c; HAMi's amd-device-plugin 9a3e617d,
// internal/pkg/plugin/plugin.go; kai-gpu-fractioning, fractiond's package injection, which names
// the toolkit's hook apply-cuda-memory-limits.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/base/text.h"
#include "shim/config/limits.h"

namespace fracgpu {

inline constexpr char kLimitVariable[] = "FRACGPU_MEMORY_LIMIT";

// Whether this variable sets a limit, well-formed or not.
bool sets_limit(std::string_view name, const char* value);

// Whether any variable does: one walk over the environment.
[[gnu::cold]] bool limit_is_in_environment();

class EnvironmentLimits {
 public:
  // False with `error` set if a variable is malformed or asks for memory beyond the device's, which
  // this library does not provide. `error` names the variable.
  [[gnu::cold]] bool read(Message& error);

  // Bytes; UINT64_MAX if nothing caps the device.
  [[gnu::cold]] uint64_t cap_for(const DeviceName& device, uint64_t physical) const;

  [[gnu::cold]] bool selects_by(Selector::Kind kind) const;

  // The first selector for which `exists(const Selector&)` finds no device, or empty.
  template <typename Exists>
  Text<64> unknown_selector(Exists exists) const {
    if (const std::string_view unknown = ours_.unknown_selector(exists); !unknown.empty()) {
      return Text<64>(unknown);
    }
    Selector selector;
    selector.kind = Selector::Kind::index;
    for (const ByIndex& limits : of_others_) {
      for (int i = 0; i < kMostIndices; ++i) {
        selector.index = i;
        if (limits.at[i] == 0 || exists(selector)) continue;
        Text<64> text;
        text.format("{}", i);
        return text;
      }
    }
    return {};
  }

  // The variable by which HAMi-core would limit the use of compute, which this library does not
  // limit; or empty.
  std::string_view unenforced() const { return unenforced_; }

 private:
  static constexpr int kMostIndices = 32;
  static constexpr size_t kOthers = 3;
  // Bytes; 0: no limit.
  struct ByIndex {
    uint64_t all = 0;
    uint64_t at[kMostIndices] = {};
  };

  [[gnu::cold]] bool read_variable(std::string_view name, std::string_view value, Message& error);
  [[gnu::cold]] bool read_other(size_t dialect, std::string_view name, std::string_view value,
                                Message& error);

  Limits ours_;
  ByIndex of_others_[kOthers];  // in the order of the table in the .cc
  std::string_view unenforced_;
};

}  // namespace fracgpu
