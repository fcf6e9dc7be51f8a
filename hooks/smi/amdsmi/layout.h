// The offsets of the numbers that the hooks read and write, for libamd_smi's versions.
//
// A version is the first number of amdsmi_get_lib_version: 23 and 24 are years, later ones are
// major versions. It is also the number of the soname, unless a distribution chose another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fracgpu::amdsmi {

// The byte counts of one process on one device, in both kinds of lists.
struct UsageLayout {
  uint32_t memory, vram;  // uint64_t, bytes; the first is the sum of all kinds
};

// amdsmi_proc_info_t. Its names became longer while the version was 24 (ROCm 6.3, public header).
struct ProcessLayout {
  uint32_t bytes;
  uint32_t pid;  // uint32_t
  UsageLayout usage;
};
inline constexpr ProcessLayout kShortNames{.bytes = 224, .pid = 32, .usage = {40, 128}};
inline constexpr ProcessLayout kLongNames{.bytes = 704, .pid = 256, .usage = {264, 352}};

// The layout in which a library has written `count` entries into zeroed memory with room for the
// longer ones. The PID of the last long entry lies after the end of the short entries.
inline const ProcessLayout& layout_written(const unsigned char* entries, uint32_t count) {
  const unsigned char* const end_of_short = entries + size_t{count} * kShortNames.bytes;
  const unsigned char* const end = entries + size_t{count} * kLongNames.bytes;
  const bool longer = std::any_of(end_of_short, end, [](unsigned char byte) { return byte != 0; });
  return longer ? kLongNames : kShortNames;
}

// amdsmi_vram_info_t: the offset of the size in MiB (uint64_t; no version fills the upper half).
// The vendor before it was a number until ROCm 6.4 and is a text since then.
constexpr uint32_t vram_info_size(uint32_t version) {
  return version < 26 ? 8 : 264;
}

// amdsmi_proc_info_by_pid_t, new in 26. Its first number is the PID.
inline constexpr uint32_t kByPidBytes = 6664;
inline constexpr uint32_t kByPidDevices = 32;
inline constexpr uint32_t kByPidCount = 516;  // uint32_t: how many entries follow
inline constexpr uint32_t kByPidFirst = 520;  // an entry's first number is the device's number
inline constexpr uint32_t kByPidEntryBytes = 192;
inline constexpr UsageLayout kByPidUsage{8, 96};

// The versions whose functions the hooks may change: see known_version().
inline constexpr uint32_t kFirstVersion = 23, kLastVersion = 27;

// Whether this file describes the version.
constexpr bool is_known(uint32_t version) {
  return version >= kFirstVersion && version <= kLastVersion;
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
