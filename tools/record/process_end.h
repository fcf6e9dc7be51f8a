// How a process ended that did not report its exit: by _exit, by a signal, or by exec, after which
// it still exists. The kernel reports the first two if the parent has not waited for the process
// yet. Since Linux 6.15, it reports them for every process whose descriptor was opened while the
// process existed.
#pragma once

#include <cstdint>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class ProcessEnd {
 public:
  ProcessEnd() = default;
  // `pid`: the PID in this /proc; `start_time`: the start time of the process.
  ProcessEnd(uint32_t pid, uint64_t start_time);

  // For a process that has ended: recording::kByExitCall, kBySignal plus the number, kByExec or
  // kNoHandlers.
  uint64_t how() const;

 private:
  uint32_t pid_ = 0;
  uint64_t start_time_ = 0;
  Descriptor pidfd_{};
};

}  // namespace fracgpu::tools
