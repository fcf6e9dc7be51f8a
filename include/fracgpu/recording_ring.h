// How the processes of a tenant tell `fracgpu record` what they do with memory: a ring of records
// for each, in a file that they share with it. shim/recording writes, tools/record reads.
//
// A ring belongs to a slot of the tenant's ledger, so who writes it, and whether that process is
// alive, is known from there. Any thread of the process appends; who records takes out. Nobody
// waits: where a ring is full, records are counted and dropped.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fracgpu/ledger_layout.h"

namespace fracgpu::ring {

// With the tenant's name behind it.
inline constexpr char kFilePrefix[] = "/dev/shm/fracgpu.recording-";
inline constexpr uint64_t kMagic = 0x676e697275706766;  // "fgpuring"
inline constexpr uint32_t kVersion = 3;

inline constexpr uint32_t kRings = layout::kMaxSlots;
// Up to 1 MiB for each process: 16 ms of calls that take 1 us each, where the recorder looks every
// 2 ms. A ring takes at most a 64th of the room that /dev/shm has, and no less than 20 KiB. Powers
// of two.
inline constexpr uint32_t kRecords = 1u << 14, kFewestRecords = 1u << 8;
constexpr bool is_ring_size(uint32_t records) {
  return records >= kFewestRecords && records <= kRecords && (records & (records - 1)) == 0;
}
inline constexpr uint32_t kMostFrames = 512;

// Numbers are never given another meaning.
enum class Type : uint8_t {
  nothing = 0,  // a thread died before it had written it
  // What others are numbered by. `stack` is the number; several records with `Part`s follow each
  // other and make one text.
  process = 1,  // a process begins to write here: struct ProcessText
  device = 2,   // struct DeviceText; the number is the ledger's index
  module = 3,   // build id in hexadecimal, NUL, path
  stack = 4,    // uint64_t frames, the innermost first; see frame_of
  api = 5,      // name of a function
  // What happens. `device` is the ledger's index.
  allocated = 16,  // `address` is the key by which it is released
  released = 17,   // about to be; if the driver refuses, `kept` follows
  kept = 18,
  level = 19,         // memory of `kind` and `owner` is `taken` now; kNoDevice: where it was
  refused = 20,       // `address`: held, `owner`: cap
  context_gone = 21,  // with all that has it as `owner`
  chunk = 22,         // a chunk with `bytes` users was there before the recording
  leaving = 23,       // the process exits
  mark = 24,   // the call made the driver take `taken` more that no call names: a context, code
  ended = 25,  // the process of slot `owner` is gone: what it had, others may have from now on
};

// As recording::MemoryKind of tools/recording/event.h.
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
  uint32_t thread = 0;   // as gettid has it
  uint32_t stack = 0;    // number of a stack; 0: none
  uint32_t api = 0;      // number of a name; 0: not known
  uint64_t time_ns = 0;  // CLOCK_MONOTONIC
  uint64_t address = 0;
  uint64_t bytes = 0;  // asked for
  uint64_t taken = 0;  // bytes of the device that are its own; 0: it lies in a chunk or a pool
  uint64_t owner = 0;  // pool, or context
};
static_assert(sizeof(Record) == 56);

// A record of a text's part: `thread` is the part's number from 0, `api` the text's bytes in all.
inline constexpr size_t kPartBytes = sizeof(Record) - offsetof(Record, time_ns);
inline constexpr size_t kMostText = (kMostFrames + 1) * sizeof(uint64_t);

struct ProcessText {
  uint32_t pid = 0, host_pid = 0;  // as in layout::Slot
  uint64_t start_time = 0, pid_namespace = 0;
  uint64_t began_ns = 0;    // CLOCK_MONOTONIC: who had the slot before is gone
  uint32_t began_late = 0;  // 1: it had memory before the recording
  uint32_t unused = 0;
  char command[16] = "";
};
struct DeviceText {
  char key[layout::kNameBytes] = "";
  uint64_t physical = 0, cap = 0;  // bytes; cap UINT64_MAX: none
};

// A frame: the number of the module and the offset in it, as its program headers count; or an
// address in no module.
inline constexpr uint64_t kNoModule = 0xffff;
constexpr uint64_t frame_of(uint64_t module, uint64_t offset) {
  return module << 48 | (offset & 0xffffffffffff);
}

// The last of a stack that goes on behind what was taken of it.
inline constexpr uint64_t kCutFrame = frame_of(kNoModule, 0xffffffffffff);

// By which memory is known that is made, mapped and released separately: its number, which no
// address is.
constexpr uint64_t physical_key(uint64_t memory) {
  return memory | uint64_t{1} << 63;
}

struct Place {
  std::atomic<uint64_t> stamp;  // the record's position + 1, when it is complete
  Record record;
};
static_assert(sizeof(Place) == 64);

// Each ring is mapped by itself, so it begins on a page: of 64 KiB on some arm64 kernels.
inline constexpr size_t kLargestPage = 64u << 10;
struct alignas(kLargestPage) Ring {
  alignas(64) std::atomic<uint64_t> end;     // position behind the last record; the process's
  alignas(64) std::atomic<uint64_t> begin;   // position of the first that was not taken out
  alignas(64) std::atomic<uint64_t> missed;  // records that were dropped
  // How many places have memory and are used; 0: no process has been here. Never changes
  // afterwards.
  std::atomic<uint32_t> records;
  alignas(4096) Place places[kRecords];
};

// A process that cannot be recorded, for want of memory for a ring.
struct Unrecorded {
  uint32_t pid, host_pid;  // as in ProcessText
  char command[16];
};
inline constexpr uint32_t kMostUnrecorded = 64;

// Written by the recorder, before the file has its name.
struct HeaderStart {
  uint64_t magic;
  uint32_t version;
  uint32_t rings, records;
  uint32_t frames;  // of call stacks to take; 0: none
};
struct alignas(4096) Header {
  HeaderStart start;
  // Written by processes: how many are not recorded, and who the first of them are.
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
inline constexpr int64_t kRecorderLock = 0x40000000;  // held as long as somebody records

}  // namespace fracgpu::ring
