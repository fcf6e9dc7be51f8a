// The content of a recording: events, and the tables that they refer to.
//
// Three sums follow from the events of a device, at every moment and for every process:
//   taken    memory taken of the device: `taken` of all live memory, and the last of each level
//   live     memory that the program requested and has not released: `bytes` of all live memory
//   needed   taken, less the memory that pools hold and could give back (see Analysis)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fracgpu::recording {

// The numbers are part of the file format: they must never get another meaning.
enum class EventType : uint8_t {
  allocated = 1,  // memory was allocated
  released = 2,   // it is gone; `bytes`, `taken`, `kind`, `owner`, `stack` are those of `allocated`
  level = 3,      // memory of `kind` and `owner` that belongs to no single call is `taken` from now
  refused = 4,  // `bytes` requested, which would have taken `taken`; `held` and `cap` at that time
  dropped = 5,  // `bytes`: so many events of the process are missing before this one
  cap = 6,      // the device's cap is `cap` from now on
  ended = 7,    // the process is gone, and its memory with it. `bytes`: kExited ...
  mark = 8,     // `api` names the event: a call that made a context, or loaded code of `bytes`
};

// How a process ended, in `bytes` of EventType::ended. In recordings made before fracgpu
// distinguished signals, kNoHandlers stands for all processes that did not exit.
inline constexpr uint64_t kExited = 0;      // by exit, whose handlers ran
inline constexpr uint64_t kNoHandlers = 1;  // by _exit or by a signal: not known which
inline constexpr uint64_t kByExitCall = 2;  // by _exit
inline constexpr uint64_t kByExec = 3;      // by exec: its PID continues as another program
inline constexpr uint64_t kBySignal = 256;  // plus the signal's number

enum class MemoryKind : uint8_t {
  linear = 0,   // cuMemAlloc and its like, hipMalloc
  managed = 1,  // cuMemAllocManaged, hipMallocManaged
  pool = 2,     // allocation from a pool: `taken` is 0, the pool's level takes; `owner` is the pool
  physical = 3,   // cuMemCreate and its like
  array = 4,      // arrays and mipmaps
  chunks = 5,     // level: chunks and blocks that small allocations share
  reserved = 6,   // level: memory that a pool has reserved; `owner` is the pool
  graph = 7,      // level: memory that graphs have reserved
  overhead = 8,   // level: contexts, code, local memory, the runtime: no explicit request
  code = 9,       // level: code whose size is known
  imported = 10,  // memory of another process: takes nothing here
  unknown = 11,   // level: the ledger's excess over the events, after events were dropped
};
inline constexpr int kMemoryKinds = 12;

// As layout::Reason in the ledger.
enum class RefusalReason : uint8_t { cap = 0, driver = 1, runtime = 2, ledger = 3 };

inline constexpr uint32_t kNone = UINT32_MAX;

struct Event {
  EventType type = EventType::mark;
  MemoryKind kind = MemoryKind::linear;
  RefusalReason reason = RefusalReason::cap;
  uint32_t process = kNone;  // index in Tables::processes
  uint32_t device = kNone;   // index in Tables::devices; kNone: not known
  uint32_t thread = 0;       // kernel's thread id, in the process's own namespace
  uint32_t api = 0;          // index in Tables::texts; 0: not known
  uint32_t stack = 0;        // index in Tables::stacks; 0: no stack was taken
  uint64_t time_ns = 0;      // since the recording began; hardly ever less than the event before
  uint64_t bytes = 0;
  uint64_t taken = 0;  // bytes
  uint64_t owner = 0;  // pool, or context: a number that is unique within its process only
  uint64_t address = 0;
  uint64_t held = 0, cap = 0;  // bytes; only for `refused` and `cap`
  bool operator==(const Event&) const = default;
};

struct ProcessInfo {
  uint32_t pid = 0;       // in its own PID namespace
  uint32_t host_pid = 0;  // 0: not known
  std::string command;    // its name, as in /proc/PID/comm
  uint64_t began_ns = 0;
  bool operator==(const ProcessInfo&) const = default;
};

struct DeviceInfo {
  std::string key;        // "GPU-…", as the ledger names it
  std::string name;       // for people: "GPU 0 (NVIDIA H100 80GB)"; may be empty
  uint64_t physical = 0;  // bytes
  uint64_t cap = 0;       // bytes, at the start of the recording
  bool operator==(const DeviceInfo&) const = default;
};

// A file with code that a process has loaded.
struct ModuleInfo {
  std::string path;      // as the process saw it; "": anonymous memory (just-in-time compiler)
  std::string build_id;  // hexadecimal; empty: none
  bool operator==(const ModuleInfo&) const = default;
};

struct Frame {
  uint32_t module = kNone;  // index in Tables::modules; kNone: not known
  uint64_t offset = 0;      // address of the call, as in the file's own program headers
  uint32_t name = 0;        // index in Tables::texts if the recorder knew it (JIT); else 0
  bool operator==(const Frame&) const = default;
};

// The innermost frame first.
using Stack = std::vector<Frame>;

// Entries are only added. texts[0] is empty, stacks[0] is the empty stack.
struct Tables {
  std::vector<ProcessInfo> processes;
  std::vector<DeviceInfo> devices;
  std::vector<ModuleInfo> modules;
  std::vector<std::string> texts{""};
  std::vector<Stack> stacks{{}};
};

struct Header {
  uint64_t began_unix_ns = 0;
  std::string command;  // the recorded command, as typed
  std::string host;
  std::string tool_version;
  bool stacks = false;    // whether call stacks were taken
  bool attached = false;  // processes were already running: their earlier memory has no stack
};

}  // namespace fracgpu::recording
