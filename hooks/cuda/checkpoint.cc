// Checkpoints: a process's device memory moves to the host and back, on request of that process or
// of another one. The charge moves with it, in the ledger of the caller's tenant.
#include <algorithm>

#include "hooks/cuda/hook.h"
#include "shim/base/report.h"
#include "shim/charge/refusal.h"
#include "shim/config/identity.h"
#include "shim/vendor/backend.h"

namespace fracgpu::cuda {
namespace {

constexpr int kCheckpointed = 2;  // CU_PROCESS_STATE_CHECKPOINTED
// The size of CUcheckpointCheckpointArgs, all of which is reserved up to CUDA 13.3.
constexpr size_t kArgumentBytes = 64;

// The tenant's ledger. It is the process's own ledger. If the process has no memory itself, as
// cuda-checkpoint, the ledger is opened for the duration of the call. Null if the tenant has no
// ledger, and in case of an error.
class TenantLedger {
 public:
  explicit TenantLedger(Process& process) {
    TenantName tenant;
    if (process.has_joined()) {
      ledger_ = &process.ledger;
    } else if (tenant_name(tenant, error_) &&
               opened_.manage(tenant.c_str(), error_) == LedgerFile::Result::ok) {
      ledger_ = &opened_;
    }
  }

  Ledger* get() const { return ledger_; }
  const Message& error() const { return error_; }

 private:
  Ledger opened_;
  Ledger* ledger_ = nullptr;
  Message error_;
};

// The target may run in a PID namespace inside ours, under another PID.
ProcessName target_of(const Ledger& ledger, int pid) {
  const ProcessName own = process_of_own_namespace(static_cast<uint32_t>(pid));
  return ledger.find_process(own) >= 0 ? own : seen_from_inside(static_cast<uint32_t>(pid));
}

CUresult refuse_restore(int pid, const Message& error) {
  report(Level::error, "cuCheckpointProcessRestore refused: {}; pid {} stays as it is",
         error.view(), pid);
  return kOutOfMemory;
}

void report_no_room(const Ledger& ledger, int pid, int device, const Refusal& refusal) {
  const char* const key = ledger.map()->devices[device].key;
  report(Level::warn,
         "cuCheckpointProcessRestore refused on {}: pid {} had {}, in use {} of cap {}; it stays "
         "checkpointed",
         backend_of(key).describe(key).view(), pid,
         human_bytes(refusal.asked * layout::kUnit).view(),
         human_bytes(refusal.held * layout::kUnit).view(),
         human_bytes(refusal.cap * layout::kUnit).view());
}

}  // namespace

// The memory stays charged if any argument is given: CUDA 13.4 can leave it on the device until
// another call completes the checkpoint ("Checkpointing", NVIDIA's documentation of the driver
// API).
CUresult cuCheckpointProcessCheckpoint(int pid, void* args) {
  Hook hook;
  const auto* const bytes = static_cast<const unsigned char*>(args);
  const bool is_plain =
      args == nullptr ||
      std::all_of(bytes, bytes + kArgumentBytes, [](unsigned char byte) { return byte == 0; });
  const CUresult result = real::cuCheckpointProcessCheckpoint(pid, args);
  if (result != kSuccess || !hook.active() || !is_plain || !hook.process().fault().empty())
    return result;
  const TenantLedger tenant(hook.process());
  if (tenant.get() == nullptr) return result;
  const ProcessName target = target_of(*tenant.get(), pid);
  tenant.get()->park(target);
  // Another process may have restored it since.
  int state = kCheckpointed;
  if (real::cuCheckpointProcessGetState(pid, &state) == kSuccess && state != kCheckpointed)
    tenant.get()->set_parked(target, {});
  return result;
}

CUresult cuCheckpointProcessRestore(int pid, void* args) {
  Hook hook;
  const auto restore = [&] { return real::cuCheckpointProcessRestore(pid, args); };
  if (!hook.active()) return restore();
  if (!hook.process().fault().empty()) {
    report_fault(hook.process(), "cuCheckpointProcessRestore");
    return kOutOfMemory;
  }
  const TenantLedger tenant(hook.process());
  if (!tenant.error().view().empty()) return refuse_restore(pid, tenant.error());
  if (tenant.get() == nullptr) return restore();
  const ProcessName target = target_of(*tenant.get(), pid);
  int device = 0;
  Refusal refusal;
  Ledger::Parked parked;
  if (!tenant.get()->unpark(target, parked, device, refusal)) {
    if (!refusal.fault.view().empty()) return refuse_restore(pid, refusal.fault);
    report_no_room(*tenant.get(), pid, device, refusal);
    return kOutOfMemory;
  }
  const CUresult result = restore();
  if (result != kSuccess) tenant.get()->set_parked(target, parked);
  return result;
}

}  // namespace fracgpu::cuda
