// Reads the variable as the runtime does; see visible_devices.h.
//
// libhsakmt leaves out devices without a render node. ROCR_VISIBLE_DEVICES is a list of numbers in
// KFD's order and of UUIDs ("GPU-" and 16 digits). The list ends at the first entry that names no
// device, or one that an earlier entry named. If the variable is set and empty, it hides all
// devices (public source of ROCr, 5.2 to 7).
#include "hooks/hsa/visible_devices.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "shim/base/environment.h"

namespace fracgpu::hsa {

VisibleDevices::VisibleDevices() {
  int all[kfd::GpuList::kMost] = {};
  int count = 0;
  for (int i = 0; i < gpus_.count(); ++i) {
    if (gpus_[i].has_render_node()) all[count++] = i;
  }
  std::sort(all, all + count, [&](int a, int b) { return gpus_[a].node < gpus_[b].node; });
  const char* const list = vendor_environment("ROCR_VISIBLE_DEVICES");
  if (list != nullptr) {
    choose(list, all, count);
  } else {
    std::copy_n(all, count, chosen_);
    count_ = count;
  }
}

void VisibleDevices::choose(const char* list, const int* all, int count) {
  const auto is_chosen = [&](int index) {
    return std::find(chosen_, chosen_ + count_, index) != chosen_ + count_;
  };
  for (const char* item = list; *item != '\0';) {
    while (*item == ' ') ++item;
    char* end = nullptr;
    int named = -1;
    if (strncmp(item, "GPU-", 4) == 0) {
      const uint64_t uuid = strtoull(item + 4, &end, 16);
      for (int i = count - 1; i >= 0; --i) {
        // Partitions may share a UUID. It then names the first one that is not chosen yet.
        if (gpus_[all[i]].unique_id == uuid && uuid != 0 && !is_chosen(all[i])) named = all[i];
      }
    } else {
      const unsigned long number = strtoul(item, &end, 10);
      if (end != item && number < static_cast<unsigned long>(count)) named = all[number];
    }
    while (*end == ' ') ++end;
    if (named < 0 || is_chosen(named) || (*end != ',' && *end != '\0')) return;
    chosen_[count_++] = named;
    item = *end == ',' ? end + 1 : end;
  }
}

}  // namespace fracgpu::hsa
