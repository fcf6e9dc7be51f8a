// Reads the lists of visible devices; see visible_gpus.h.
//
// CUDA accepts indices and UUIDs. A UUID may be cut short as long as it is unique. Entries after
// the first one that names no device do not count, and an empty list shows nothing (CUDA C++
// Programming Guide, "Device Enumeration and Properties"). A duplicate hides all devices. Indices
// follow PCI addresses only with CUDA_DEVICE_ORDER=PCI_BUS_ID. Among GPUs of one model, they always
// do. A MIG instance is named by its whole UUID, and is visible if the list names only it (MIG user
// guide, "CUDA_VISIBLE_DEVICES"). ROCr works in the same way with indices and whole UUIDs, but a
// duplicate ends the list. HIP applies the same rules to the devices that ROCr shows, but skips
// duplicates, and an empty list does not count.
#include "tools/machine/visible_gpus.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <strings.h>

#include <algorithm>
#include <optional>
#include <set>

#include "shim/base/text.h"
#include "tools/cli/text_list.h"

namespace fracgpu::tools {
namespace {

using Places = std::vector<size_t>;

enum class Twice { hides_all, ends, passed_over };

bool starts_ignoring_case(std::string_view text, std::string_view start) {
  return text.size() >= start.size() && strncasecmp(text.data(), start.data(), start.size()) == 0;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 5 && text.find_first_not_of("0123456789") == text.npos &&
         (text.size() == 1 || text[0] != '0');
}

// The member of `shown` that the entry names. `whole`: a UUID must not be cut short.
std::optional<size_t> find(std::string_view entry, const Places& shown,
                           const std::vector<Gpu>& gpus, bool whole) {
  if (is_number(entry)) {
    const size_t number = std::stoul(std::string(entry));
    return number < shown.size() ? std::optional(shown[number]) : std::nullopt;
  }
  if (!starts_ignoring_case(entry, "GPU-") || entry.size() == 4) return std::nullopt;
  std::optional<size_t> found;
  for (const size_t place : shown) {
    const std::string& uuid = gpus[place].visible_name;
    if (!starts_ignoring_case(uuid, entry) || (whole && uuid.size() != entry.size())) continue;
    if (found) return std::nullopt;
    found = place;
  }
  return found;
}

bool names_instance(std::string_view item) {
  return starts_ignoring_case(item, "MIG-");
}

// HIP reads the list only up to an entry with a blank.
std::string_view as_hip_reads(std::string_view list) {
  const size_t blank = list.find_first_of(" \t");
  if (blank == list.npos) return list;
  const size_t comma = list.rfind(',', blank);
  return list.substr(0, comma == list.npos ? 0 : comma);
}

Places listed(std::string_view list, const Places& shown, const std::vector<Gpu>& gpus, bool whole,
              Twice twice) {
  Places places;
  for (const std::string_view item : split(list, ',')) {
    const std::optional<size_t> place = find(item, shown, gpus, whole);
    if (!place) break;
    if (std::find(places.begin(), places.end(), *place) == places.end()) {
      places.push_back(*place);
    } else if (twice == Twice::hides_all) {
      return {};
    } else if (twice == Twice::ends) {
      break;
    }
  }
  return places;
}

class Hiding {
 public:
  explicit Hiding(const std::vector<Gpu>& gpus) : gpus_(gpus), hidden_(gpus.size()) {}

  std::vector<std::string> take() {
    const char* const cuda = getenv("CUDA_VISIBLE_DEVICES");
    const char* const rocr = getenv("ROCR_VISIBLE_DEVICES");
    const char* const hip = getenv("HIP_VISIBLE_DEVICES");
    Places nvidia = all_of(Gpu::Vendor::nvidia);
    if (cuda != nullptr)
      narrow(Gpu::Vendor::nvidia, nvidia, "CUDA_VISIBLE_DEVICES", cuda, seen_by_cuda(cuda, nvidia));
    Places amd = all_of(Gpu::Vendor::amd);
    if (rocr != nullptr) {
      narrow(Gpu::Vendor::amd, amd, "ROCR_VISIBLE_DEVICES", rocr,
             listed(rocr, amd, gpus_, true, Twice::ends));
    }
    const bool has_own = hip != nullptr && *hip != '\0';
    if (const char* const list = has_own ? hip : cuda; list != nullptr && *list != '\0') {
      narrow(Gpu::Vendor::amd, amd, has_own ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES", list,
             listed(as_hip_reads(list), amd, gpus_, true, Twice::passed_over));
    }
    return std::move(hidden_);
  }

 private:
  // In the order of the runtime's numbers.
  Places all_of(Gpu::Vendor vendor) const {
    Places places;
    for (size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i].vendor == vendor && gpus_[i].runtime_number >= 0) places.push_back(i);
    }
    std::sort(places.begin(), places.end(), [this](size_t a, size_t b) {
      return gpus_[a].runtime_number < gpus_[b].runtime_number;
    });
    return places;
  }

  Places seen_by_cuda(const char* list, const Places& all) {
    const std::vector<std::string_view> items = split(list, ',');
    if (std::any_of(items.begin(), items.end(), names_instance)) return instances_in(items);
    const char* const order = getenv("CUDA_DEVICE_ORDER");
    std::set<std::string> models;
    for (const size_t place : all) models.insert(gpus_[place].model);
    const bool by_index = std::any_of(items.begin(), items.end(),
                                      [](std::string_view item) { return is_number(item); });
    if (by_index && models.size() > 1 &&
        (order == nullptr || std::string_view(order) != "PCI_BUS_ID")) {
      why_ =
          "has numbers, which CUDA gives to different models as it likes; name the GPUs by UUID, "
          "or set CUDA_DEVICE_ORDER=PCI_BUS_ID";
      return {};
    }
    return listed(list, all, gpus_, false, Twice::hides_all);
  }

  // The instances among these, up to the first item that is not an instance.
  Places instances_in(const std::vector<std::string_view>& items) const {
    Places places;
    for (const std::string_view item : items) {
      const auto found = std::find_if(gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) {
        return gpu.instance && gpu.key.size() == item.size() && starts_ignoring_case(gpu.key, item);
      });
      if (found == gpus_.end()) break;
      places.push_back(static_cast<size_t>(found - gpus_.begin()));
    }
    return places;
  }

  void narrow(Gpu::Vendor vendor, Places& shown, const char* variable, const char* list,
              Places left) {
    for (size_t place = 0; place < gpus_.size(); ++place) {
      const bool stays = is_in(left, place);
      if (stays || gpus_[place].vendor != vendor || !hidden_[place].empty()) continue;
      hidden_[place] = fmt::format("{} {} {}", variable, fracgpu::quoted(list).view(), why_);
    }
    shown = std::move(left);
    why_ = kHides;
  }

  // A visible GPU makes its instances visible.
  bool is_in(const Places& left, size_t place) const {
    return std::any_of(left.begin(), left.end(), [&](size_t each) {
      return each == place ||
             (gpus_[place].instance && gpus_[place].instance->parent == gpus_[each].key);
    });
  }

  static constexpr const char* kHides = "hides it";
  const std::vector<Gpu>& gpus_;
  std::vector<std::string> hidden_;
  std::string why_ = kHides;
};

}  // namespace

std::vector<std::string> hidden_by_environment(const std::vector<Gpu>& gpus) {
  return Hiding(gpus).take();
}

bool environment_names_instances() {
  const char* const list = getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) return false;
  const std::vector<std::string_view> items = split(list, ',');
  return std::any_of(items.begin(), items.end(), names_instance);
}

}  // namespace fracgpu::tools
