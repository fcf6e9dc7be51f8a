// Compute instances in the simulated NVML: parts of a GPU instance that share its memory and
// engines. Each is a MIG device.
#include <cstdio>
#include <deque>
#include <mutex>

#include "sim/nvml/state.h"

struct SimComputeInstance {
  sim::MigDevice device;
};

namespace {

std::mutex compute_mutex;
std::deque<SimComputeInstance> compute_handles;

nvmlComputeInstance_t handle_of(const sim::MigDevice& device) {
  const std::lock_guard<std::mutex> guard(compute_mutex);
  for (SimComputeInstance& known : compute_handles) {
    if (known.device.serial == device.serial) return &known;
  }
  return &compute_handles.emplace_back(device);
}

bool compute_of(nvmlComputeInstance_t handle, sim::MigDevice* out) {
  const std::lock_guard<std::mutex> guard(compute_mutex);
  for (const SimComputeInstance& known : compute_handles) {
    if (&known != handle) continue;
    *out = known.device;
    return sim::is_there(sim::nvml_node(), *out);
  }
  return false;
}

// A GPU instance that is there, and how many slices a profile of it has.
nvmlReturn_t find(nvmlGpuInstance_t handle, unsigned id, sim::GpuInstance* instance,
                  unsigned* slices) {
  if (!sim::nvml_gpu_instance(handle, instance) || id >= sim::kComputeKinds)
    return NVML_ERROR_INVALID_ARGUMENT;
  *slices = sim::compute_slices_of(id);
  const unsigned all = sim::profile_of(sim::nvml_node(), instance->row).slices;
  return sim::compute_places(all, *slices) != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t describe(nvmlGpuInstance_t handle, unsigned id, unsigned engines,
                      nvmlComputeInstanceProfileInfo_t* info, char* name, size_t size) {
  sim::GpuInstance instance;
  unsigned slices = 0;
  if (engines != 0) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = find(handle, id, &instance, &slices)) return result;
  const sim::MigProfile& profile = sim::profile_of(sim::nvml_node(), instance.row);
  const int gpu = sim::nvml_node().mig_parent(instance.row);
  const unsigned each = sim::card_of(sim::nvml_node(), gpu)->multiprocessors_per_slice();
  const bool whole = slices == profile.slices;
  *info = {id,
           slices,
           static_cast<unsigned>(__builtin_popcount(sim::compute_places(profile.slices, slices))),
           whole ? profile.multiprocessors : slices * each,
           profile.copy_engines,
           profile.decoders,
           0,
           profile.jpegs,
           profile.ofas};
  if (whole) std::snprintf(name, size, "MIG %s", profile.name);
  if (!whole) std::snprintf(name, size, "MIG %uc.%s", slices, profile.name);
  return NVML_SUCCESS;
}

nvmlReturn_t create(nvmlGpuInstance_t handle, unsigned id,
                    const nvmlComputeInstancePlacement_t* where, nvmlComputeInstance_t* out) {
  sim::GpuInstance instance;
  unsigned slices = 0;
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = find(handle, id, &instance, &slices)) return result;
  const unsigned all = sim::profile_of(sim::nvml_node(), instance.row).slices;
  if (where != nullptr && (where->size != slices || where->start >= all ||
                           (sim::compute_places(all, slices) >> where->start & 1) == 0))
    return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  sim::MigDevice made;
  const sim::MigResult result =
      sim::make_compute_instance(sim::nvml_node(), instance.row, instance.serial, slices,
                                 where != nullptr ? static_cast<int>(where->start) : -1, &made);
  if (result == sim::MigResult::kDone) *out = handle_of(made);
  return sim::nvml_result(result);
}

nvmlReturn_t inform(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t* info) {
  sim::MigDevice device;
  if (info == nullptr || !compute_of(handle, &device)) return NVML_ERROR_INVALID_ARGUMENT;
  const sim::ComputeInstance& made = sim::compute_instance(sim::nvml_node(), device);
  *info = {sim::nvml_handle(sim::nvml_node().mig_parent(device.dev)),
           sim::nvml_gpu_instance(device.dev),
           made.id,
           sim::compute_profile_id(made.slices),
           {made.start, made.slices}};
  return NVML_SUCCESS;
}

}  // namespace

SIM_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t handle, unsigned id, unsigned engines,
    nvmlComputeInstanceProfileInfo_t* info) {
  NVML_CALL(nvmlGpuInstanceGetComputeInstanceProfileInfo);
  char name[96];
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return describe(handle, id, engines, info, name, sizeof name);
}

SIM_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t handle, unsigned id, unsigned engines,
    nvmlComputeInstanceProfileInfo_v2_t* info) {
  NVML_CALL(nvmlGpuInstanceGetComputeInstanceProfileInfoV);
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const bool newer = info->version == struct_version<nvmlComputeInstanceProfileInfo_v3_t>(3);
  if (!newer && info->version != struct_version<nvmlComputeInstanceProfileInfo_v2_t>(2))
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
  const nvmlReturn_t result =
      describe(handle, id, engines, &info->info, info->name, sizeof info->name);
  if (newer && result == NVML_SUCCESS)
    reinterpret_cast<nvmlComputeInstanceProfileInfo_v3_t*>(info)->capabilities = 0;
  return result;
}

SIM_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t handle,
                                                                        unsigned id,
                                                                        unsigned* count) {
  NVML_CALL(nvmlGpuInstanceGetComputeInstanceRemainingCapacity);
  sim::GpuInstance instance;
  unsigned slices = 0;
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = find(handle, id, &instance, &slices)) return result;
  NVML_ROOT();
  *count = sim::room_for_compute(sim::nvml_node(), instance.row, slices);
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t handle, unsigned id, nvmlComputeInstancePlacement_t* out, unsigned* count) {
  NVML_CALL(nvmlGpuInstanceGetComputeInstancePossiblePlacements);
  sim::GpuInstance instance;
  unsigned slices = 0;
  if (const nvmlReturn_t result = find(handle, id, &instance, &slices)) return result;
  NVML_ROOT();
  const unsigned all = sim::profile_of(sim::nvml_node(), instance.row).slices;
  return sim::nvml_places(sim::compute_places(all, slices), slices, out, count);
}

SIM_API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned id,
                                                          nvmlComputeInstance_t* out) {
  NVML_CALL(nvmlGpuInstanceCreateComputeInstance);
  return create(handle, id, nullptr, out);
}
SIM_API nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t handle, unsigned id, const nvmlComputeInstancePlacement_t* where,
    nvmlComputeInstance_t* out) {
  NVML_CALL(nvmlGpuInstanceCreateComputeInstanceWithPlacement);
  if (where == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  return create(handle, id, where, out);
}

SIM_API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
  NVML_CALL(nvmlComputeInstanceDestroy);
  sim::MigDevice device;
  if (!compute_of(handle, &device)) return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  return sim::nvml_result(sim::destroy_compute_instance(sim::nvml_node(), device));
}

SIM_API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned id,
                                                        nvmlComputeInstance_t* out,
                                                        unsigned* count) {
  NVML_CALL(nvmlGpuInstanceGetComputeInstances);
  sim::GpuInstance instance;
  unsigned slices = 0;
  if (out == nullptr || count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  if (const nvmlReturn_t result = find(handle, id, &instance, &slices)) return result;
  NVML_ROOT();
  *count = 0;
  for (const sim::MigDevice& device : sim::compute_instances(sim::nvml_node(), instance.row)) {
    if (sim::compute_instance(sim::nvml_node(), device).slices == slices)
      out[(*count)++] = handle_of(device);
  }
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned id,
                                                           nvmlComputeInstance_t* out) {
  NVML_CALL(nvmlGpuInstanceGetComputeInstanceById);
  sim::GpuInstance instance;
  if (out == nullptr || !sim::nvml_gpu_instance(handle, &instance))
    return NVML_ERROR_INVALID_ARGUMENT;
  NVML_ROOT();
  for (const sim::MigDevice& device : sim::compute_instances(sim::nvml_node(), instance.row)) {
    if (sim::compute_instance(sim::nvml_node(), device).id != id) continue;
    *out = handle_of(device);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

SIM_API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle,
                                                   nvmlComputeInstanceInfo_t* info) {
  NVML_CALL(nvmlComputeInstanceGetInfo_v2);
  return inform(handle, info);
}
SIM_API nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t handle,
                                                nvmlComputeInstanceInfo_t* info) {
  NVML_CALL(nvmlComputeInstanceGetInfo);
  return inform(handle, info);
}
