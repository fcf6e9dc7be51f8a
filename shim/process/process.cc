// Makes the Process and registers devices; see process.h.
#include "shim/process/process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "shim/base/clock.h"
#include "shim/base/descriptor.h"
#include "shim/base/static_spin_lock.h"
#include "shim/config/identity.h"
#include "shim/process/memory_of_the_dead.h"
#include "shim/process/tenant_view.h"
#include "shim/vendor/backend.h"

namespace fracgpu {
namespace {

void* map_anonymous(size_t size) {
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return bytes == MAP_FAILED ? nullptr : bytes;
}

constinit StaticSpinLock making;

}  // namespace

Process* Process::make_self() {
  ForkPage* const page = make_fork_page();
  if (page == nullptr) {
    // A child that cannot be distinguished from its parent would use the parent's charges.
    return make_refusing("no page can be had that is wiped in forked children: out of host memory");
  }
  const auto made = [&] {
    return static_cast<Process*>(page->process.load(std::memory_order_acquire));
  };
  if (Process* const process = made(); process != nullptr) return process;
  Locked<StaticSpinLock> lock(making);
  if (Process* const process = made(); process != nullptr) return process;
  void* const bytes = map_anonymous(sizeof(Process));
  if (bytes == nullptr) return make_refusing("out of host memory");
  Process* const process = new (bytes) Process(nullptr);
  page->process.store(process, std::memory_order_release);
  return process;
}

Process* Process::make_refusing(const char* why) {
  alignas(Process) static unsigned char bytes[sizeof(Process)];
  static constinit std::atomic<Process*> made{nullptr};
  static constinit StaticSpinLock making_this;
  if (made.load(std::memory_order_acquire) == nullptr) {
    Locked<StaticSpinLock> lock(making_this);
    if (made.load(std::memory_order_relaxed) == nullptr) {
      made.store(new (bytes) Process(why), std::memory_order_release);
    }
  }
  return made.load(std::memory_order_relaxed);
}

Process::Process(const char* fault) {
  for (auto& device_index : device_indices_)
    device_index.store(kUnknownDevice, std::memory_order_relaxed);
  Message error;
  if (fault != nullptr) {
    error.assign(fault);
    joined_.store(-1, std::memory_order_relaxed);
  }
  if (fault != nullptr || !configuration.read(error)) fail(error);
}

void Process::fail(const Message& why) {
  if (fault_.set(why)) report(Level::error, "GPU allocations are refused: {}", why.view());
}

bool Process::fail_for_good(const Message& why) {
  lacked_descriptor_.store(no_descriptor_is_free(), std::memory_order_relaxed);
  if (!lacked_descriptor()) fail(why);
  return !lacked_descriptor();
}

// The tenant's other devices stay usable.
void Process::refuse_device(const char* device_key) {
  Message why;
  why.format(
      "the ledger {} has no row left for device {}: a tenant may use {} devices; show its programs "
      "fewer (ROCR_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES), or give some another FRACGPU_TENANT",
      ledger.path(), device_key, layout::kMaxDevices);
  device_fault_.set(why);
  report(Level::error, "allocations on this device are refused: {}", why.view());
}

bool Process::join() {
  if (joined_.load(std::memory_order_acquire) != 0) return joined_ > 0;
  start_vendors();
  Locked<SleepLock> lock(joining_);
  if (joined_.load(std::memory_order_acquire) != 0) return joined_ > 0;
  bool ok = fault().empty();
  TenantName tenant;
  const ProcessIdentity identity = ProcessIdentity::of_self();
  Message error;
  if (ok && !(tenant_name(tenant, error) &&
              ledger.join(tenant.c_str(), identity, driver_released, error))) {
    ok = false;
    if (!fail_for_good(error)) return false;
  }
  if (ok) {
    report(Level::info, "joined tenant {} ({})", tenant.view(), ledger.path());
    recording_.store(ledger.recording(), std::memory_order_relaxed);
    recorder.start(tenant.view(), ledger.slot(), identity, false);
    recorder.look_for_ends(ledger);
  }
  joined_.store(ok ? 1 : -1, std::memory_order_release);
  if (ok && ledger.has_made_file()) ledger.sweep();
  return ok;
}

void Process::leave() {
  Process* const process = known();
  if (process != nullptr && process->has_joined()) {
    process->recorder.leave();
    process->ledger.leave_for_good(unix_now_ms() / 1000);
  }
}

void Process::record_device(int device_index) {
  const layout::Device& device = ledger.map()->devices[device_index];
  const uint64_t cap = ledger.cap(device_index);
  recorder.add_device(device_index, device.key, device.physical_bytes,
                      cap == layout::kNoCap ? cap : cap * layout::kUnit);
  backend_of(device.key).record_calls();
}

// Reports existing memory first, so that the recorder understands its release. Calls of other
// threads meanwhile are reported too, perhaps twice.
void Process::start_late_recording() {
  const uint64_t asked = ledger.recording();
  if (recording_.exchange(asked, std::memory_order_relaxed) == asked) return;
  recorder.stop();
  if (asked == 0 ||
      !recorder.start(ledger.tenant(), ledger.slot(), ProcessIdentity::of_self(), true)) {
    return;
  }
  pool_use_unrecorded.store(true, std::memory_order_relaxed);
  layout::for_each_device(*ledger.map(), [&](uint32_t device) {
    const auto index = static_cast<int>(device);
    if (!is_registered_[device].load(std::memory_order_acquire)) return;
    record_device(index);
    const uint64_t overhead_units = overhead[index].units.load(std::memory_order_relaxed);
    recorder.add({.type = ring::Type::level,
                  .kind = ring::Kind::overhead,
                  .device = static_cast<uint8_t>(device),
                  .taken = overhead_units * layout::kUnit,
                  .owner = uint64_t{device} + 1});
  });
  allocations.for_each([&](const Allocation& entry) {
    const bool chunk = (entry.key & 1) != 0;
    recorder.add({.type = chunk ? ring::Type::chunk : ring::Type::allocated,
                  .kind = entry.managed ? ring::Kind::managed : ring::Kind::linear,
                  .device = entry.device_index,
                  .address = entry.key & ~uint64_t{1},
                  .bytes = chunk ? entry.users : uint64_t{entry.units} * layout::kUnit,
                  .taken = uint64_t{entry.units} * layout::kUnit,
                  .owner = entry.context});
  });
  physical.for_each([&](uint64_t memory, uint64_t units, int device_index) {
    recorder.add({.type = ring::Type::allocated,
                  .kind = ring::Kind::physical,
                  .device = static_cast<uint8_t>(device_index),
                  .address = ring::physical_key(memory),
                  .bytes = units * layout::kUnit,
                  .taken = units * layout::kUnit});
  });
}

int Process::index_of_device(int slot, const char* device_key, uint64_t physical) {
  if (const int known = cached_device_index(slot); known != kUnknownDevice) return known;
  if (joined_.load(std::memory_order_acquire) < 0) return kFault;  // for good
  start_vendors();
  Locked<SleepLock> lock(registering_);
  if (const int known = cached_device_index(slot); known != kUnknownDevice) return known;
  const int device_index = register_device(device_key, physical);
  const bool is_final = device_index != kFault || !fault().empty() || !device_fault().empty();
  if (is_final) device_indices_[slot].store(device_index, std::memory_order_release);
  return device_index;
}

int Process::register_device(const char* device_key, uint64_t physical) {
  if (!join()) return kFault;
  Message error;
  if (*device_key == '\0') {
    error.assign(
        "nothing tells which device this is: NVIDIA's are known by the UUID that the driver gives "
        "them, AMD's by their gpu_id in /sys/class/kfd, which must be visible here");
    fail(error);
    return kFault;
  }
  DeviceName device;
  if (!configuration.name_device(device_key, device, error)) {
    fail(error);
    return kFault;
  }
  // Programs can get only the smaller of the two: one source's total includes the driver's reserve.
  if (uint64_t bytes = 0; backend_of(device_key).physical_bytes(device_key, bytes))
    physical = physical == 0 ? bytes : std::min(physical, bytes);
  const uint64_t cap = configuration.cap_for(device, physical);
  const int known = ledger.find_device(device_key);
  if (const auto unknown = configuration.unknown_selector(); !unknown.empty()) {
    // If this device is capped, the typo does no harm. If it is not, the typo may be the reason.
    error.format("the limit names device {}, which this machine does not have", unknown.view());
    if (cap == UINT64_MAX && known < 0) {
      fail(error);
      return kFault;
    }
    if (!told_unknown_selector_) report(Level::warn, "{}", error.view());
    told_unknown_selector_ = true;
  }
  if (cap == UINT64_MAX && known < 0) return kNotCapped;
  const int device_index = ledger.device(device_key, cap, physical, error);
  if (device_index < 0 && ledger.free_device_rows() == 0) {
    refuse_device(device_key);
    return kFault;
  }
  if (device_index < 0) {
    fail_for_good(error);
    return kFault;
  }
  if (const auto index = static_cast<size_t>(device_index);
      !is_registered_[index].load(std::memory_order_relaxed)) {
    blocks.make(index);
    overhead.make(index);
    allocations.add_device(device_index);
    is_registered_[index].store(true, std::memory_order_release);
    if (recorder.is_on()) record_device(device_index);
  }
  const uint64_t in_force = ledger.cap(device_index) * layout::kUnit;
  if (cap != in_force) {
    report(Level::warn,
           "{}: {} stays capped at {}, as the tenant's running processes have it; this "
           "process was configured for {}",
           ledger.path(), device_key, human_bytes(in_force).view(),
           cap == UINT64_MAX ? "no cap" : human_bytes(cap).view());
  }
  report(Level::info, "{}: cap {} of {}", device_key, human_bytes(in_force).view(),
         human_bytes(physical).view());
  return device_index;
}

bool Process::view(const char* device_key, uint64_t physical, TenantView& view) {
  return Observation(*this).device(device_key, physical, view);
}

// In units. Only units that other processes hold may belong to dead ones.
uint64_t Process::held_beside_others(int device_index) {
  const uint64_t held = ledger.held(device_index);
  if (held == ledger.held_by_self(device_index)) return held;
  // Looking for dead processes costs a system call for each living one, and programs ask for the
  // free memory in loops: 17 us beside one process, 105 us beside 63. At 10 ms that is 1 % of a
  // core; with 1 to 1,000 ms the mean call took the same.
  constexpr uint64_t kReapInterval_ms = 10;
  const uint64_t now = coarse_now_ms();
  uint64_t due = next_reap_ms_.load(std::memory_order_relaxed);
  const bool reaped = now >= due &&
                      next_reap_ms_.compare_exchange_strong(due, now + kReapInterval_ms,
                                                            std::memory_order_relaxed) &&
                      ledger.reap_dead();
  return reaped ? ledger.held(device_index) : held;
}

}  // namespace fracgpu
