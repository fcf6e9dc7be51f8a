// Queries NVML; see mig_driver.h.
#include "tools/machine/mig_driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tools/machine/nvml_library.h"

namespace fracgpu::tools {
namespace {

using namespace nvml;
using claim_table_layout::MigPhase;
using State = MigResult::State;

// Kinds of profiles, which NVML counts from 0: more than any version has.
constexpr unsigned kProfileKinds = 32;
constexpr unsigned kShared = 0;  // NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
constexpr unsigned kMostPlaces = 32, kMostInstances = 16;

template <typename Function>
Function* nvml_function(const char* name) {
  return NvmlLibrary::get().find<Function>(name);
}

// The result of the call; kNotSupported if NVML lacks the function.
template <typename... Parameters, typename... Arguments>
nvmlReturn_t call(nvmlReturn_t (*function)(Parameters...), Arguments... arguments) {
  return function == nullptr ? kNotSupported : function(arguments...);
}

std::string words_of(nvmlReturn_t code) {
  const auto text_of = nvml_function<const char*(nvmlReturn_t)>("nvmlErrorString");
  return text_of != nullptr ? text_of(code) : fmt::format("error {}", code);
}

MigResult result_of(nvmlReturn_t code, const char* what, const std::string& gpu) {
  if (code == kSuccess) return {};
  const auto line = [&](const std::string& why) {
    return fmt::format("cannot {} a MIG instance of {}: {}", what, gpu, why);
  };
  switch (code) {
    case kInsufficientResources:
      return {State::no_room, line("its place was taken meanwhile")};
    case kInUse:
      return {State::in_use, line("a process has it still")};
    case kNoPermission:
      return {State::refused,
              line("the driver does not let this user; it takes root, and in a container "
                   "NVIDIA_MIG_CONFIG_DEVICES=all")};
    case kResetRequired:
      return {State::refused, line("the driver says that the GPU must be reset first")};
    case kNotSupported:
      return {State::refused, line("the driver says that it is not supported, or not in MIG mode "
                                   "any more")};
    default:
      return {State::refused, line(words_of(code))};
  }
}

// "2g.20gb", as nvidia-smi forms names: the memory in GB, rounded up.
std::string name_of(const nvmlGpuInstanceProfileInfo_t& info) {
  return fmt::format("{}g.{}gb", info.sliceCount, (info.memorySizeMB + 1023) / 1024);
}

std::optional<MigProfile> profile_of(nvmlDevice_t device, unsigned kind) {
  const auto named =
      nvml_function<nvmlReturn_t(nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_v2_t*)>(
          "nvmlDeviceGetGpuInstanceProfileInfoV");
  const auto plain =
      nvml_function<nvmlReturn_t(nvmlDevice_t, unsigned, nvmlGpuInstanceProfileInfo_t*)>(
          "nvmlDeviceGetGpuInstanceProfileInfo");
  MigProfile profile;
  nvmlGpuInstanceProfileInfo_v2_t full = {};
  full.version = kProfileV2;
  nvmlGpuInstanceProfileInfo_t info = {};
  if (call(named, device, kind, &full) == kSuccess) {
    profile = {.name = full.name,
               .id = full.id,
               .compute = full.sliceCount,
               .memory = full.memorySizeMB << 20};
    // This name also includes media extensions, which distinguish it from another profile of its
    // size.
    if (profile.name.starts_with("MIG ")) profile.name.erase(0, 4);
  } else if (call(plain, device, kind, &info) == kSuccess) {
    profile = {.name = name_of(info),
               .id = info.id,
               .compute = info.sliceCount,
               .memory = info.memorySizeMB << 20};
  } else {
    return std::nullopt;
  }
  const auto places_of =
      nvml_function<nvmlReturn_t(nvmlDevice_t, unsigned, nvmlGpuInstancePlacement_t*, unsigned*)>(
          "nvmlDeviceGetGpuInstancePossiblePlacements_v2");
  nvmlGpuInstancePlacement_t places[kMostPlaces];
  unsigned count = kMostPlaces;
  if (call(places_of, device, profile.id, places, &count) != kSuccess || count == 0) {
    return std::nullopt;
  }
  profile.slices = places[0].size;
  profile.most = std::max(full.instanceCount, info.instanceCount);
  for (unsigned i = 0; i < std::min(count, kMostPlaces); ++i) {
    profile.starts.push_back(static_cast<uint8_t>(places[i].start));
  }
  std::sort(profile.starts.begin(), profile.starts.end());
  return profile;
}

// Queried once: a waiting launch checks the GPU repeatedly, and the profiles do not change.
const std::vector<MigProfile>& profiles_of(nvmlDevice_t device, const std::string& gpu) {
  static std::map<std::string, std::vector<MigProfile>> known;
  std::vector<MigProfile>& profiles = known[gpu];
  if (!profiles.empty()) return profiles;
  for (unsigned kind = 0; kind < kProfileKinds; ++kind) {
    if (auto profile = profile_of(device, kind)) profiles.push_back(std::move(*profile));
  }
  return profiles;
}

struct Instance {
  nvmlGpuInstance_t handle;
  nvmlGpuInstanceInfo_t info;
};

std::vector<Instance> instances_of(nvmlDevice_t device, unsigned profile) {
  const auto list =
      nvml_function<nvmlReturn_t(nvmlDevice_t, unsigned, nvmlGpuInstance_t*, unsigned*)>(
          "nvmlDeviceGetGpuInstances");
  const auto info_of = nvml_function<nvmlReturn_t(nvmlGpuInstance_t, nvmlGpuInstanceInfo_t*)>(
      "nvmlGpuInstanceGetInfo");
  nvmlGpuInstance_t handles[kMostInstances];
  unsigned count = kMostInstances;
  std::vector<Instance> found;
  if (call(list, device, profile, handles, &count) != kSuccess) return found;
  for (unsigned i = 0; i < std::min(count, kMostInstances); ++i) {
    Instance each{handles[i], {}};
    if (call(info_of, each.handle, &each.info) == kSuccess) found.push_back(each);
  }
  return found;
}

nvmlDevice_t device_of(const std::string& gpu) {
  const auto handle_of =
      nvml_function<nvmlReturn_t(const char*, nvmlDevice_t*)>("nvmlDeviceGetHandleByUUID");
  nvmlDevice_t device = nullptr;
  return call(handle_of, gpu.c_str(), &device) == kSuccess ? device : nullptr;
}

// The instance of the grant's profile at the grant's place.
std::optional<Instance> instance_at(nvmlDevice_t device, const MigGrant& grant) {
  for (const Instance& each : instances_of(device, grant.profile)) {
    const bool same = each.info.placement.start == grant.start &&
                      each.info.placement.size == grant.slices &&
                      (grant.phase != MigPhase::made || each.info.id == grant.instance);
    if (same) return each;
  }
  return std::nullopt;
}

// The compute instances of one profile.
std::vector<nvmlComputeInstance_t> compute_instances(nvmlGpuInstance_t instance, unsigned profile) {
  const auto list =
      nvml_function<nvmlReturn_t(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t*, unsigned*)>(
          "nvmlGpuInstanceGetComputeInstances");
  nvmlComputeInstance_t handles[kMostInstances];
  unsigned count = kMostInstances;
  if (call(list, instance, profile, handles, &count) != kSuccess) return {};
  return {handles, handles + std::min(count, kMostInstances)};
}

std::vector<nvmlComputeInstanceProfileInfo_t> compute_profiles(nvmlGpuInstance_t instance) {
  const auto info_of = nvml_function<nvmlReturn_t(nvmlGpuInstance_t, unsigned, unsigned,
                                                  nvmlComputeInstanceProfileInfo_t*)>(
      "nvmlGpuInstanceGetComputeInstanceProfileInfo");
  std::vector<nvmlComputeInstanceProfileInfo_t> found;
  for (unsigned kind = 0; kind < kProfileKinds; ++kind) {
    nvmlComputeInstanceProfileInfo_t info = {};
    if (call(info_of, instance, kind, kShared, &info) == kSuccess) found.push_back(info);
  }
  return found;
}

// Makes a compute instance over the whole instance, if it has none yet.
nvmlReturn_t add_compute_instance(nvmlGpuInstance_t instance) {
  const std::vector<nvmlComputeInstanceProfileInfo_t> profiles = compute_profiles(instance);
  for (const nvmlComputeInstanceProfileInfo_t& each : profiles) {
    if (!compute_instances(instance, each.id).empty()) return kSuccess;
  }
  const auto largest =
      std::max_element(profiles.begin(), profiles.end(),
                       [](const auto& a, const auto& b) { return a.sliceCount < b.sliceCount; });
  if (largest == profiles.end()) return kNotSupported;
  const auto make =
      nvml_function<nvmlReturn_t(nvmlGpuInstance_t, unsigned, nvmlComputeInstance_t*)>(
          "nvmlGpuInstanceCreateComputeInstance");
  nvmlComputeInstance_t made = nullptr;
  return call(make, instance, largest->id, &made);
}

}  // namespace

std::vector<MigGpu> mig_gpus() {
  const auto count_of = nvml_function<nvmlReturn_t(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto handle_of =
      nvml_function<nvmlReturn_t(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2");
  const auto mode_of =
      nvml_function<nvmlReturn_t(nvmlDevice_t, unsigned*, unsigned*)>("nvmlDeviceGetMigMode");
  const auto uuid_of =
      nvml_function<nvmlReturn_t(nvmlDevice_t, char*, unsigned)>("nvmlDeviceGetUUID");
  std::vector<MigGpu> gpus;
  unsigned count = 0;
  if (!NvmlLibrary::get().ready() || call(count_of, &count) != kSuccess) return gpus;
  for (unsigned index = 0; index < count; ++index) {
    nvmlDevice_t device = nullptr;
    unsigned now = 0, pending = 0;
    char uuid[kUuidBytes] = "";
    if (call(handle_of, index, &device) != kSuccess ||
        call(mode_of, device, &now, &pending) != kSuccess || now == 0 ||
        call(uuid_of, device, uuid, kUuidBytes) != kSuccess) {
      continue;
    }
    MigGpu gpu{.key = uuid, .profiles = profiles_of(device, uuid)};
    for (MigProfile& profile : gpu.profiles) {
      gpu.slices = std::max(gpu.slices, profile.slices);
      const std::vector<Instance> instances = instances_of(device, profile.id);
      for (const Instance& each : instances) {
        gpu.occupied |= ((SliceMask{1} << each.info.placement.size) - 1)
                        << each.info.placement.start;
      }
      if (instances.size() >= profile.most) profile.starts.clear();
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

MigResult make_instance(const std::string& gpu, const MigGrant& grant) {
  const nvmlDevice_t device = device_of(gpu);
  if (device == nullptr) return {State::refused, fmt::format("{} is gone", gpu)};
  auto instance = instance_at(device, grant);
  if (!instance) {
    const auto make =
        nvml_function<nvmlReturn_t(nvmlDevice_t, unsigned, const nvmlGpuInstancePlacement_t*,
                                   nvmlGpuInstance_t*)>("nvmlDeviceCreateGpuInstanceWithPlacement");
    const nvmlGpuInstancePlacement_t place = {grant.start, grant.slices};
    nvmlGpuInstance_t made = nullptr;
    if (const nvmlReturn_t code = call(make, device, grant.profile, &place, &made)) {
      return result_of(code, "make", gpu);
    }
    instance = instance_at(device, grant);
    if (!instance) return {State::refused, fmt::format("{} does not show what was made", gpu)};
  }
  MigResult result = result_of(add_compute_instance(instance->handle), "make", gpu);
  result.instance = instance->info.id;
  return result;
}

MigResult destroy_instance(const std::string& gpu, const MigGrant& grant) {
  const nvmlDevice_t device = device_of(gpu);
  const auto instance = device == nullptr ? std::nullopt : instance_at(device, grant);
  if (!instance) return {};
  const auto destroy_compute =
      nvml_function<nvmlReturn_t(nvmlComputeInstance_t)>("nvmlComputeInstanceDestroy");
  const auto destroy = nvml_function<nvmlReturn_t(nvmlGpuInstance_t)>("nvmlGpuInstanceDestroy");
  for (const nvmlComputeInstanceProfileInfo_t& profile : compute_profiles(instance->handle)) {
    for (const nvmlComputeInstance_t each : compute_instances(instance->handle, profile.id)) {
      const nvmlReturn_t code = call(destroy_compute, each);
      if (code != kSuccess && code != kNotFound) return result_of(code, "destroy", gpu);
    }
  }
  const nvmlReturn_t code = call(destroy, instance->handle);
  return code == kNotFound ? MigResult{} : result_of(code, "destroy", gpu);
}

}  // namespace fracgpu::tools
