// The ledger's layout: what lies in `/dev/shm/fracgpu-<tenant>`, byte for byte.
//
// One file per tenant holds its caps, one row per device, and one slot per process that uses a
// GPU. Other tools may map it read-only and read it: check `magic`, `version` and `file_bytes`,
// read every number with one atomic load, and expect numbers to move while you look.
//
// All amounts are in units of 512 bytes (`kUnit`), the finest alignment in which a GPU driver
// hands out memory; 32 bits of units are 2 TiB, more than any device has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fracgpu::layout {

inline constexpr char kFilePrefix[] = "/dev/shm/fracgpu-";
inline constexpr uint64_t kMagic = 0x3155504743415246;  // "FRACGPU1" in memory
// Of the layout and of the protocol: processes that follow different ones must not share a file.
inline constexpr uint32_t kVersion = 3;

inline constexpr uint64_t kUnit = 512;
inline constexpr uint32_t kMaxDevices = 16;
inline constexpr uint32_t kMaxSlots = 1024;
inline constexpr uint32_t kCellsPerLine = 4;

// Longest tenant name and device key ("MIG-" and a UUID are 40 characters), with the final NUL.
inline constexpr uint32_t kNameBytes = 64;

// `Device::cap` of a device that the configuration does not cap.
inline constexpr uint64_t kNoCap = UINT64_MAX;

// Written once, before the file gets its name; never changes afterwards.
struct Header {
  uint64_t magic;
  uint32_t version;
  uint32_t file_bytes;
  uint32_t max_devices;
  uint32_t max_slots;
  uint64_t created_unix_s;
  char tenant[kNameBytes];
};
static_assert(sizeof(Header) == 96);

// A device that some process of the tenant has used. Rows are appended under the file's lock and
// never move; `key` is complete before `cap` is stored with release order (0 = row unused).
struct alignas(64) Device {
  char key[kNameBytes];                // vendor's stable id, e.g. "GPU-…"
  std::atomic<uint64_t> cap;           // units; kNoCap = not capped; 0 = row unused
  uint64_t physical_bytes;             // of the real device
  std::atomic<uint64_t> context_size;  // units that the last new context took; 0 = not yet seen
  std::atomic<uint64_t> peak;          // units; highest sum of `held` seen under the file's lock
  std::atomic<uint64_t> refusals;      // reservations refused since the file was made
  uint64_t reserved[3];
};
static_assert(sizeof(Device) == 128);

// What one process holds on one device. On a cache line of its own for the first 256 slots
// claimed (`slot_order`), because it is written by every allocation of its process and by nobody
// else except, rarely, a process that takes back unspent lease.
struct Cell {
  // High half: held, units charged. Low half: lease, units this process may hold without asking.
  // The cap is hard because the sum over slots of max(held, lease) is never granted above it.
  std::atomic<uint64_t> word;
  std::atomic<uint32_t> peak;      // units; highest `held` of this process
  std::atomic<uint32_t> implicit;  // units of `held` that no call asked for: contexts and the like
};
static_assert(sizeof(Cell) == 16);

// Who holds a slot. The process is alive while byte `lock_offset(slot)` of the file is locked.
struct alignas(64) Slot {
  std::atomic<uint32_t> host_pid;  // PID in the initial PID namespace; 0 = not known from inside
  uint32_t pid;                    // PID in the process's own PID namespace
  uint64_t pid_namespace;          // inode of that namespace
  uint64_t start_time;             // clock ticks after boot, /proc/<pid>/stat field 22
  uint32_t uid;
  std::atomic<uint32_t> orphaned;  // 1: dead, but others still hold memory that it exported
  uint64_t claimed_unix_s;
  char command[16];  // /proc/<pid>/comm, NUL-terminated
};
static_assert(sizeof(Slot) == 64);

// Memory of one process on one device that goes across processes. What a process exported may
// outlive it, as long as somebody has it imported.
struct Sharing {
  std::atomic<uint32_t> exported;  // units of `held` that others may have imported
  std::atomic<uint32_t> imported;  // units that others pay for
};

struct Ledger {
  Header header;
  alignas(64) std::atomic<uint64_t> live[kMaxSlots / 64];  // bit set: slot claimed, maybe by a dead
  Device devices[kMaxDevices];
  Slot slots[kMaxSlots];
  alignas(64) Cell cells[kMaxDevices][kMaxSlots];
  Sharing sharing[kMaxDevices][kMaxSlots];
};
static_assert(offsetof(Ledger, live) == 128);
static_assert(offsetof(Ledger, devices) == 256);
static_assert(offsetof(Ledger, slots) == 256 + 128 * kMaxDevices);
static_assert(sizeof(Ledger) ==
              256 + 128 * kMaxDevices + 64 * kMaxSlots + (16 + 8) * kMaxDevices * kMaxSlots);
static_assert(sizeof(Ledger) < 512 * 1024, "a container's /dev/shm may be 64 MiB for everything");
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The `rank`-th slot to try when claiming one: a new cache line each for the first 256.
constexpr uint32_t slot_order(uint32_t rank) {
  constexpr uint32_t kLines = kMaxSlots / kCellsPerLine;
  return (rank % kLines) * kCellsPerLine + rank / kLines;
}

// Bytes of the file that carry locks. Locks are advisory and may lie past the end of the file.
inline constexpr int64_t kGrowLock = 0x40000000;  // held while leases, slots or rows change hands
constexpr int64_t lock_offset(uint32_t slot) {
  return kGrowLock + 1 + slot;
}
// Held by the one thread of the slot's process that is about to take more than its lease.
constexpr int64_t growing_offset(uint32_t slot) {
  return lock_offset(kMaxSlots) + slot;
}

constexpr uint64_t pack(uint64_t held, uint64_t lease) {
  return held << 32 | lease;
}
constexpr uint64_t held_of(uint64_t word) {
  return word >> 32;
}
constexpr uint64_t lease_of(uint64_t word) {
  return word & 0xffffffffu;
}
// What a cell takes away from what can still be granted.
constexpr uint64_t claim_of(uint64_t word) {
  return held_of(word) > lease_of(word) ? held_of(word) : lease_of(word);
}

constexpr uint64_t units_for(uint64_t bytes) {
  return bytes / kUnit + (bytes % kUnit != 0);
}

}  // namespace fracgpu::layout
