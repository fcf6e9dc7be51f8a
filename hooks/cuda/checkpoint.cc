// Checkpoints: a process's device memory moves to the host and back, on request of that process or
// of another one. The charge moves with it, in the ledger of the caller's tenant.
#include "hooks/cuda/hook.h"
#include "shim/base/report.h"
#include "shim/config/identity.h"
#include "shim/vendor/backend.h"

namespace fracgpu::cuda {
namespace {

// The tenant's ledger. It is the process's own ledger. If the process has no memory itself, as
// cuda-checkpoint, the ledger is opened for the duration of the call. Null if the tenant has no
// ledger.
class TenantLedger {
 public:
  explicit TenantLedger(Process& process) {
    if (!process.fault().empty()) return;
    TenantName tenant;
    Message error;
    if (process.has_joined()) {
      ledger_ = &process.ledger;
    } else if (tenant_name(tenant, error) &&
               opened_.manage(tenant.c_str(), error) == LedgerFile::Result::ok) {
      ledger_ = &opened_;
    }
  }

  Ledger* get() const { return ledger_; }

 private:
  Ledger opened_;
  Ledger* ledger_ = nullptr;
};

// The target may run in a PID namespace inside ours, under another PID.
ProcessName target_of(const Ledger& ledger, int pid) {
  const ProcessName own = process_of_own_namespace(static_cast<uint32_t>(pid));
  return ledger.find_process(own) >= 0 ? own : seen_from_inside(static_cast<uint32_t>(pid));
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

CUresult cuCheckpointProcessCheckpoint(int pid, void* args) {
  Hook hook;
  const CUresult result = real::cuCheckpointProcessCheckpoint(pid, args);
  if (result != kSuccess || !hook.active()) return result;
  const TenantLedger tenant(hook.process());
  if (tenant.get() != nullptr) tenant.get()->park(target_of(*tenant.get(), pid));
  return result;
}

CUresult cuCheckpointProcessRestore(int pid, void* args) {
  Hook hook;
  const auto restore = [&] { return real::cuCheckpointProcessRestore(pid, args); };
  if (!hook.active()) return restore();
  const TenantLedger tenant(hook.process());
  if (tenant.get() == nullptr) return restore();
  const ProcessName target = target_of(*tenant.get(), pid);
  int device = 0;
  Refusal refusal;
  if (!tenant.get()->unpark(target, device, refusal)) {
    report_no_room(*tenant.get(), pid, device, refusal);
    return kOutOfMemory;
  }
  const CUresult result = restore();
  if (result != kSuccess) tenant.get()->park(target);
  return result;
}

}  // namespace fracgpu::cuda
