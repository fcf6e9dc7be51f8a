// Finds the tenant's ring, appends to it, and describes what records refer to; see recorder.h.
#include "shim/recording/recorder.h"

#include <alloca.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "shim/base/byte_lock.h"
#include "shim/base/call_stack.h"
#include "shim/base/descriptor.h"
#include "shim/base/elf.h"
#include "shim/base/fork_page.h"
#include "shim/base/frame_rules.h"
#include "shim/base/hash_table.h"
#include "shim/base/shared_file.h"
#include "shim/base/spin_lock.h"
#include "shim/base/unforked.h"

namespace fracgpu {

using ring::kRecords;
using ring::Record;
using ring::Type;

namespace {

constexpr uint32_t kStacks = 1u << 16, kApis = 256, kLevels = 256, kModules = 1024;

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

[[gnu::tls_model("initial-exec")]] thread_local uint32_t own_thread = 0;
[[gnu::tls_model("initial-exec")]] thread_local uint32_t own_generation = 0;

// A system call for the first record of a thread. A forked child's threads have other numbers.
uint32_t thread_number() {
  const uint32_t generation = fork_generation() + 1;
  if (own_generation != generation) {
    own_thread = static_cast<uint32_t>(syscall(SYS_gettid));
    own_generation = generation;
  }
  return own_thread;
}

// Another user's file would get all records, and could be truncated under the mapping.
bool is_trusted(int fd) {
  struct statx status;
  return statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) == 0 &&
         S_ISREG(status.stx_mode) && status.stx_size == sizeof(ring::File) &&
         (status.stx_uid == geteuid() || status.stx_uid == 0);
}

uint64_t free_bytes(int fd) {
  struct statvfs status;
  if (fstatvfs(fd, &status) != 0) return 0;
  return uint64_t{status.f_bavail} * status.f_frsize;
}

// Gives the ring's places memory, unless an earlier process of the slot has. Returns their number;
// 0: there is no room. The rest of /dev/shm is left to the program.
uint32_t back_ring(int fd, size_t offset, ring::Ring& ring) {
  constexpr size_t kPlaces = offsetof(ring::Ring, places);
  const uint32_t there = ring.records.load(std::memory_order_acquire);
  if (there != 0) return ring::is_ring_size(there) ? there : 0;
  const uint64_t most = free_bytes(fd) / 64;
  uint32_t records = kRecords;
  while (records > ring::kFewestRecords && records * sizeof(ring::Place) > most) records /= 2;
  if (back_shared_file(fd, offset + kPlaces, records * sizeof(ring::Place)) != 0) return 0;
  ring.records.store(records, std::memory_order_release);
  return records;
}

void count_unrecorded(int fd, const ProcessIdentity& self) {
  void* const bytes =
      mmap(nullptr, sizeof(ring::Header), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (bytes == MAP_FAILED) return;
  auto& header = *static_cast<ring::Header*>(bytes);
  ring::Unrecorded entry = {.pid = self.pid, .host_pid = self.host_pid, .command = {}};
  memcpy(entry.command, self.command, sizeof entry.command);
  const uint32_t number = header.unrecorded_count.fetch_add(1, std::memory_order_relaxed);
  if (number < ring::kMostUnrecorded) header.unrecorded[number] = entry;
  munmap(bytes, sizeof(ring::Header));
}

}  // namespace

// One recording, and what this process has described in it. Mapped when it begins: 1 MiB, of which
// unused pages take no memory.
struct Recorder::Recording {
  ring::Ring* ring;
  uint32_t records;     // places of the ring
  uint32_t frames;      // the most to take of a call stack
  SpinLock describing;  // held while a stack, a module or a name is described
  // Entries are added with `describing` held, and never change.
  std::atomic<uint32_t> module_count;
  struct Module {
    uint64_t begin, end, base;
  };
  Module modules[kModules];
  // Hash tables of open addressing. A number is a place + 1, so only the hash is kept.
  std::atomic<uint64_t> stacks[kStacks];
  std::atomic<const char*> apis[kApis];
  // The levels that were reported last, by a hash of the owner and the amount.
  std::atomic<uint64_t> levels[kLevels];
  // Slots that living processes had claimed at the last check, and those of processes reported
  // dead.
  std::atomic<uint64_t> living[layout::kMaxSlots / 64], dead[layout::kMaxSlots / 64];
  std::atomic<uint64_t> looked_ns;  // when the kernel was last asked
  FrameRules rules;

  Recording* next_ended;  // in Recorder::ended_
  static Recording* make(int fd, uint32_t slot, uint32_t frames);
  void unmap();
  bool begin(uint32_t slot, const ProcessIdentity& self, bool late);
  uint64_t claim(uint64_t count);
  void write(uint64_t at, const Record& record);
  bool is_news(const Record& level);
  bool is_full() const;
  void append(const Record& record);
  bool append_text(Type type, uint32_t number, const void* text, size_t size);
  uint32_t number_of_stack();
  uint32_t number_of_api(const char* api);
  uint64_t frame_at(uint64_t address) const;
  const Module* module_at(uint64_t address) const;
  void describe_module_at(uint64_t address);
};

// While it lives, the recording stays mapped. Null without one.
class Recorder::Use {
 public:
  explicit Use(Recorder& recorder) : recorder_(recorder) {
    if (!recorder.is_on()) return;
    recorder.users_.fetch_add(1);
    recording_ = recorder.recording_.load();
    if (recording_ == nullptr) recorder.users_.fetch_sub(1);  // it has ended meanwhile
  }
  ~Use() {
    if (recording_ != nullptr) recorder_.users_.fetch_sub(1, std::memory_order_release);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Recording* get() const { return recording_; }

 private:
  Recorder& recorder_;
  Recording* recording_ = nullptr;
};

// A thread that counts itself among the users after the exchange finds no recording.
void Recorder::stop() {
  Locked<SleepLock> lock(starting_);
  Recording* const ended = recording_.exchange(nullptr);
  if (ended != nullptr) {
    ended->next_ended = ended_;
    ended_ = ended;
  }
  while (ended_ != nullptr && users_.load() == 0) {
    Recording* const unused = ended_;
    ended_ = unused->next_ended;
    unused->unmap();
  }
}

bool Recorder::start(std::string_view tenant, uint32_t slot, const ProcessIdentity& self,
                     bool late) {
  Locked<SleepLock> lock(starting_);
  if (is_on()) return false;
  Text<128> path;
  path.format("{}{}", ring::kFilePrefix, tenant);
  // Held until a child would not get the ring, which stays as long as it is mapped.
  const Unforked section;
  const int fd = open_own(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  ring::HeaderStart header = {};
  Recording* recording = nullptr;
  if (is_trusted(fd) && read_own_at(fd, &header, sizeof header, 0) == sizeof header &&
      header.magic == ring::kMagic && header.version == ring::kVersion &&
      byte_is_locked(fd, ring::kRecorderLock)) {
    recording = Recording::make(fd, slot, header.frames);
    if (recording != nullptr && !recording->begin(slot, self, late)) {
      recording->unmap();
      recording = nullptr;
    }
    if (recording == nullptr) count_unrecorded(fd, self);
  }
  close_own(fd);
  recording_.store(recording, std::memory_order_release);
  return recording != nullptr;
}

// Null if there is no room for the ring, or no memory.
Recorder::Recording* Recorder::Recording::make(int fd, uint32_t slot, uint32_t frames) {
  const auto offset = offsetof(ring::File, rings) + slot * sizeof(ring::Ring);
  if (back_shared_file(fd, offset, offsetof(ring::Ring, places)) != 0) return nullptr;
  void* const bytes = mmap(nullptr, sizeof(ring::Ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                           static_cast<off_t>(offset));
  if (bytes == MAP_FAILED) return nullptr;
  // A child has a slot, and a ring, of its own.
  madvise(bytes, sizeof(ring::Ring), MADV_DONTFORK);
  auto* const ring = static_cast<ring::Ring*>(bytes);
  const uint32_t records = back_ring(fd, offset, *ring);
  void* const memory = records == 0 ? MAP_FAILED
                                    : mmap(nullptr, sizeof(Recording), PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    munmap(bytes, sizeof(ring::Ring));
    return nullptr;
  }
  auto* const recording = static_cast<Recording*>(memory);
  recording->ring = ring;
  recording->records = records;
  recording->frames = std::min(frames, ring::kMostFrames);
  return recording;
}

void Recorder::Recording::unmap() {
  munmap(ring, sizeof(ring::Ring));
  munmap(this, sizeof(Recording));
}

// Describes the process. False if the ring is still full of an earlier process's records.
bool Recorder::Recording::begin(uint32_t slot, const ProcessIdentity& self, bool late) {
  if (ring->end - ring->begin > records) return false;  // no process of ours wrote that
  // Records that an earlier owner of the slot had begun, before it was killed.
  for (uint64_t at = ring->begin; at < ring->end; ++at) {
    ring::Place& place = ring->places[at % records];
    if (place.stamp.load(std::memory_order_acquire) == at + 1) continue;
    place.record.type = Type::nothing;
    place.stamp.store(at + 1, std::memory_order_release);
  }
  ring::ProcessText text = {.pid = self.pid,
                            .host_pid = self.host_pid,
                            .start_time = self.start_time,
                            .pid_namespace = self.pid_namespace,
                            .began_ns = now_ns(),
                            .began_late = late};
  static_assert(sizeof text.command == sizeof self.command);
  memcpy(text.command, self.command, sizeof text.command);
  return append_text(Type::process, slot, &text, sizeof text);
}

void Recorder::add_device(int device_index, const char* key, uint64_t physical, uint64_t cap) {
  const Use use(*this);
  Recording* const recording = use.get();
  if (recording == nullptr) return;
  ring::DeviceText text = {.physical = physical, .cap = cap};
  strncpy(text.key, key, sizeof text.key - 1);
  recording->append_text(Type::device, static_cast<uint32_t>(device_index), &text, sizeof text);
}

// A process that ends while this one goes on is found by the kernel's lock of its slot, which is
// probed at most every millisecond. A process whose memory this one has got is found by its slot,
// which is free by then.
void Recorder::look_for_ends(const Ledger& ledger) {
  constexpr uint64_t kInterval_ns = 1'000'000;
  const Use use(*this);
  Recording* const recording = use.get();
  if (recording == nullptr) return;
  const uint64_t now = now_ns();
  int fd = -1;
  if (now - recording->looked_ns.load(std::memory_order_relaxed) >= kInterval_ns) {
    recording->looked_ns.store(now, std::memory_order_relaxed);
    fd = open_own(ledger.path(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  }
  const uint32_t words = layout::slots_backed(*ledger.map()) / 64;
  for (uint32_t word = 0; word < words; ++word) {
    const uint64_t claimed = layout::claimed_slots(*ledger.map(), word, std::memory_order_acquire);
    uint64_t dead = recording->dead[word].load(std::memory_order_relaxed) & claimed;
    uint64_t gone = recording->living[word].load(std::memory_order_relaxed) & ~claimed;
    for (uint64_t bits = fd >= 0 ? claimed : 0; bits != 0; bits &= bits - 1) {
      const uint64_t bit = bits & (0 - bits);
      const auto slot = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      const bool is_dead = !LedgerFile::slot_is_alive(fd, slot);
      if (is_dead) gone |= bit & ~dead;
      dead = is_dead ? dead | bit : dead & ~bit;
    }
    recording->dead[word].store(dead, std::memory_order_relaxed);
    recording->living[word].store(claimed & ~dead, std::memory_order_relaxed);
    for (; gone != 0; gone &= gone - 1) {
      const auto slot = word * 64 + static_cast<uint32_t>(std::countr_zero(gone));
      recording->append({.type = Type::ended, .time_ns = now, .owner = slot});
    }
  }
  if (fd >= 0) close_own(fd);
}

void Recorder::leave() {
  add({.type = Type::leaving});
}

void Recorder::add(Record record, const char* api) {
  const Use use(*this);
  Recording* const recording = use.get();
  if (recording == nullptr) return;
  // First, so that a full ring costs nothing if no recorder takes records out any more.
  if (recording->is_full()) {
    recording->ring->missed.fetch_add(1, std::memory_order_release);
    return;
  }
  if (record.type == Type::level && !recording->is_news(record)) return;
  record.thread = thread_number();
  if (api != nullptr) record.api = recording->number_of_api(api);
  // Memory from before the recording was made by other calls than this one.
  const bool is_call = api != nullptr;
  if (recording->frames > 0 && is_call &&
      (record.type == Type::allocated || record.type == Type::refused)) {
    record.stack = recording->number_of_stack();
  }
  record.time_ns = now_ns();
  recording->append(record);
}

// Claims places for `count` consecutive records; returns their position, or UINT64_MAX.
uint64_t Recorder::Recording::claim(uint64_t count) {
  uint64_t at = ring->end.load(std::memory_order_relaxed);
  do {
    if (at + count - ring->begin.load(std::memory_order_acquire) > records) return UINT64_MAX;
  } while (!ring->end.compare_exchange_weak(at, at + count, std::memory_order_relaxed));
  return at;
}

void Recorder::Recording::write(uint64_t at, const Record& record) {
  ring::Place& place = ring->places[at % records];
  // The previous writer of this place was done before the recorder took its record out, and `claim`
  // has seen that. The load repeats it in this process, where a thread sanitizer sees it.
  [[maybe_unused]] const uint64_t lap_before = place.stamp.load(std::memory_order_acquire);
  place.record = record;
  place.stamp.store(at + 1, std::memory_order_release);
}

// Pools are queried before and after each call, and rarely change. Two levels that share a place
// are reported more often than necessary.
bool Recorder::Recording::is_news(const Record& level) {
  const uint64_t whose = hash_of(level.owner << 8 ^ static_cast<uint64_t>(level.kind));
  const uint64_t told = hash_of(whose ^ level.taken) | 1;
  return levels[whose % kLevels].exchange(told, std::memory_order_relaxed) != told;
}

bool Recorder::Recording::is_full() const {
  return ring->end.load(std::memory_order_relaxed) - ring->begin.load(std::memory_order_relaxed) >=
         records;
}

void Recorder::Recording::append(const Record& record) {
  const uint64_t at = claim(1);
  if (at == UINT64_MAX) {
    ring->missed.fetch_add(1, std::memory_order_release);
  } else {
    write(at, record);
  }
}

bool Recorder::Recording::append_text(Type type, uint32_t number, const void* text, size_t size) {
  const uint64_t parts = (size + ring::kPartBytes - 1) / ring::kPartBytes;
  const uint64_t at = claim(parts);
  if (at == UINT64_MAX) return false;
  for (uint64_t part = 0; part < parts; ++part) {
    const size_t begin = part * ring::kPartBytes;
    Record record{.type = type,
                  .thread = static_cast<uint32_t>(part),
                  .stack = number,
                  .api = static_cast<uint32_t>(size)};
    memcpy(reinterpret_cast<char*>(&record) + offsetof(Record, time_ns),
           static_cast<const char*>(text) + begin, std::min(size - begin, ring::kPartBytes));
    write(at + part, record);
  }
  return true;
}

uint32_t Recorder::Recording::number_of_api(const char* api) {
  auto at = static_cast<uint32_t>(reinterpret_cast<uint64_t>(api) * 0x9e3779b97f4a7c15 >> 56);
  for (uint32_t tries = 0; tries < kApis; ++tries, at = (at + 1) % kApis) {
    const char* there = apis[at].load(std::memory_order_acquire);
    if (there == nullptr) {
      Locked<SpinLock> lock(describing);
      there = apis[at].load(std::memory_order_relaxed);
      if (there == nullptr) {
        if (!append_text(Type::api, at + 1, api, std::min(strlen(api), ring::kMostText))) return 0;
        apis[at].store(api, std::memory_order_release);
        return at + 1;
      }
    }
    if (there == api) return at + 1;
  }
  return 0;
}

const Recorder::Recording::Module* Recorder::Recording::module_at(uint64_t address) const {
  const Module* const end = modules + module_count.load(std::memory_order_acquire);
  const Module* const found = std::find_if(modules, end, [&](const Module& module) {
    return address >= module.begin && address < module.end;
  });
  return found != end ? found : nullptr;
}

// An object that was loaded in the place of an earlier one is taken for that one. The loader is
// asked without our lock: a constructor that the loader runs may be waiting for the lock.
void Recorder::Recording::describe_module_at(uint64_t address) {
  const elf::Loaded object = elf::find_object([&](const elf::Loaded& each) {
    return each.contains(reinterpret_cast<const void*>(address));
  });
  if (object.dynamic == nullptr) return;
  Text<512> text;
  for (const char byte : elf::build_id_of(object)) {
    text.append("{:02x}", static_cast<unsigned char>(byte));
  }
  text.append("{}", '\0');
  char program[256] = "";
  if (*object.path == '\0' && readlink("/proc/self/exe", program, sizeof program - 1) < 0) {
    program[0] = '\0';
  }
  text.append("{}", *object.path == '\0' ? program : object.path);

  Locked<SpinLock> lock(describing);
  const uint32_t count = module_count.load(std::memory_order_relaxed);
  if (count == kModules || module_at(address) != nullptr ||
      !append_text(Type::module, count + 1, text.c_str(), text.size())) {
    return;
  }
  modules[count] = {object.begin, object.end, object.base};
  module_count.store(count + 1, std::memory_order_release);
}

// The module of an address, and the offset in its file.
uint64_t Recorder::Recording::frame_at(uint64_t address) const {
  const Module* const module = module_at(address);
  if (module == nullptr) return ring::frame_of(ring::kNoModule, address);
  return ring::frame_of(static_cast<uint64_t>(module - modules) + 1, address - module->base);
}

uint32_t Recorder::Recording::number_of_stack() {
  if (take_call_stack == nullptr) return 0;
  // A thread's stack may be small, so this takes no more of it than is asked for.
  auto* const addresses = static_cast<uint64_t*>(alloca((frames + 1) * sizeof(uint64_t)));
  const unsigned taken = take_call_stack(addresses, frames + 1, &rules);
  if (taken == 0) return 0;
  const bool is_cut = taken > frames;
  const unsigned count = std::min(taken, frames);
  uint64_t hash = taken;
  for (unsigned i = 0; i < count; ++i) {
    hash = (hash ^ addresses[i]) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  hash |= 1;  // 0 is an empty place
  uint32_t at = static_cast<uint32_t>(hash >> 48) % kStacks;
  // Does not search a full table for long: most programs have thousands of places at most.
  constexpr uint32_t kTries = 256;
  for (uint32_t tries = 0; tries < kTries; ++tries, at = (at + 1) % kStacks) {
    uint64_t there = stacks[at].load(std::memory_order_acquire);
    if (there == 0) {
      // Uses the address of the call: the return address may be the beginning of another function.
      for (unsigned i = 0; i < count; ++i) {
        if (module_at(addresses[i] - 1) == nullptr) describe_module_at(addresses[i] - 1);
      }
      Locked<SpinLock> lock(describing);
      there = stacks[at].load(std::memory_order_relaxed);
      if (there == 0) {
        for (unsigned i = 0; i < count; ++i) addresses[i] = frame_at(addresses[i] - 1);
        if (is_cut) addresses[count] = ring::kCutFrame;
        if (!append_text(Type::stack, at + 1, addresses, taken * sizeof addresses[0])) return 0;
        stacks[at].store(hash, std::memory_order_release);
        return at + 1;
      }
    }
    if (there == hash) return at + 1;
  }
  return 0;
}

}  // namespace fracgpu
