// Lists devices with the data of NVML and the kernel; see device.h.
#include "tools/dra/device.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "tools/doctor/vendor_probes.h"
#include "tools/machine/gpus.h"
#include "tools/machine/nvml_library.h"

namespace fracgpu::tools::dra {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr int kDeadline_s = 30;
constexpr char kField[] = "devices";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

std::string text_of(const BusId& id) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id.domain, id.bus, id.device, id.function);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string nvidia_driver_version(const NvmlLibrary& library) {
  const auto version_of =
      library.find<nvml::nvmlReturn_t(char*, unsigned)>("nvmlSystemGetDriverVersion");
  char version[nvml::kUuidBytes] = "";
  const bool known = version_of != nullptr && version_of(version, sizeof version) == nvml::kSuccess;
  return known ? version : "";
}

// For a GPU in MIG mode, only its instances are offered: programs cannot use the GPU itself.
void add_nvidia(const Gpu& gpu, std::vector<Device>& devices) {
  if (gpu.divided) return;
  devices.push_back({.name = {},
                     .key = gpu.key,
                     .type = gpu.instance ? "mig" : "gpu",
                     .cdi = {},
                     .memory = gpu.physical,
                     .vendor = "nvidia",
                     .product = gpu.model,
                     .uuid = gpu.key,
                     .parent = gpu.instance ? gpu.instance->parent : "",
                     .bus_id = text_of(gpu.bus_id),
                     .driver_version = nvidia_driver_version(NvmlLibrary::get()),
                     .mode = gpu.instance ? gpu.instance->profile : "full"});
}

void add_amd(const Gpu& gpu, const std::vector<Gpu>& all, std::vector<Device>& devices) {
  const auto is_of_same_board = [&](const Gpu& other) {
    return other.vendor == Gpu::Vendor::amd && other.key != gpu.key &&
           other.bus_id.domain == gpu.bus_id.domain && other.bus_id.bus == gpu.bus_id.bus &&
           other.bus_id.device == gpu.bus_id.device;
  };
  const bool is_part = std::any_of(all.begin(), all.end(), is_of_same_board);
  const std::string folder = "/sys/bus/pci/devices/" + text_of(gpu.bus_id);
  devices.push_back({.name = {},
                     .key = gpu.key,
                     .type = is_part ? "partition" : "gpu",
                     .cdi = fmt::format("amd.com/gpu={}", gpu.index),
                     .memory = gpu.physical,
                     .vendor = "amd",
                     .product = gpu.model,
                     .uuid = gpu.uuid,
                     .bus_id = text_of(gpu.bus_id),
                     .driver_version = first_line("/sys/module/amdgpu/version"),
                     .mode = first_line(folder + "/current_compute_partition")});
}

// A GPU without memory of its own, such as GB10, uses the machine's. Only CUDA reports how much.
void add_totals_of_cuda(ProbeTeller& teller, std::vector<Device>& devices) {
  const auto lacks_memory = [](const Device& device) {
    return device.vendor == "nvidia" && device.memory == 0;
  };
  if (std::none_of(devices.begin(), devices.end(), lacks_memory)) return;
  const ProbedLibrary cuda(teller, {"libcuda.so.1"});
  int count = 0;
  if (!cuda || !cuda.call("cuInit", 0U) || !cuda.call("cuDeviceGetCount", &count)) return;
  for (int i = 0; i < count; ++i) {
    int number = 0;
    size_t bytes = 0;
    if (!cuda.call("cuDeviceGet", &number, i) || !cuda.call("cuDeviceTotalMem_v2", &bytes, number))
      return;
    const std::string key = cuda_key(cuda, number);
    for (Device& device : devices) {
      if (device.key == key && lacks_memory(device)) device.memory = bytes;
    }
  }
}

// Calls the drivers, which may hang.
std::vector<Device> list_devices(ProbeTeller& teller) {
  const std::vector<Gpu> gpus = list_gpus();
  std::vector<Device> devices;
  for (const Gpu& gpu : gpus) {
    gpu.vendor == Gpu::Vendor::nvidia ? add_nvidia(gpu, devices) : add_amd(gpu, gpus, devices);
  }
  add_totals_of_cuda(teller, devices);
  // A device of unknown size cannot be shared by size.
  std::erase_if(devices, [](const Device& device) { return device.memory < kMiB; });
  for (Device& device : devices) {
    device.name = lower(device.key);
    device.memory = device.memory / kMiB * kMiB;
    if (device.vendor == "nvidia") device.cdi = "nvidia.com/gpu=" + device.key;
  }
  std::sort(devices.begin(), devices.end(),
            [](const Device& a, const Device& b) { return a.name < b.name; });
  return devices;
}

}  // namespace

std::vector<Device> ask_for_devices() {
  const ProbeReport report = run_probe(kField, without_library(), kDeadline_s);
  if (!report.done()) {
    throw std::runtime_error(fmt::format("the GPUs cannot be listed: looking for them {}{}{}",
                                         report.trouble(), report.said.empty() ? "" : ": ",
                                         report.said));
  }
  std::vector<Device> devices;
  for (const Json& each : report.told[kField].items()) devices.push_back(device_of(each));
  return devices;
}

int be_devices_probe() {
  ProbeTeller teller;
  teller.step("NVML and KFD");
  Json all = Json::array();
  for (const Device& device : list_devices(teller)) all.push_back(json_of(device));
  teller.tell(kField, all);
  return 0;
}

Json json_of(const Device& device) {
  return {{"name", device.name},
          {"key", device.key},
          {"type", device.type},
          {"cdi", device.cdi},
          {"memory", device.memory},
          {"vendor", device.vendor},
          {"product", device.product},
          {"uuid", device.uuid},
          {"parent", device.parent},
          {"bus_id", device.bus_id},
          {"driver_version", device.driver_version},
          {"mode", device.mode}};
}

Device device_of(const Json& json) {
  return {.name = json.value("name", ""),
          .key = json.value("key", ""),
          .type = json.value("type", ""),
          .cdi = json.value("cdi", ""),
          .memory = json.value("memory", uint64_t{0}),
          .vendor = json.value("vendor", ""),
          .product = json.value("product", ""),
          .uuid = json.value("uuid", ""),
          .parent = json.value("parent", ""),
          .bus_id = json.value("bus_id", ""),
          .driver_version = json.value("driver_version", ""),
          .mode = json.value("mode", "")};
}

}  // namespace fracgpu::tools::dra
