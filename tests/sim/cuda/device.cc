// Initialisation, versions and device queries of the simulated driver.
// Names, UUIDs, bus ids and sizes come from the node's profile; the other attributes are plausible
// for the generation. The driver version is 13.0 unless FRACGPU_SIM_DRIVER_VERSION (for example
// 12020) says otherwise.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/cuda/driver.h"
#include "sim/cuda/version.h"

using sim::Driver;

namespace sim {

int driver_version() {
  static const int version = [] {
    const char* text = std::getenv("FRACGPU_SIM_DRIVER_VERSION");
    return text != nullptr && *text != '\0' ? std::atoi(text) : 13000;
  }();
  return version;
}

namespace {

int attribute(const DeviceRow& row, int which) {
  switch (which) {
    case 1:
      return 1024;  // threads per block
    case 2:
    case 3:
      return 1024;  // block x, y
    case 4:
      return 64;  // block z
    case 5:
      return 2147483647;  // grid x
    case 6:
    case 7:
      return 65535;  // grid y, z
    case 8:
      return 48 << 10;  // shared memory per block
    case 9:
      return 64 << 10;  // constant memory
    case 10:
      return 32;  // warp
    case 11:
      return 2147483647;  // pitch
    case 12:
      return 65536;  // registers per block
    case 13:
      return 1980000;  // kHz
    case 14:
      return 512;  // texture alignment
    case 16:
      return static_cast<int>(row.multiprocessors);
    case 18:
      return 0;  // integrated
    case 19:
      return 1;  // maps host memory
    case 20:
      return 0;  // compute mode
    case 31:
      return 1;  // concurrent kernels
    case 32:
      return 1;  // ECC
    case 33:
      return static_cast<int>(row.pci_bus);
    case 34:
      return static_cast<int>(row.pci_device);
    case 35:
      return 0;  // TCC
    case 36:
      return 2619000;  // memory kHz
    case 37:
      return 5120;  // bus width
    case 38:
      return 50 << 20;  // L2
    case 39:
      return kResidentThreads;  // per multiprocessor
    case 40:
      return 3;  // copy engines
    case 41:
      return 1;  // unified addressing
    case 50:
      return static_cast<int>(row.pci_domain);
    case 75:
      return static_cast<int>(row.major);
    case 76:
      return static_cast<int>(row.minor);
    case 78:
      return 1;  // stream priorities
    case 81:
      return 233472;  // shared memory per multiprocessor
    case 82:
      return 65536;  // registers per multiprocessor
    case 83:
      return 1;  // managed memory
    case 84:
      return 0;  // multi-GPU board
    case 85:
      return static_cast<int>(row.pci_bus);
    case 90:
      return 1;  // compute preemption
    case 97:
      return 232448;  // shared memory per block, opt in
    case 102:
      return 1;  // virtual memory management
    case 103:
      return 1;  // handles as POSIX file descriptors
    case 112:
      return 1;  // sparse arrays
    case 115:
      return 1;  // memory pools
    case 119:
      return 1;  // pools shared by POSIX file descriptors
    case 121:
      return 1;  // deferred mapping of arrays
    case 132:
      return 1;  // multicast
    case 141:
    case 142:
    case 144:
    case 145:
      return 1;  // virtual memory management and pools on the host and its NUMA nodes
    default:
      return 0;
  }
}

// The first version of the call knows nothing of MIG and names the GPU.
CUresult copy_uuid(CUuuid* uuid, CUdevice dev, bool of_instance) {
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const MigDevice& mig = Driver::get().mig_device();
  const Node& node = Driver::get().node();
  const unsigned char* bytes = Driver::get().row(dev).uuid;
  if (mig.dev >= 0) {
    bytes =
        of_instance ? compute_instance(node, mig).uuid : node.device(node.mig_parent(mig.dev)).uuid;
  }
  std::memcpy(uuid->bytes, bytes, sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace sim

SIM_API CUresult cuInit(unsigned flags) {
  if (const int result = sim::ordered("cuInit")) return result;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Driver::get().init();
}

SIM_API CUresult cuDriverGetVersion(int* version) {
  if (const int result = sim::ordered("cuDriverGetVersion")) return result;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = sim::driver_version();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  SIM_CALL(cuDeviceGet);
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetCount(int* count) {
  SIM_CALL(cuDeviceGetCount);
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = Driver::get().device_count();
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetName(char* name, int length, CUdevice dev) {
  SIM_CALL(cuDeviceGetName);
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const sim::MigDevice& mig = Driver::get().mig_device();
  const std::string text = mig.dev >= 0 ? sim::mig_name(Driver::get().node(), mig)
                                        : std::string(Driver::get().row(dev).name);
  std::snprintf(name, static_cast<size_t>(length), "%s", text.c_str());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) {
  SIM_CALL(cuDeviceGetUuid);
  return sim::copy_uuid(uuid, dev, false);
}

SIM_API CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) {
  SIM_CALL(cuDeviceGetUuid_v2);
  return sim::copy_uuid(uuid, dev, true);
}

SIM_API CUresult cuDeviceGetAttribute(int* value, int which, CUdevice dev) {
  SIM_CALL(cuDeviceGetAttribute);
  if (value == nullptr || which <= 0 || which > 250) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *value = sim::attribute(Driver::get().row(dev), which);
  const sim::MigDevice& mig = Driver::get().mig_device();
  if (which == 16 && mig.dev >= 0)
    *value = static_cast<int>(sim::mig_multiprocessors(Driver::get().node(), mig));
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice dev) {
  SIM_CALL(cuDeviceComputeCapability);
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *major = static_cast<int>(Driver::get().row(dev).major);
  *minor = static_cast<int>(Driver::get().row(dev).minor);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice dev) {
  SIM_CALL(cuDeviceGetPCIBusId);
  if (id == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(id, static_cast<size_t>(length), "%s",
                Driver::get().node().bus_id(Driver::get().physical(dev)).c_str());
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceGetByPCIBusId(CUdevice* dev, const char* id) {
  SIM_CALL(cuDeviceGetByPCIBusId);
  if (dev == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
    domain = 0;
    if (std::sscanf(id, "%x:%x", &bus, &device) != 2) return CUDA_ERROR_INVALID_VALUE;
  }
  for (int i = 0; i < Driver::get().device_count(); ++i) {
    const sim::DeviceRow& row = Driver::get().row(i);
    if (row.pci_domain == domain && row.pci_bus == bus && row.pci_device == device) {
      *dev = i;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

SIM_API CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  SIM_CALL(cuDeviceTotalMem_v2);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = Driver::get().row(dev).total;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceTotalMem(unsigned* bytes, CUdevice dev) {
  SIM_CALL(cuDeviceTotalMem);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev)) return CUDA_ERROR_INVALID_DEVICE;
  const uint64_t total = Driver::get().row(dev).total;
  *bytes = total > UINT32_MAX ? UINT32_MAX : static_cast<unsigned>(total);
  return CUDA_SUCCESS;
}

SIM_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice dev, CUdevice peer) {
  SIM_CALL(cuDeviceCanAccessPeer);
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!Driver::get().valid(dev) || !Driver::get().valid(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = dev != peer;
  return CUDA_SUCCESS;
}
