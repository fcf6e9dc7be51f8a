// How a process ended that has not said that it exits: by _exit, by which signal, or by exec, where
// it is there still. The kernel tells the first two of a process whose parent has not waited for it
// yet, and since Linux 6.15 of any of which a descriptor was opened while it was there.
#pragma once

#include <cstdint>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class ProcessEnd {
 public:
  ProcessEnd() = default;
  // `pid`: as /proc here has it; `start_time`: of the process that is meant.
  ProcessEnd(uint32_t pid, uint64_t start_time);

  // Of one that has ended: recording::kByExitCall, kBySignal and the number, kByExec or
  // kNoHandlers.
  uint64_t how() const;

 private:
  uint32_t pid_ = 0;
  uint64_t start_time_ = 0;
  Descriptor pidfd_{};
};

}  // namespace fracgpu::tools
