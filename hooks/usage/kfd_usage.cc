// Reads KFD's counts; see kfd_usage.h.
//
//   proc/<host pid>/vram_<gpu_id>    bytes that the process holds there
//
// A process's folder disappears before its memory is freed (kfd_process_wq_release removes it
// first). amdgpu reports the total use of a GPU beside its PCI device: mem_info_vram_used.
// /proc/self/fdinfo reports the use of this process's own descriptors.
#include "hooks/usage/kfd_usage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/folder.h"
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

// Bytes of the line "drm-memory-vram:\t2068 KiB".
bool read_fdinfo(const char* descriptor, uint64_t& bytes) {
  constexpr char kLine[] = "\ndrm-memory-vram:";
  Path path;
  path.format("/proc/self/fdinfo/{}", descriptor);
  char text[2048];
  if (read_small_file(path.c_str(), text, sizeof text) < 0) return false;
  const char* const line = strstr(text, kLine);
  if (line == nullptr) return false;
  bytes = strtoull(line + strlen(kLine), nullptr, 10) << 10;
  return true;
}

// KFD lists processes by their PIDs in the initial namespace, so a process in a private namespace
// does not find itself.
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

// KFD lists each process that uses HSA. If this process is not listed, its usage is not known.
bool bytes_of_self(const char* device_key, uint64_t& bytes) {
  return read_vram(static_cast<uint32_t>(getpid()), device_key, bytes);
}

bool mapped_by_self(const char* device_key, uint64_t& bytes) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  if (gpu == nullptr) return false;
  Path render;
  render.format("/dev/dri/renderD{}", gpu->render_minor);
  // Descriptors of one opening show the same amount. The maximum is enough, because the runtime has
  // one opening.
  bool found = false;
  bytes = 0;
  for_each_entry("/proc/self/fd", [&](const char* number) {
    Path link;
    link.format("/proc/self/fd/{}", number);
    char file[64];
    const ssize_t length = readlink(link.c_str(), file, sizeof file);
    if (length < 0 || render.view() != std::string_view(file, static_cast<size_t>(length))) return;
    uint64_t told = 0;
    if (!read_fdinfo(number, told)) return;
    found = true;
    bytes = std::max(bytes, told);
  });
  return found;
}

bool bytes_of(uint32_t host_pid, const char* device_key, uint64_t& bytes) {
  if (read_vram(host_pid, device_key, bytes)) return true;
  if (errno != ENOENT) return false;
  // Not listed: the process has ended. Kernels before 5.8 list no process.
  Path list;
  list.format("{}/proc", kRoot);
  bytes = 0;
  return access(list.c_str(), F_OK) == 0;
}

bool used_bytes(const char* device_key, uint64_t& bytes) {
  BusId at;
  if (!bus_id_of(device_key, at)) return false;
  // Older kernels have the partition in the function, and only the GPU's own function has the file.
  for (const uint32_t function : {at.function, 0u}) {
    Path path;
    path.format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.{:x}/mem_info_vram_used", at.domain,
                at.bus, at.device, function);
    if (read_number(path, bytes)) return true;
  }
  return false;
}

bool most_held_by_dead(const char* device_key, uint64_t& bytes) {
  const GpuList gpus;
  const Gpu* const gpu = gpus.find(device_key);
  uint64_t counted = 0, used_later = 0;
  if (gpu == nullptr || !in_host_pid_namespace() || !used_bytes(device_key, bytes)) return false;
  Path list;
  list.format("{}/proc", kRoot);
  for_each_entry(list.c_str(), [&](const char* name) {
    const auto pid = static_cast<uint32_t>(strtoul(name, nullptr, 10));
    if (has_ended(pid)) return;
    for (const Gpu& part : gpus) {
      const bool same = part.bus_id.domain == gpu->bus_id.domain &&
                        part.bus_id.bus == gpu->bus_id.bus &&
                        part.bus_id.device == gpu->bus_id.device;
      if (uint64_t held = 0; same && read_vram(pid, part.key().c_str(), held)) counted += held;
    }
  });
  // Memory that living processes take or free during the count must not hide dead processes'
  // memory.
  if (!used_bytes(device_key, used_later)) return false;
  bytes = std::max(bytes, used_later);
  bytes -= std::min(bytes, counted);
  return true;
}

}  // namespace fracgpu::kfd
