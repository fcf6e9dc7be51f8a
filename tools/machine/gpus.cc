// Lists GPUs and finds those that a user names; see gpus.h.
#include "tools/machine/gpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "hooks/usage/kfd_topology.h"
#include "tools/cli/text_list.h"
#include "tools/machine/amd_partitions.h"
#include "tools/machine/nvml_library.h"

namespace fracgpu::tools {
namespace {

using namespace nvml;

template <typename Value>
using Getter = nvmlReturn_t(nvmlDevice_t, Value*);
using TextGetter = nvmlReturn_t(nvmlDevice_t, char*, unsigned);

// Empty if NVML does not report it.
std::string text_of(const char* function, nvmlDevice_t device) {
  const auto ask = NvmlLibrary::get().find<TextGetter>(function);
  char text[kUuidBytes] = "";
  return ask != nullptr && ask(device, text, sizeof text) == kSuccess ? text : "";
}

std::optional<uint32_t> number_of(const char* function, nvmlDevice_t device) {
  const auto ask = NvmlLibrary::get().find<Getter<unsigned>>(function);
  unsigned number = 0;
  if (ask == nullptr || ask(device, &number) != kSuccess) return std::nullopt;
  return number;
}

// A device as programs can use it. Fields that NVML does not report stay empty. None if it may not
// be inspected, as in a container: then it may not be used either.
std::optional<Gpu> nvidia_gpu(nvmlDevice_t device, int index) {
  const NvmlLibrary& library = NvmlLibrary::get();
  static const auto memory_of =
      library.find_uncapped<Getter<nvmlMemory_t>>("nvmlDeviceGetMemoryInfo");
  static const auto split_memory_of =
      library.find_uncapped<Getter<nvmlMemory_v2_t>>("nvmlDeviceGetMemoryInfo_v2");
  const std::string uuid = text_of("nvmlDeviceGetUUID", device);
  if (uuid.empty()) return std::nullopt;
  Gpu gpu{.index = index,
          .key = uuid,
          .visible_name = uuid,
          .model = text_of("nvmlDeviceGetName", device)};
  nvmlMemory_t memory = {};
  if (memory_of != nullptr && memory_of(device, &memory) == kSuccess) {
    gpu.physical = memory.total;
    gpu.used = memory.used;
  }
  // Programs cannot get the driver's reserve.
  nvmlMemory_v2_t split = {};
  split.version = kMemoryV2;
  if (split_memory_of != nullptr && split_memory_of(device, &split) == kSuccess &&
      split.reserved < split.total) {
    gpu.physical = split.total - split.reserved;
  }
  return gpu;
}

// NVML appends an instance's profile to its GPU's name: "NVIDIA A100-PCIE-40GB MIG 1g.5gb".
std::string profile_in(const std::string& model) {
  constexpr std::string_view kMark = " MIG ";
  const size_t mark = model.rfind(kMark);
  return mark == model.npos ? "" : model.substr(mark + kMark.size());
}

void add_instances(nvmlDevice_t device, std::vector<Gpu>& gpus) {
  const auto instances = mig_instances(NvmlLibrary::get(), device);
  if (!instances) return;
  const size_t parent = gpus.size() - 1;
  gpus[parent].divided = true;
  const std::optional<uint32_t> minor = number_of("nvmlDeviceGetMinorNumber", device);
  for (const auto& [number, each] : *instances) {
    auto gpu = nvidia_gpu(each, gpus[parent].index);
    if (!gpu) continue;
    gpu->bus_id = gpus[parent].bus_id;
    gpu->instance = {
        .parent = gpus[parent].key,
        .number = static_cast<int>(number),
        .profile = profile_in(gpu->model),
        .gpu_instance = number_of("nvmlDeviceGetGpuInstanceId", each).value_or(0),
        .compute_instance = number_of("nvmlDeviceGetComputeInstanceId", each).value_or(0),
        .gpu_minor = minor,
    };
    const auto attributes_of =
        NvmlLibrary::get().find<Getter<nvmlDeviceAttributes_t>>("nvmlDeviceGetAttributes_v2");
    nvmlDeviceAttributes_t attributes = {};
    if (attributes_of != nullptr && attributes_of(each, &attributes) == kSuccess) {
      gpu->instance->slices = attributes.computeInstanceSliceCount;
    }
    gpus.push_back(std::move(*gpu));
  }
}

std::vector<Gpu> list_nvidia() {
  const NvmlLibrary& library = NvmlLibrary::get();
  const auto count_of = library.find<nvmlReturn_t(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto handle_of =
      library.find<nvmlReturn_t(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto pci_of = library.find<Getter<nvmlPciInfo_t>>("nvmlDeviceGetPciInfo_v3");
  unsigned count = 0;
  if (!library.ready() || !count_of || !handle_of || count_of(&count) != kSuccess) return {};
  std::vector<Gpu> gpus;
  int whole = 0;
  for (unsigned index = 0; index < count; ++index) {
    nvmlDevice_t device = nullptr;
    if (handle_of(index, &device) != kSuccess) continue;
    auto gpu = nvidia_gpu(device, static_cast<int>(index));
    if (!gpu) continue;
    gpu->runtime_number = whole++;
    nvmlPciInfo_t pci = {};
    if (pci_of != nullptr && pci_of(device, &pci) == kSuccess) {
      gpu->bus_id = {.domain = pci.domain, .bus = pci.bus, .device = pci.device};
    }
    gpus.push_back(std::move(*gpu));
    add_instances(device, gpus);
  }
  return gpus;
}

std::vector<Gpu> list_amd() {
  const kfd::GpuList all;
  std::multiset<uint64_t> unique_ids;
  std::vector<uint32_t> nodes;  // of the GPUs that the runtime can use, in its numbering
  for (const kfd::Gpu& gpu : all) {
    unique_ids.insert(gpu.unique_id);
    if (gpu.has_render_node()) nodes.push_back(gpu.node);
  }
  std::sort(nodes.begin(), nodes.end());
  std::vector<Gpu> gpus;
  for (const kfd::Gpu& gpu : all) {
    // Partitions share the board's UUID on some kernels. The runtime also accepts a number.
    const bool telling = gpu.unique_id != 0 && unique_ids.count(gpu.unique_id) == 1;
    const auto number = std::lower_bound(nodes.begin(), nodes.end(), gpu.node) - nodes.begin();
    gpus.push_back({.vendor = Gpu::Vendor::amd,
                    .index = static_cast<int>(gpus.size()),
                    .key = gpu.key().c_str(),
                    .visible_name = telling ? fmt::format("GPU-{:016x}", gpu.unique_id)
                                            : std::to_string(number),
                    .runtime_number = gpu.has_render_node() ? static_cast<int>(number) : -1,
                    .uuid = gpu.uuid().c_str(),
                    .bus_id = gpu.bus_id,
                    .physical = gpu.physical_bytes(),
                    .render_minor = static_cast<int>(gpu.render_minor)});
  }
  tell_boards(gpus);
  return gpus;
}

// Lists the GPUs for the error message about one that does not exist.
std::string offer(const std::vector<Gpu>& gpus) {
  std::string list;
  for (size_t i = 0; i < gpus.size() && i < 4; ++i) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", gpus[i].number(), gpus[i].key);
  }
  if (gpus.size() > 4) list += fmt::format(" and {} more", gpus.size() - 4);
  return list;
}

bool take_range(std::string_view item, int& first, int& last) {
  const size_t dash = item.find('-');
  if (dash == item.npos) return false;
  const auto number = [](std::string_view text, int& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value >= 0;
  };
  return number(item.substr(0, dash), first) && number(item.substr(dash + 1), last);
}

}  // namespace

std::string Gpu::number() const {
  return instance ? fmt::format("{}:{}", index, instance->number) : std::to_string(index);
}

std::string Gpu::label() const {
  return fmt::format("GPU {} ({})", number(), key);
}

std::vector<Gpu> list_gpus() {
  std::vector<Gpu> gpus = list_nvidia();
  for (Gpu& gpu : list_amd()) gpus.push_back(std::move(gpu));
  return gpus;
}

std::vector<size_t> choose_gpu(std::string_view item, const std::vector<Gpu>& gpus) {
  Selector selector;
  const bool understood = selector.parse(item);
  std::vector<size_t> found;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const bool instance = gpus[i].instance && gpus[i].number() == item;
    if (instance || (understood && selector.selects(gpus[i].name()))) found.push_back(i);
  }
  if (found.empty()) {
    throw std::runtime_error(
        fmt::format("there is no GPU {} here; there are {}; accepted: 0, 0,2-3, all, GPU-<uuid>, "
                    "AMD-<gpu_id>, a bus id, and 0:1 or MIG-<uuid> for a MIG instance",
                    fracgpu::quoted(item).view(), offer(gpus)));
  }
  if (selector.kind == Selector::Kind::index && found.size() > 1) {
    throw std::runtime_error(fmt::format("GPU {} may be {} or {}; name it by its own name", item,
                                         gpus[found[0]].key, gpus[found[1]].key));
  }
  return found;
}

std::vector<size_t> choose_gpus(std::string_view text, const std::vector<Gpu>& gpus) {
  std::set<size_t> chosen;
  for (const std::string_view item : split(text, ',')) {
    int first = 0, last = 0;
    if (item == "all") {
      for (size_t i = 0; i < gpus.size(); ++i) {
        if (!gpus[i].instance) chosen.insert(i);
      }
    } else if (take_range(item, first, last)) {
      if (last < first || last - first > 1024) {
        throw std::runtime_error(
            fmt::format("{} is no range of GPUs; write the lower number first, as in 0-3",
                        fracgpu::quoted(item).view()));
      }
      for (; first <= last; ++first) {
        for (const size_t each : choose_gpu(std::to_string(first), gpus)) chosen.insert(each);
      }
    } else {
      for (const size_t each : choose_gpu(item, gpus)) chosen.insert(each);
    }
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace fracgpu::tools
