#include "hooks/cuda/pool_frees.h"

namespace fracgpu::cuda {
namespace {

// The most streams to wait for: 2 KiB of stack. With 16, memory freed by 32 streams did not serve
// an allocation of the same size.
constexpr size_t kMostStreams = 256;

}  // namespace

bool frees_are_done(Process& process, uint64_t pool) {
  uint64_t streams[kMostStreams];
  const uint64_t epoch = process.contexts.epoch();
  const size_t count = process.pool_blocks.streams(pool, epoch, streams, kMostStreams);
  for (size_t i = 0; i < count; ++i) {
    if (!wait_for_other(process, streams[i], epoch)) return false;
  }
  return count < kMostStreams;
}

bool wait_for_frees(Process& process, uint64_t pool, const Stream& own) {
  if (process.pool_blocks.empty()) return false;
  uint64_t streams[kMostStreams];
  const uint64_t epoch = process.contexts.epoch();
  const size_t count = process.pool_blocks.streams(pool, epoch, streams, kMostStreams);
  const uint64_t own_number = number_of(process, own);
  for (size_t i = 0; i < count; ++i) {
    if (streams[i] != own_number) wait_for_other(process, streams[i], epoch);
  }
  return wait_for(process, own) || count > 0;
}

}  // namespace fracgpu::cuda
