// GPU instances in the simulated NVML: which can be had, where, how many more, and making them.
// What nvml.h says to want a privileged user refuses others.
#include <cstdio>
#include <deque>
#include <mutex>

#include "sim/nvml/state.h"

struct SimGpuInstance {
  sim::GpuInstance instance;
};

namespace sim {
namespace {
std::mutex mig_mutex;
std::deque<SimGpuInstance> gpu_instances;
}  // namespace

nvmlGpuInstance_t nvml_gpu_instance(int row) {
  const uint64_t serial = nvml_node().device(row).mig_serial.load();
  const std::lock_guard<std::mutex> guard(mig_mutex);
  for (SimGpuInstance& known : gpu_instances) {
    if (known.instance.serial == serial) return &known;
  }
  return &gpu_instances.emplace_back(GpuInstance{row, serial});
}

bool nvml_gpu_instance(nvmlGpuInstance_t handle, GpuInstance* out) {
  const std::lock_guard<std::mutex> guard(mig_mutex);
  for (SimGpuInstance& known : gpu_instances) {
    if (&known != handle) continue;
    *out = known.instance;
    return nvml_node().device(out->row).mig_serial.load() == out->serial;
  }
  return false;
}

}  // namespace sim

namespace {

// A GPU in MIG mode and its card.
#define NVML_MIG_GPU(handle, dev, card)                                            \
  NVML_GPU(handle, dev);                                                           \
  if (!::sim::mig_is_on(::sim::nvml_node(), dev)) return NVML_ERROR_NOT_SUPPORTED; \
  const ::sim::MigCard& card = *::sim::card_of(::sim::nvml_node(), dev)

// The same, and one of its profiles.
#define NVML_MIG_PROFILE(handle, dev, id, profile)         \
  NVML_MIG_GPU(handle, dev, card);                         \
  const ::sim::MigProfile* const profile = card.by_id(id); \
  if (profile == nullptr) return NVML_ERROR_INVALID_ARGUMENT

// What every version of the information begins with, in this order.
template <typename Info>
void fill(Info* info, const sim::MigProfile& profile) {
  info->id = profile.id;
  info->slices = profile.slices;
  info->instances = profile.instances;
  info->multiprocessors = profile.multiprocessors;
  info->copy_engines = profile.copy_engines;
  info->decoders = profile.decoders;
  info->encoders = 0;
  info->jpegs = profile.jpegs;
  info->ofas = profile.ofas;
  info->memory_mib = profile.memory_mib;
}

nvmlReturn_t find_profile(nvmlDevice_t handle, unsigned kind, const sim::MigProfile** profile) {
  NVML_MIG_GPU(handle, dev, card);
  if (kind >= sim::kMigKinds) return NVML_ERROR_INVALID_ARGUMENT;
  *profile = card.by_kind(kind);
  return *profile != nullptr ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t placements(nvmlDevice_t handle, unsigned id, nvmlGpuInstancePlacement_t* out,
                        unsigned* count) {
  NVML_MIG_PROFILE(handle, dev, id, profile);
  NVML_ROOT();
  return sim::nvml_places(profile->places, profile->size, out, count);
}

nvmlReturn_t create(nvmlDevice_t handle, unsigned id, const nvmlGpuInstancePlacement_t* where,
                    nvmlGpuInstance_t* out) {
  NVML_MIG_PROFILE(handle, dev, id, profile);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (where != nullptr && (where->size != profile->size || where->start >= card.memory ||
                           (profile->places >> where->start & 1) == 0))
    return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  int row = -1;
  const int start = where != nullptr ? static_cast<int>(where->start) : -1;
  const sim::MigResult result =
      sim::make_gpu_instance(sim::nvml_node(), dev, *profile, start, &row);
  if (result == sim::MigResult::kDone) *out = sim::nvml_gpu_instance(row);
  return sim::nvml_result(result);
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned kind,
                                                         nvmlGpuInstanceProfileInfo_t* info) {
  NVML_CALL(nvmlDeviceGetGpuInstanceProfileInfo);
  const sim::MigProfile* profile = nullptr;
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = find_profile(handle, kind, &profile)) return result;
  info->p2p = 0;
  fill(info, *profile);
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t handle, unsigned kind,
                                                          nvmlGpuInstanceProfileInfo_v2_t* info) {
  NVML_CALL(nvmlDeviceGetGpuInstanceProfileInfoV);
  const sim::MigProfile* profile = nullptr;
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = find_profile(handle, kind, &profile)) return result;
  if (info->version == struct_version<nvmlGpuInstanceProfileInfo_v2_t>(2)) {
    info->p2p = 0;
    fill(info, *profile);
    std::snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return NVML_SUCCESS;
  }
  auto* newer = reinterpret_cast<nvmlGpuInstanceProfileInfo_v3_t*>(info);
  if (newer->version != struct_version<nvmlGpuInstanceProfileInfo_v3_t>(3))
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  fill(newer, *profile);
  std::snprintf(newer->name, sizeof newer->name, "MIG %s", profile->name);
  newer->capabilities = 0;
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t handle, unsigned id,
                                                                   nvmlGpuInstancePlacement_t* out,
                                                                   unsigned* count) {
  NVML_CALL(nvmlDeviceGetGpuInstancePossiblePlacements_v2);
  return placements(handle, id, out, count);
}
SIM_API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t handle, unsigned id,
                                                                nvmlGpuInstancePlacement_t* out,
                                                                unsigned* count) {
  NVML_CALL(nvmlDeviceGetGpuInstancePossiblePlacements);
  return placements(handle, id, out, count);
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t handle, unsigned id,
                                                               unsigned* count) {
  NVML_CALL(nvmlDeviceGetGpuInstanceRemainingCapacity);
  NVML_MIG_PROFILE(handle, dev, id, profile);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  *count = sim::room_for(sim::nvml_node(), dev, *profile);
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t handle, unsigned id,
                                                 nvmlGpuInstance_t* out) {
  NVML_CALL(nvmlDeviceCreateGpuInstance);
  return create(handle, id, nullptr, out);
}
SIM_API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t handle, unsigned id, const nvmlGpuInstancePlacement_t* where,
    nvmlGpuInstance_t* out) {
  NVML_CALL(nvmlDeviceCreateGpuInstanceWithPlacement);
  if (where == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return create(handle, id, where, out);
}

SIM_API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
  NVML_CALL(nvmlGpuInstanceDestroy);
  sim::GpuInstance instance;
  if (!sim::nvml_gpu_instance(handle, &instance)) return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  return sim::nvml_result(
      sim::destroy_gpu_instance(sim::nvml_node(), instance.row, instance.serial));
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t handle, unsigned id,
                                               nvmlGpuInstance_t* out, unsigned* count) {
  NVML_CALL(nvmlDeviceGetGpuInstances);
  NVML_MIG_PROFILE(handle, dev, id, profile);
  if (out == nullptr || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  *count = 0;
  for (const int row : sim::nvml_node().mig_instances(dev)) {
    if (&sim::profile_of(sim::nvml_node(), row) == profile)
      out[(*count)++] = sim::nvml_gpu_instance(row);
  }
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, unsigned id,
                                                  nvmlGpuInstance_t* out) {
  NVML_CALL(nvmlDeviceGetGpuInstanceById);
  NVML_GPU(handle, dev);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (!sim::mig_is_on(sim::nvml_node(), dev)) return NVML_ERROR_NOT_SUPPORTED;
  NVML_ROOT();
  for (const int row : sim::nvml_node().mig_instances(dev)) {
    if (sim::nvml_node().device(row).gpu_instance != id) continue;
    *out = sim::nvml_gpu_instance(row);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

SIM_API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t* info) {
  NVML_CALL(nvmlGpuInstanceGetInfo);
  sim::GpuInstance instance;
  if (info == nullptr || !sim::nvml_gpu_instance(handle, &instance))
    return NVML_ERROR_INVALID_ARGUMENT;
  const sim::DeviceRow& row = sim::nvml_node().device(instance.row);
  *info = {sim::nvml_handle(sim::nvml_node().mig_parent(instance.row)),
           row.gpu_instance,
           sim::profile_of(sim::nvml_node(), instance.row).id,
           {row.mig_start, row.mig_size}};
  return NVML_SUCCESS;
}
