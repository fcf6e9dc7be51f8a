// Predicts the devices that the runtime will show this process, because the runtime takes memory on
// each of them while it starts.
#pragma once

#include "hooks/usage/kfd_topology.h"

namespace fracgpu::hsa {

// Reads KFD's topology and ROCR_VISIBLE_DEVICES as the runtime reads them. If the runtime reads
// them differently, its memory is charged after its start and not before.
class VisibleDevices {
 public:
  VisibleDevices();

  int count() const { return count_; }
  // The device's place among all devices that this process may read about.
  int index(int number) const { return chosen_[number]; }
  const kfd::Gpu& operator[](int number) const { return gpus_[chosen_[number]]; }

 private:
  void choose(const char* list, const int* all, int count);

  const kfd::GpuList gpus_;
  int count_ = 0;
  int chosen_[kfd::GpuList::kMost];
};

}  // namespace fracgpu::hsa
