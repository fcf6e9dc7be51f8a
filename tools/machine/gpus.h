// The GPUs of this machine as its drivers list them: NVIDIA's through NVML, and AMD's through the
// kernel's sysfs. An AMD partition counts as a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/config/device_name.h"

namespace fracgpu::tools {

// A MIG instance, in relation to its GPU.
struct MigInstance {
  std::string parent{};   // the GPU's key
  int number = 0;         // among the GPU's, as nvidia-smi -L counts them
  std::string profile{};  // "2g.20gb", after "1c." if it is a part of the instance
  uint32_t gpu_instance = 0, compute_instance = 0;
  uint32_t slices = 0;                  // of compute
  std::optional<uint32_t> gpu_minor{};  // the GPU is /dev/nvidia<minor>
};

struct Gpu {
  enum class Vendor { nvidia, amd } vendor = Vendor::nvidia;
  int index = 0;               // as nvidia-smi or rocm-smi number it
  std::string key{};           // as in the ledger
  std::string visible_name{};  // for CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES
  int runtime_number = -1;  // as these lists count, by PCI address; -1: CUDA or ROCr cannot use it
  std::string model{};      // empty: not requested or not reported
  std::string uuid{};       // of AMD's, which partitions may share; may be empty
  BusId bus_id{};
  uint64_t physical = 0;                  // bytes that programs can have; 0: not known
  std::optional<uint64_t> used{};         // bytes, by all processes, as the driver reports
  bool divided = false;                   // in MIG mode: programs can use its instances only
  std::optional<MigInstance> instance{};  // set if this is an instance
  // Only for AMD; see amd_partitions.h.
  int board = -1;
  int render_minor = -1;
  std::string mode{};  // "CPX/NPS4"; empty if the kernel shows no mode

  DeviceName name() const {
    if (instance) return {.key = key};
    return {
        .key = key, .whole = Text<64>(uuid), .index = index, .has_bus_id = true, .bus_id = bus_id};
  }
  std::string number() const;  // "0", and of an instance "0:1"
  std::string label() const;   // "GPU 0 (GPU-…)"
};

// The GPUs of both vendors, in their drivers' order, each followed by its MIG instances. Empty if
// there are none.
std::vector<Gpu> list_gpus();

// The places in `gpus` that "0,2-3", "all", keys, UUIDs and bus ids select, in ascending order.
// "0:1" or its UUID selects a MIG instance. The names of its GPU do not. Throws std::runtime_error
// with one line for an item that selects no GPU, or for an index that selects more than one GPU.
std::vector<size_t> choose_gpus(std::string_view text, const std::vector<Gpu>& gpus);

// The same for one item.
std::vector<size_t> choose_gpu(std::string_view item, const std::vector<Gpu>& gpus);

}  // namespace fracgpu::tools
