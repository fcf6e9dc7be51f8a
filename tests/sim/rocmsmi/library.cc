// Initialisation and identity of the simulated librocm_smi64. FRACGPU_SIM_ROCM_SMI=5 makes it one
// that knows nothing of partitions: its bus ids lack them, and it does not tell KFD's number.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "sim/node/container.h"
#include "sim/rocmsmi/state.h"

namespace sim {
namespace {

std::mutex mutex;
int initialisations = 0;
Node* node = nullptr;  // opened once and kept

}  // namespace

bool rsmi_is_old() {
  const char* text = std::getenv("FRACGPU_SIM_ROCM_SMI");
  return text != nullptr && std::strcmp(text, "5") == 0;
}

rsmi_status_t copy_text(const std::string& text, char* to, uint32_t length) {
  if (to == nullptr || length == 0) return RSMI_STATUS_INVALID_ARGS;
  std::snprintf(to, length, "%s", text.c_str());
  return text.size() < length ? RSMI_STATUS_SUCCESS : RSMI_STATUS_INSUFFICIENT_SIZE;
}

bool rsmi_ready() {
  const std::lock_guard<std::mutex> guard(mutex);
  return initialisations > 0;
}

Node& rsmi_node() {
  return *node;
}

std::vector<int> rsmi_devices() {
  std::vector<int> devices = node->devices(Vendor::kAmd);
  std::erase_if(devices, is_forbidden);
  return devices;
}

int rsmi_device(uint32_t device) {
  const std::vector<int> devices = rsmi_devices();
  return device < devices.size() ? devices[device] : -1;
}

}  // namespace sim

SIM_API rsmi_status_t rsmi_init(uint64_t) {
  if (const int result = sim::ordered("rsmi_init")) return static_cast<rsmi_status_t>(result);
  const std::lock_guard<std::mutex> guard(sim::mutex);
  if (sim::node == nullptr) {
    std::string error;
    auto opened = sim::Node::from_environment(&error);
    if (opened != nullptr && opened->device_count(sim::Vendor::kAmd) > 0) {
      sim::node = opened.release();
    }
    if (sim::node == nullptr) return RSMI_STATUS_INIT_ERROR;
  }
  ++sim::initialisations;
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_shut_down() {
  const std::lock_guard<std::mutex> guard(sim::mutex);
  if (sim::initialisations == 0) return RSMI_STATUS_INIT_ERROR;
  --sim::initialisations;
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_num_monitor_devices(uint32_t* count) {
  RSMI_CALL(rsmi_num_monitor_devices);
  if (count == nullptr) return RSMI_STATUS_INVALID_ARGS;
  *count = static_cast<uint32_t>(sim::rsmi_devices().size());
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_dev_pci_id_get(uint32_t device, uint64_t* bdf) {
  RSMI_CALL(rsmi_dev_pci_id_get);
  RSMI_DEVICE(device, dev);
  if (bdf == nullptr) return RSMI_STATUS_INVALID_ARGS;
  const sim::DeviceRow& row = sim::rsmi_node().device(dev);
  const uint32_t location = sim::rsmi_is_old() ? row.location_id & 0xfffffff : row.location_id;
  *bdf = static_cast<uint64_t>(row.pci_domain) << 32 | location;
  return RSMI_STATUS_SUCCESS;
}

#define SIM_NUMBER(name, type, value)                                          \
  SIM_API rsmi_status_t name(uint32_t device, type* number) {                  \
    RSMI_CALL(name);                                                           \
    RSMI_DEVICE(device, dev);                                                  \
    if (number == nullptr) return RSMI_STATUS_INVALID_ARGS;                    \
    [[maybe_unused]] const sim::DeviceRow& row = sim::rsmi_node().device(dev); \
    *number = static_cast<type>(value);                                        \
    return RSMI_STATUS_SUCCESS;                                                \
  }

SIM_NUMBER(rsmi_dev_vendor_id_get, uint16_t, row.pci_id & 0xffff)
SIM_NUMBER(rsmi_dev_id_get, uint16_t, row.pci_id >> 16)
SIM_NUMBER(rsmi_dev_unique_id_get, uint64_t, row.unique_id)

SIM_API rsmi_status_t rsmi_dev_guid_get(uint32_t device, uint64_t* gpu_id) {
  RSMI_CALL(rsmi_dev_guid_get);
  RSMI_DEVICE(device, dev);
  if (sim::rsmi_is_old()) return RSMI_STATUS_NOT_SUPPORTED;
  if (gpu_id == nullptr) return RSMI_STATUS_INVALID_ARGS;
  *gpu_id = sim::rsmi_node().device(dev).kfd_gpu_id;
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_dev_node_id_get(uint32_t device, uint32_t* number) {
  RSMI_CALL(rsmi_dev_node_id_get);
  RSMI_DEVICE(device, dev);
  if (sim::rsmi_is_old()) return RSMI_STATUS_NOT_SUPPORTED;
  if (number == nullptr) return RSMI_STATUS_INVALID_ARGS;
  *number = sim::rsmi_node().device(dev).kfd_node;
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_dev_name_get(uint32_t device, char* name, size_t length) {
  RSMI_CALL(rsmi_dev_name_get);
  RSMI_DEVICE(device, dev);
  return sim::copy_text(sim::rsmi_node().device(dev).name, name, static_cast<uint32_t>(length));
}

SIM_API rsmi_status_t rsmi_status_string(rsmi_status_t status, const char** text) {
  if (text == nullptr) return RSMI_STATUS_INVALID_ARGS;
  *text = status == RSMI_STATUS_SUCCESS ? "RSMI_STATUS_SUCCESS" : "an error of the simulated rsmi";
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_version_get(rsmi_version_t* version) {
  if (version == nullptr) return RSMI_STATUS_INVALID_ARGS;
  *version = {7, 0, 0, "simulated"};
  return RSMI_STATUS_SUCCESS;
}

SIM_API rsmi_status_t rsmi_version_str_get(uint32_t, char* text, uint32_t length) {
  return sim::copy_text("6.12.12", text, length);  // of the kernel driver
}
