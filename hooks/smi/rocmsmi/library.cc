// The rows of functions.inc as an array, for the dlsym interposer, and the choice of the library
// that a call is for.
#include "hooks/smi/rocmsmi/library.h"

#include "shim/base/elf.h"
#include "shim/base/report.h"

namespace fracgpu::rocmsmi {

#define FRACGPU_TABLE "hooks/smi/rocmsmi/functions.inc"
#include "shim/vendor/function_table.inc"

constinit VendorLibrary library("rsmi_", {"librocm_smi64.so"}, functions);

namespace copy {

#define FRACGPU_TABLE "hooks/smi/rocmsmi/functions.inc"
#include "shim/vendor/function_table.inc"

constinit VendorLibrary library("rsmi_", {"libamd_smi.so", "libamd_smi_python.so"}, functions);

}  // namespace copy

namespace {

std::atomic<bool> said_version{false}, said_device{false};

bool first(std::atomic<bool>& reported) {
  return !reported.exchange(true, std::memory_order_relaxed);
}

// Libraries older than partitions report one bus id for all partitions of a GPU. Such an id
// identifies none of them.
bool is_unique(uint32_t device, uint64_t bdf) {
  uint32_t count = 0;
  if (real::rsmi_num_monitor_devices(&count) != kSuccess) return false;
  for (uint32_t other = 0; other < count; ++other) {
    uint64_t its = 0;
    if (other == device) continue;
    if (real::rsmi_dev_pci_id_get(other, &its) != kSuccess || its == bdf) return false;
  }
  return true;
}

}  // namespace

bool is_for_copy(const void* caller) {
  if (elf::place_of(caller).object.find("libamd_smi") != std::string_view::npos) {
    return copy::library.resolve();
  }
  return !library.resolve() && copy::library.resolve();
}

bool is_known() {
  const std::string_view soname = library.soname();
  // The part of the interface that the hooks use is the same in all of them (rocm_smi.h of 5.2.3 to
  // 2025).
  for (const char* known :
       {"librocm_smi64.so.1", "librocm_smi64.so.5", "librocm_smi64.so.6", "librocm_smi64.so.7"}) {
    if (soname == known) return true;
  }
  if (first(said_version)) {
    report(Level::warn,
           "{} is of a version that is not known (1, 5, 6 and 7 are): what it tells is not "
           "changed to the tenant's view",
           soname);
  }
  return false;
}

bool key_of(uint32_t device, kfd::Key& key) {
  if (!is_known()) return false;
  uint64_t gpu_id = 0, bdf = 0;
  if (real::rsmi_dev_guid_get(device, &gpu_id) == kSuccess && kfd::key_of_gpu_id(gpu_id, key)) {
    return true;
  }
  if (real::rsmi_dev_pci_id_get(device, &bdf) != kSuccess) return false;  // not a device by itself
  if (is_unique(device, bdf) && kfd::key_of_bdf(bdf, key)) return true;
  if (first(said_device)) {
    report(Level::warn,
           "{} does not tell which device of /sys/class/kfd it means: what it tells "
           "of it is not changed to the tenant's view",
           library.soname());
  }
  return false;
}

}  // namespace fracgpu::rocmsmi
