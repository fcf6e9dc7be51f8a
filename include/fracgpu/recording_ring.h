// How the processes of a tenant report their memory calls to `fracgpu record`: each process has a
// ring of records, in a file that it shares with the recorder. shim/recording writes, tools/record
// reads.
//
// A ring belongs to a slot of the tenant's ledger. The slot identifies the process that writes the
// ring, and shows whether it is alive. Any thread of the process appends records; the recorder
// takes them out. No thread waits: if a ring is full, records are counted and dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fracgpu/ledger_layout.h"

namespace fracgpu::ring {

// The tenant's name follows.
inline constexpr char kFilePrefix[] = "/dev/shm/fracgpu.recording-";
inline constexpr uint64_t kMagic = 0x676e697275706766;  // "fgpuring"
inline constexpr uint32_t kVersion = 3;

inline constexpr uint32_t kRings = layout::kMaxSlots;
// Up to 1 MiB for each process: 16 ms of calls that take 1 us each, while the recorder polls every
// 2 ms. A ring takes at most a 64th of the room that /dev/shm has, and no less than 20 KiB. Powers
// of two.
inline constexpr uint32_t kRecords = 1u << 14, kFewestRecords = 1u << 8;
constexpr bool is_ring_size(uint32_t records) {
  return records >= kFewestRecords && records <= kRecords && (records & (records - 1)) == 0;
}
inline constexpr uint32_t kMostFrames = 512;

// A number never changes its meaning.
enum class Type : uint8_t {
  nothing = 0,  // a thread died before it had written the record
  // Definitions. `stack` is the number that other records refer to. Several records with parts of a
  // text follow each other and make one text.
  process = 1,  // a process begins to write here: struct ProcessText
  device = 2,   // struct DeviceText; the number is the ledger's index
  module = 3,   // build id in hexadecimal, NUL, path
  stack = 4,    // uint64_t frames, the innermost first; see frame_of
  api = 5,      // name of a function
  // Events. `device` is the ledger's index.
  allocated = 16,  // `address` is the key by which it is released
  released = 17,   // about to be; if the driver refuses, `kept` follows
  kept = 18,
  level = 19,  // memory of `kind` and `owner` is `taken` now; kNoDevice: on the device where it was
  refused = 20,       // `address`: held, `owner`: cap
  context_gone = 21,  // a context is destroyed, with all memory that has it as `owner`
  chunk = 22,         // a chunk with `bytes` users existed before the recording
  leaving = 23,       // the process exits
  mark = 24,   // the call made the driver take `taken` more that no call requests: a context, code
  ended = 25,  // slot `owner`'s process is gone: from now on, others may get its memory
};

// The same as recording::MemoryKind in tools/recording/event.h.
enum class Kind : uint8_t {
  linear = 0,
  managed = 1,
  pool = 2,
  physical = 3,
  array = 4,
  chunks = 5,
  reserved = 6,
  graph = 7,
  overhead = 8,
};

inline constexpr uint8_t kNoDevice = 255;

struct Record {
  Type type = Type::nothing;
  Kind kind = Kind::linear;
  uint8_t device = kNoDevice;
  uint8_t reason = 0;    // of `refused`: layout::Reason
  uint32_t thread = 0;   // as gettid returns it
  uint32_t stack = 0;    // number of a stack; 0: none
  uint32_t api = 0;      // number of a name; 0: not known
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  uint64_t address = 0;
  uint64_t bytes = 0;  // requested
  uint64_t taken = 0;  // bytes of the device that it takes itself; 0: it is in a chunk or a pool
  uint64_t owner = 0;  // pool, or context
};
static_assert(sizeof(Record) == 56);

// A record that carries a part of a text: `thread` is the part's number from 0, `api` the length of
// the whole text in bytes.
inline constexpr size_t kPartBytes = sizeof(Record) - offsetof(Record, time_ns);
inline constexpr size_t kMostText = (kMostFrames + 1) * sizeof(uint64_t);

struct ProcessText {
  uint32_t pid = 0, host_pid = 0;  // as in layout::Slot
  uint64_t start_time = 0, pid_namespace = 0;
  uint64_t began_ns = 0;    // CLOCK_MONOTONIC: the slot's previous process is gone since then
  uint32_t began_late = 0;  // 1: the process had memory before the recording
  uint32_t unused = 0;
  char command[16] = "";
};
struct DeviceText {
  char key[layout::kNameBytes] = "";
  uint64_t physical = 0, cap = 0;  // bytes; cap UINT64_MAX: none
};

// A frame: a module's number and the offset in that module, counted like its program headers; or an
// address in no module.
inline constexpr uint64_t kNoModule = 0xffff;
constexpr uint64_t frame_of(uint64_t module, uint64_t offset) {
  return module << 48 | (offset & 0xffffffffffff);
}

// The last frame of a stack that was cut off: further frames were not recorded.
inline constexpr uint64_t kCutFrame = frame_of(kNoModule, 0xffffffffffff);

// The key of memory that is created, mapped and released separately: its number, marked so that it
// equals no address.
constexpr uint64_t physical_key(uint64_t memory) {
  return memory | uint64_t{1} << 63;
}

// The key of what a pool's allocations from before the recording use, as one allocation. A handle
// is an address of the process, so this equals no other key.
constexpr uint64_t pool_key(uint64_t pool) {
  return pool | uint64_t{3} << 62;
}

struct Place {
  std::atomic<uint64_t> stamp;  // the record's position + 1, once it is complete
  Record record;
};
static_assert(sizeof(Place) == 64);

// Each ring is mapped by itself, so it begins on a page boundary. Some arm64 kernels have pages of
// 64 KiB.
inline constexpr size_t kLargestPage = 64u << 10;
struct alignas(kLargestPage) Ring {
  alignas(64) std::atomic<uint64_t> end;     // end position; written by the process
  alignas(64) std::atomic<uint64_t> begin;   // position of the first record that was not taken out
  alignas(64) std::atomic<uint64_t> missed;  // records that were dropped
  // The number of places that have memory and are used; 0: no process has used the ring. It never
  // changes once it is set.
  std::atomic<uint32_t> records;
  alignas(4096) Place places[kRecords];
};

// A process that cannot be recorded: there is no memory for its ring, or an earlier process's
// records fill it.
struct Unrecorded {
  uint32_t pid, host_pid;  // as in ProcessText
  char command[16];
};
inline constexpr uint32_t kMostUnrecorded = 64;

// Written by the recorder, before the file gets its name.
struct HeaderStart {
  uint64_t magic;
  uint32_t version;
  uint32_t rings, records;
  uint32_t frames;  // the most frames of a call stack to record; 0: none
};
struct alignas(4096) Header {
  HeaderStart start;
  // Written by processes: how many of them are not recorded, and the first of them.
  std::atomic<uint32_t> unrecorded_count;
  Unrecorded unrecorded[kMostUnrecorded];
};
static_assert(sizeof(Header) == 4096);

struct File {
  Header header;
  Ring rings[kRings];
};
static_assert(offsetof(File, rings) % kLargestPage == 0 && sizeof(Ring) % kLargestPage == 0);

// Bytes of the file that carry locks.
inline constexpr int64_t kRecorderLock = 0x40000000;  // held while a recorder runs

}  // namespace fracgpu::ring
