// Device handles and identity in the simulated NVML.
// NVML does not follow CUDA_VISIBLE_DEVICES: it shows every NVIDIA device of the node, in the
// node's order. Old names call their newer versions through the PLT, as the vendor's library does,
// so a preloaded library sees those inner calls.
#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/nvml/state.h"

SIM_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned* count) {
  NVML_CALL(nvmlDeviceGetCount_v2);
  if (count == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(sim::nvml_devices().size());
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlDeviceGetCount(unsigned* count) {
  return nvmlDeviceGetCount_v2(count);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* out) {
  NVML_CALL(nvmlDeviceGetHandleByIndex_v2);
  const std::vector<int> devices = sim::nvml_devices();
  if (out == nullptr || index >= devices.size()) return NVML_ERROR_INVALID_ARGUMENT;
  *out = sim::nvml_handle(devices[index]);
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t* out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* out) {
  NVML_CALL(nvmlDeviceGetHandleByUUID);
  if (uuid == nullptr || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  sim::Node& node = sim::nvml_node();
  for (const int dev : sim::nvml_devices()) {
    if (strcasecmp(node.uuid(dev).c_str(), uuid) == 0) {
      *out = sim::nvml_handle(dev);
      return NVML_SUCCESS;
    }
    for (const sim::MigDevice& device : sim::mig_devices(node, dev)) {
      if (strcasecmp(sim::mig_uuid(node, device).c_str(), uuid) != 0) continue;
      *out = sim::nvml_handle(device);
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_NOT_FOUND;
}

SIM_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char* id, nvmlDevice_t* out) {
  NVML_CALL(nvmlDeviceGetHandleByPciBusId_v2);
  if (id == nullptr || out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (std::sscanf(id, "%x:%x", &bus, &device) != 2) return NVML_ERROR_INVALID_ARGUMENT;
  }
  for (const int dev : sim::nvml_devices()) {
    const sim::DeviceRow& row = sim::nvml_node().device(dev);
    if (row.pci_domain == domain && row.pci_bus == bus && row.pci_device == device) {
      *out = sim::nvml_handle(dev);
      return NVML_SUCCESS;
    }
  }
  return NVML_ERROR_NOT_FOUND;
}
SIM_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char* id, nvmlDevice_t* out) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, out);
}

SIM_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char* name, unsigned length) {
  NVML_CALL(nvmlDeviceGetName);
  NVML_DEVICE(handle, dev);
  const sim::MigDevice* const mig = sim::nvml_mig_device(handle);
  if (mig == nullptr) return sim::copy_text(name, length, sim::nvml_node().device(dev).name);
  return sim::copy_text(name, length, sim::mig_name(sim::nvml_node(), *mig).c_str());
}
SIM_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char* uuid, unsigned length) {
  NVML_CALL(nvmlDeviceGetUUID);
  NVML_DEVICE(handle, dev);
  const sim::MigDevice* const mig = sim::nvml_mig_device(handle);
  return sim::copy_text(uuid, length,
                        mig != nullptr ? sim::mig_uuid(sim::nvml_node(), *mig).c_str()
                                       : sim::nvml_node().uuid(dev).c_str());
}
SIM_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned* index) {
  NVML_CALL(nvmlDeviceGetIndex);  // of a MIG instance: among those of its GPU
  NVML_DEVICE(handle, dev);
  if (index == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *index = static_cast<unsigned>(sim::nvml_node().ordinal(dev));
  if (const sim::MigDevice* const mig = sim::nvml_mig_device(handle)) {
    const auto all = sim::mig_devices(sim::nvml_node(), sim::nvml_node().mig_parent(dev));
    const auto* const found =
        std::find_if(all.data(), all.data() + all.size(),
                     [mig](const sim::MigDevice& other) { return other.serial == mig->serial; });
    *index = static_cast<unsigned>(found - all.data());
  }
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned* minor) {
  NVML_CALL(nvmlDeviceGetMinorNumber);
  NVML_DEVICE(handle, dev);
  if (minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *minor = static_cast<unsigned>(sim::nvml_node().ordinal(dev));
  return NVML_SUCCESS;
}

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_v3_t* info) {
  NVML_CALL(nvmlDeviceGetPciInfo_v3);
  NVML_GPU(handle, dev);
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  const sim::DeviceRow& row = sim::nvml_node().device(dev);
  std::memset(info, 0, sizeof *info);
  std::snprintf(info->legacy_bus_id, sizeof info->legacy_bus_id, "%04X:%02X:%02X.0",
                row.pci_domain & 0xffff, row.pci_bus & 0xff, row.pci_device & 0xff);
  std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", row.pci_domain, row.pci_bus,
                row.pci_device);
  info->domain = row.pci_domain;
  info->bus = row.pci_bus;
  info->device = row.pci_device;
  info->pci_id = row.pci_id;
  info->subsystem = row.pci_subsystem;
  return NVML_SUCCESS;
}

namespace {

nvmlReturn_t old_pci_info(nvmlDevice_t handle, nvmlPciInfo_v2_t* info) {
  if (info == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlPciInfo_v3_t now;
  if (const nvmlReturn_t result = nvmlDeviceGetPciInfo_v3(handle, &now)) return result;
  *info = {};
  std::memcpy(info->bus_id, now.legacy_bus_id, sizeof info->bus_id);
  info->domain = now.domain;
  info->bus = now.bus;
  info->device = now.device;
  info->pci_id = now.pci_id;
  info->subsystem = now.subsystem;
  return NVML_SUCCESS;
}

}  // namespace

SIM_API nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t handle, nvmlPciInfo_v2_t* info) {
  return old_pci_info(handle, info);
}
SIM_API nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_v2_t* info) {
  return old_pci_info(handle, info);
}

SIM_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int* major,
                                                        int* minor) {
  NVML_CALL(nvmlDeviceGetCudaComputeCapability);
  NVML_DEVICE(handle, dev);
  if (major == nullptr || minor == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *major = static_cast<int>(sim::nvml_node().device(dev).major);
  *minor = static_cast<int>(sim::nvml_node().device(dev).minor);
  return NVML_SUCCESS;
}
