// Plausible constants for what tools print beside memory: utilisation, temperature, power, clocks
// and modes. None of it depends on the node's accounting. What is not here answers NOT_SUPPORTED,
// which tools show as N/A.
#include "sim/nvml/state.h"

namespace {

nvmlReturn_t give(nvmlDevice_t handle, unsigned* out, unsigned value) {
  NVML_DEVICE(handle, dev);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = value;
  return NVML_SUCCESS;
}

}  // namespace

#define SIM_CONSTANT(name, value)                                 \
  SIM_API nvmlReturn_t name(nvmlDevice_t handle, unsigned* out) { \
    NVML_CALL(name);                                              \
    return give(handle, out, value);                              \
  }

SIM_CONSTANT(nvmlDeviceGetPowerUsage, 71000)
SIM_CONSTANT(nvmlDeviceGetPowerManagementLimit, 700000)
SIM_CONSTANT(nvmlDeviceGetEnforcedPowerLimit, 700000)
SIM_CONSTANT(nvmlDeviceGetPowerManagementDefaultLimit, 700000)
SIM_CONSTANT(nvmlDeviceGetPowerManagementMode, 1)
SIM_CONSTANT(nvmlDeviceGetPersistenceMode, 1)
SIM_CONSTANT(nvmlDeviceGetDisplayMode, 0)
SIM_CONSTANT(nvmlDeviceGetDisplayActive, 0)
SIM_CONSTANT(nvmlDeviceGetComputeMode, 0)
SIM_CONSTANT(nvmlDeviceGetPerformanceState, 0)
SIM_CONSTANT(nvmlDeviceGetPowerState, 0)
SIM_CONSTANT(nvmlDeviceGetBrand, 14)
SIM_CONSTANT(nvmlDeviceGetArchitecture, 9)
SIM_CONSTANT(nvmlDeviceGetMultiGpuBoard, 0)
SIM_CONSTANT(nvmlDeviceGetAccountingBufferSize, 4000)

SIM_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t* out) {
  NVML_CALL(nvmlDeviceGetUtilizationRates);
  NVML_DEVICE(handle, dev);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = {0, 0};
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, int, unsigned* out) {
  NVML_CALL(nvmlDeviceGetTemperature);
  return give(handle, out, 33);
}
SIM_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, int, unsigned* out) {
  NVML_CALL(nvmlDeviceGetClockInfo);
  return give(handle, out, 1980);
}
SIM_API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, int, unsigned* out) {
  NVML_CALL(nvmlDeviceGetMaxClockInfo);
  return give(handle, out, 1980);
}
SIM_API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned* now, unsigned* pending) {
  NVML_CALL(nvmlDeviceGetEccMode);
  if (const nvmlReturn_t result = give(handle, now, 1)) return result;
  return give(handle, pending, 1);
}
SIM_API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, int, int,
                                                 unsigned long long* out) {
  NVML_CALL(nvmlDeviceGetTotalEccErrors);
  NVML_DEVICE(handle, dev);
  if (out == nullptr) return NVML_ERROR_INVALID_ARGUMENT;
  *out = 0;
  return NVML_SUCCESS;
}
SIM_API nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t handle, char* serial, unsigned length) {
  NVML_CALL(nvmlDeviceGetSerial);
  NVML_DEVICE(handle, dev);
  const char text[] = {'1', '6', '5', '0', '0', '0', static_cast<char>('0' + dev % 10), '\0'};
  return sim::copy_text(serial, length, text);
}
SIM_API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t handle, char* version,
                                               unsigned length) {
  NVML_CALL(nvmlDeviceGetVbiosVersion);
  NVML_DEVICE(handle, dev);
  return sim::copy_text(version, length, "96.00.00.00.01");
}
