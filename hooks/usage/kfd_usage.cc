// Reads what KFD counts; see kfd_usage.h.
//
//   proc/<host pid>/vram_<gpu_id>    bytes that the process holds there
#include "hooks/usage/kfd_usage.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "shim/base/small_file.h"
#include "shim/config/identity.h"

namespace fracgpu::kfd {
namespace {

using Path = Text<128>;

bool read_number(const Path& path, uint64_t& value) {
  char text[32];
  if (read_small_file(path.c_str(), text, sizeof text) < 0) return false;
  char* end = text;
  errno = 0;
  value = strtoull(text, &end, 10);
  return errno == 0 && end != text;
}

// KFD lists processes by their PIDs in the initial namespace, so in a private one a process does
// not find itself.
bool read_vram(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  uint64_t gpu_id = 0, all = 0;
  errno = EINVAL;
  if (!in_host_pid_namespace() || !gpu_id_of(device_key, gpu_id)) return false;
  Path path;
  path.format("{}/proc/{}/vram_{}", kRoot, host_pid, gpu_id);
  if (!read_number(path, bytes)) return false;
  errno = ERANGE;
  return !physical_bytes(device_key, all) || bytes <= all;
}

}  // namespace

// A process that uses HSA is listed; where it is not, its usage is not known.
bool bytes_of_self(const char* device_key, uint64_t& bytes) {
  return read_vram(static_cast<uint32_t>(getpid()), device_key, bytes);
}

bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  if (read_vram(host_pid, device_key, bytes)) return true;
  if (errno != ENOENT) return false;
  // Not listed: it has ended. Kernels before 5.8 list no process.
  Path list;
  list.format("{}/proc", kRoot);
  bytes = 0;
  return access(list.c_str(), F_OK) == 0;
}

}  // namespace fracgpu::kfd
