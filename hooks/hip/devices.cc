// Maps HIP's devices to the machine's devices.
//
// HIP numbers the devices that HSA shows, in HSA's order. HIP_VISIBLE_DEVICES may leave some out.
// HIP reports a device's bus id and UUID. But on some kernels the partitions of one GPU share both,
// and HIP 5.2 prints every function as 0. So a device is identified by bus id and UUID if these are
// unique. Among equal partitions, the number in the variable identifies it.
#include "hooks/hsa/devices.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "hooks/hip/hook.h"
#include "shim/base/environment.h"
#include "shim/charge/refusal.h"
#include "shim/process/hook_scope.h"

namespace fracgpu::hip {
namespace {

struct Identity {
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  Text<40> uuid;  // empty: not reported
};

unsigned hex_number(const char*& text) {
  char* end = nullptr;
  const auto value = static_cast<unsigned>(strtoul(text, &end, 16));
  text = *end != '\0' ? end + 1 : end;
  return value;
}

bool identity_of(int ordinal, Identity& identity) {
  char bus_id[32] = "";
  if (real::hipDeviceGetPCIBusId(bus_id, sizeof bus_id, ordinal) != kSuccess) return false;
  const char* at = bus_id;
  for (unsigned* part : {&identity.domain, &identity.bus, &identity.device, &identity.function}) {
    *part = hex_number(at);
  }
  hipUUID uuid{};
  if (real::hipDeviceGetUuid(&uuid, ordinal) == kSuccess) {
    identity.uuid.append("GPU-{}", std::string_view(uuid.bytes, strnlen(uuid.bytes, 16)));
  }
  return true;
}

// How well HSA's device matches HIP's report: 0 is no match, and more is better. Function 0 counts
// neither for nor against a match.
int likeness(const hsa::Device& device, const Identity& identity) {
  const unsigned function = device.bdf_id & 7;
  if (device.domain != identity.domain || (device.bdf_id >> 8 & 0xff) != identity.bus ||
      (device.bdf_id >> 3 & 0x1f) != identity.device ||
      (identity.function != 0 && identity.function != function)) {
    return 0;
  }
  return !identity.uuid.empty() && device.uuid.view() == identity.uuid.view() ? 2 : 1;
}

// The number that HIP_VISIBLE_DEVICES names for an ordinal. The ordinal itself if the variable is
// not set, and -1 if the list does not name a number for it.
int visible(int ordinal) {
  const char* list = vendor_environment("HIP_VISIBLE_DEVICES");
  if (list == nullptr || *list == '\0') list = vendor_environment("CUDA_VISIBLE_DEVICES");
  if (list == nullptr || *list == '\0') return ordinal;
  for (int i = 0; i < ordinal; ++i) {
    list = strchr(list, ',');
    if (list == nullptr) return -1;
    ++list;
  }
  char* end = nullptr;
  const long number = strtol(list, &end, 10);
  return end != list ? static_cast<int>(number) : -1;
}

int find_device(int ordinal) {
  Identity identity;
  const int count = hsa::device_count();
  if (!identity_of(ordinal, identity)) return -1;
  int best = 0, alike = 0, found = -1;
  for (int i = 0; i < count; ++i) {
    const int fit = likeness(hsa::device(i), identity);
    if (fit > best) {
      best = fit;
      alike = 0;
      found = i;
    }
    if (fit > 0 && fit == best) ++alike;
  }
  if (alike <= 1) return found;
  const int named = visible(ordinal);
  const bool fits = named >= 0 && named < count && likeness(hsa::device(named), identity) == best;
  return fits ? named : found;
}

// Per ordinal: the number among HSA's devices plus one; 0: not looked up yet.
std::atomic<int> devices[Process::kSlotsOfVendor];

}  // namespace

int device_index_of(Process& process, int ordinal) {
  if (ordinal < 0 || ordinal >= Process::kSlotsOfVendor) return Process::kNotCapped;
  int number = devices[ordinal].load(std::memory_order_acquire) - 1;
  if (number < 0) {
    hsa::runtime_library.resolve();
    const HookScope scope;
    number = find_device(ordinal);
    if (number < 0) return Process::kNotCapped;  // HIP's own error comes next
    devices[ordinal].store(number + 1, std::memory_order_release);
  }
  return hsa::device_index_of(process, number);
}

void Hook::report_own_refusal() {
  call_.give_rest_back();  // nothing was given
  if (active() && !call_.refusal_reported())
    report_runtime_refusal(*process_, current_device_index(*process_), call_.api());
}

int current_device_index(Process& process) {
  // HIP is slow to answer. If HSA has exactly one device, HIP's device must be that one.
  if (devices[0].load(std::memory_order_acquire) != 0 && hsa::device_count() == 1) {
    return hsa::device_index_of(process, 0);
  }
  int ordinal = 0;
  return real::hipGetDevice(&ordinal) == kSuccess ? device_index_of(process, ordinal)
                                                  : Process::kNotCapped;
}

}  // namespace fracgpu::hip
