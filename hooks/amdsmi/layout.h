// Where libamd_smi's versions have the numbers that the hooks read and write.
//
// A version is the first number of amdsmi_get_lib_version: the year of 23 and 24, the major version
// since then. It is the number of the soname too, except where a distribution chose its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fracgpu::amdsmi {

// The numbers of one process on one device, in a list of either kind.
struct UsageLayout {
  uint32_t memory, vram;  // uint64_t, bytes; the first is the sum of all kinds
};

struct Layout {
  // amdsmi_proc_info_t
  uint32_t process_bytes;
  uint32_t process_pid;  // uint32_t
  UsageLayout process;
  // amdsmi_vram_info_t
  uint32_t vram_info_size;  // MiB; uint64_t, of which no version fills the upper half
};

inline constexpr Layout kLayout24{
    .process_bytes = 224, .process_pid = 32, .process = {40, 128}, .vram_info_size = 8};
inline constexpr Layout kLayout26{
    .process_bytes = 704, .process_pid = 256, .process = {264, 352}, .vram_info_size = 264};

// amdsmi_proc_info_by_pid_t, which came with 26: its first number is the PID.
inline constexpr uint32_t kByPidBytes = 6664;
inline constexpr uint32_t kByPidDevices = 32;
inline constexpr uint32_t kByPidCount = 516;  // uint32_t: how many entries follow
inline constexpr uint32_t kByPidFirst = 520;  // an entry's first number is the device's number
inline constexpr uint32_t kByPidEntryBytes = 192;
inline constexpr UsageLayout kByPidUsage{8, 96};

// The versions of which no function may be changed: see known().
inline constexpr uint32_t kFirstVersion = 23, kLastVersion = 27;

// Whether the functions that fill plain numbers, and the structs that never changed, are as here.
constexpr bool is_known(uint32_t version) {
  return version >= kFirstVersion && version <= kLastVersion;
}

// Null where the structs are not known. Those of 25 have not been seen: its neighbours differ.
constexpr const Layout* layout_of(uint32_t version) {
  if (version == 23 || version == 24) return &kLayout24;
  return version == 26 || version == 27 ? &kLayout26 : nullptr;
}

template <typename Number>
Number number_at(const void* base, uint32_t offset) {
  Number number;
  memcpy(&number, static_cast<const unsigned char*>(base) + offset, sizeof number);
  return number;
}
template <typename Number>
void set_number(void* base, uint32_t offset, Number number) {
  memcpy(static_cast<unsigned char*>(base) + offset, &number, sizeof number);
}

}  // namespace fracgpu::amdsmi
