// Checkpoints of processes by their PID, as cuda.h describes them: a process that is locked waits
// in its next call, and all that it has on devices is in host memory from the checkpoint to the
// restoring. A device that has no room any more refuses that, and the process stays as it is. (The
// real driver lets a thread of the process itself do the work.) Memory that is shared with other
// processes is not supported.
#include "sim/cuda/driver.h"

using sim::Account;
using sim::Checkpoint;

namespace {

// Calls act(account) for the process if it is in the state `from`; then it is in `to`.
template <typename Act>
CUresult move(int pid, Checkpoint from, Checkpoint to, Act act) {
  const std::unique_ptr<Account> account = Account::of_other(pid, sim::Vendor::kNvidia);
  if (account == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (account->checkpoint().load() != from) return CUDA_ERROR_ILLEGAL_STATE;
  if (!act(*account)) return CUDA_ERROR_OUT_OF_MEMORY;
  account->checkpoint().store(to);
  return CUDA_SUCCESS;
}

// A process may be ordered about by itself, so these wait for nobody.
CUresult enter(const char* function) {
  if (const int result = sim::ordered(function)) return result;
  return *sim::initialised == 0 ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

bool nothing(Account&) {
  return true;
}

}  // namespace

SIM_API CUresult cuCheckpointProcessLock(int pid, void*) {
  if (const CUresult refused = enter("cuCheckpointProcessLock")) return refused;
  return move(pid, Checkpoint::kRunning, Checkpoint::kLocked, nothing);
}

SIM_API CUresult cuCheckpointProcessCheckpoint(int pid, void*) {
  if (const CUresult refused = enter("cuCheckpointProcessCheckpoint")) return refused;
  return move(pid, Checkpoint::kLocked, Checkpoint::kCheckpointed, [](Account& account) {
    account.park();
    return true;
  });
}

SIM_API CUresult cuCheckpointProcessRestore(int pid, void*) {
  if (const CUresult refused = enter("cuCheckpointProcessRestore")) return refused;
  return move(pid, Checkpoint::kCheckpointed, Checkpoint::kLocked,
              [](Account& account) { return account.unpark(); });
}

SIM_API CUresult cuCheckpointProcessUnlock(int pid, void*) {
  if (const CUresult refused = enter("cuCheckpointProcessUnlock")) return refused;
  return move(pid, Checkpoint::kLocked, Checkpoint::kRunning, nothing);
}

SIM_API CUresult cuCheckpointProcessGetState(int pid, int* state) {
  if (const CUresult refused = enter("cuCheckpointProcessGetState")) return refused;
  const std::unique_ptr<Account> account = Account::of_other(pid, sim::Vendor::kNvidia);
  if (account == nullptr || state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = static_cast<int>(account->checkpoint().load());
  return CUDA_SUCCESS;
}
