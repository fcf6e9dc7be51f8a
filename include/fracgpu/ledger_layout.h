// The ledger's layout: the bytes of `/dev/shm/fracgpu-<tenant>`.
//
// Each tenant has one file. It has one row per device, with the device's cap, and one slot per
// process that uses a GPU. Other tools may map it read-only and read it: check `magic`, `version`
// and `file_bytes`, read every number with one atomic load, and expect numbers to change meanwhile.
//
// The file is sparse. On a full /dev/shm, any access to a page without memory is a SIGBUS, even a
// read through a mapping. A process that needs a part of the file for a new device or slot
// therefore gives it memory before any process may touch it. So walk only devices that are used
// (`for_each_device`) and slots that are claimed (`for_each_live`), or read the file with pread.
//
// All amounts are in units of 512 bytes (`kUnit`), the finest alignment in which a GPU driver hands
// out memory.
//
// Words that the cap depends on are stored multiplied by three, an AN code ("encoded"). Sums and
// differences of such numbers are multiples of three again, so one atomic addition changes them. A
// flipped bit changes a number by a power of two, so every reader detects it.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace fracgpu::layout {

inline constexpr char kFilePrefix[] = "/dev/shm/fracgpu-";
inline constexpr uint64_t kMagic = 0x3155504743415246;  // "FRACGPU1" in memory
// Version of the layout and of the protocol. Processes with different versions must not share a
// file.
inline constexpr uint32_t kVersion = 15;

inline constexpr uint64_t kUnit = 512;
inline constexpr uint32_t kMaxDevices = 128;
inline constexpr uint32_t kMaxSlots = 1024;
// The number of slots that get memory at a time: 12 KiB of slots, and a page of 4 KiB of cells for
// each device.
inline constexpr uint32_t kSlotsPerPage = 64;
static_assert(kSlotsPerPage % 64 == 0, "a word of the bitmaps has memory as a whole");
inline constexpr uint32_t kMaxRefusals = 64;
// The number of known export handles, and of handles in a set; see `Ledger::handles`.
inline constexpr uint32_t kMaxHandles = 2048, kHandlesPerSet = 8;
// The number of listed exports. Of each word of `Slot::imports`, an encoded number, 62 bits count.
inline constexpr uint32_t kExportsPerWord = 62, kImportWords = 16;
inline constexpr uint32_t kMaxExports = kExportsPerWord * kImportWords;

// Longest tenant name and device key ("MIG-" and a UUID are 40 characters), with the final NUL.
inline constexpr uint32_t kNameBytes = 64;

// The largest value of either half of an encoded pair: 682 GiB, more than any device has.
inline constexpr uint64_t kMaxUnits = UINT32_MAX / 3;

// The value of a word that is not a multiple of three, if a larger value is the safe one.
inline constexpr uint64_t kDamaged = uint64_t{1} << 32;

// `cap_units` of a device that the configuration does not cap.
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

// A device that a process of the tenant has used. Rows are appended under the file's lock and never
// move. `key` and its check are complete before `cap` is stored with release order.
struct alignas(64) Device {
  char key[kNameBytes];                // vendor's stable id, e.g. "GPU-…"
  std::atomic<uint64_t> cap;           // encoded units; kNoCap = not capped; 0 = row unused
  uint64_t physical_bytes;             // of the real device
  std::atomic<uint64_t> context_size;  // units that a new context takes; 0 = not yet seen
  std::atomic<uint64_t> peak;          // units; highest sum of `held` seen under the file's lock
  uint64_t key_check;                  // `check_of(key)`
  // The last context sizes that were measured as growth of the device's usage, in units, newest
  // first. Used if there is no other source. A size that was measured twice becomes `context_size`.
  std::atomic<uint64_t> context_samples[3];
};
static_assert(sizeof(Device) == 128);

// What one process has on one device. It has a cache line of its own, because every allocation of
// its process writes it. Other processes write it rarely, to take back unspent lease.
struct alignas(64) Cell {
  // Encoded pair. First: held, the units that are charged. Second: lease, what the process may hold
  // without asking. The cap is hard because the sum over slots of max(held, lease) is never granted
  // above it.
  std::atomic<uint64_t> held_and_lease;
  std::atomic<uint32_t> peak;      // units; highest `held` of this process
  std::atomic<uint32_t> overhead;  // units of `held` that no call requested: contexts and the like
  // Memory that processes share, except for listed exports. Exported memory may outlive its
  // exporter while another process has it imported. Encoded pair. First: exported, units of `held`
  // that others may have imported. Second: imported, units that are charged to others. In an orphan
  // slot: an upper bound of the exporter's orphans, and the units of `held` that are charged for
  // them.
  std::atomic<uint64_t> exported_and_imported;
  // The number of live allocations. The process writes it when it leaves its fast path anyway, so
  // the number may be old. Nothing depends on it. Upper half: unix seconds of the write, 0: never
  // written; lower half: the number.
  std::atomic<uint64_t> time_and_allocations;
  // Encoded: units of `held` that a checkpoint has moved to the host, so that other processes may
  // take as many meanwhile. They count again before the process moves them back.
  std::atomic<uint64_t> parked;
  // Encoded: the imported units whose exporter was not found. They may be of any export.
  std::atomic<uint64_t> unknown_imports;
};
static_assert(sizeof(Cell) == 64);

// The base of `Slot::orphaned` for a living exporter, whose own slot is the number less this.
inline constexpr uint32_t kOrphanedByLiving = 2;

// The process that holds a slot. It is alive while byte `lock_offset(slot)` of the file is locked.
struct alignas(64) Slot {
  std::atomic<uint32_t> host_pid;  // PID in the initial PID namespace; 0 = not known from inside
  uint32_t pid;                    // PID in the process's own PID namespace
  uint64_t pid_namespace;          // inode of that namespace
  uint64_t start_time;             // clock ticks after boot, /proc/<pid>/stat field 22
  uint32_t uid;
  // Not 0: an orphan slot. It is charged for memory that other processes have imported and that its
  // exporter has freed or died with. For exports that are not listed, all orphan slots are charged
  // together, and the distribution over the slots has no meaning. 1: the exporter's own slot, after
  // its death. Otherwise: a second slot of a living exporter; see kOrphanedByLiving.
  std::atomic<uint32_t> orphaned;
  uint64_t claimed_unix_s;
  char command[16];           // /proc/<pid>/comm, NUL-terminated
  uint32_t foreign_importer;  // 1: of another tenant; holds nothing, imports memory of this one
  std::atomic<uint32_t> importing;  // calls under way that may import more than is shown here yet
  // The listed exports that the process has imported: one bit each. Encoded.
  alignas(64) std::atomic<uint64_t> imports[kImportWords];
};
static_assert(sizeof(Slot) == 192);

// A listed export: memory that others import as a whole, if at all. Its number is its place plus 1;
// 0 stands for exports that are not listed: pools whose chunks are not known, and those that found
// no place.
struct Export {
  // Encoded: the device, `mark_of` the exporter's slot, and whether the exporter has freed any of
  // it that descriptors held then.
  std::atomic<uint64_t> exporter;
  // Encoded pair; 0: the place is free. First: exported, units of what the exporter holds. Second:
  // orphaned, units that it has freed or died with, and that other processes have imported.
  std::atomic<uint64_t> exported_and_orphaned;
};
static_assert(sizeof(Export) == 16);

// Why memory was refused. A number never changes its meaning.
enum class Reason : uint32_t {
  cap = 0,      // the cap had no room for it
  driver = 1,   // the cap had room, and the driver had no memory
  runtime = 2,  // the vendor's runtime refused by itself, from the capped size it was given
  ledger = 3,   // nothing can be granted: the ledger is damaged or unusable, or the cap unknown
};
inline constexpr uint32_t kReasons = 4;

// One refusal. Slots and rows are used again, so the record refers to none of them: it stays
// readable after the tenant's processes are gone and others have joined. The counted amounts come
// first, in one cache line. The asking process and the largest holder follow, then names.
struct RefusalRecord {
  uint64_t check;    // `check_of` all bytes behind it; wrong while the record is being written
  uint64_t number;   // of the refusal in this file, from 1
  uint64_t unix_ms;  // wall clock
  uint64_t asked;    // units that the call would have taken; 0: not known
  uint64_t own;      // units that the asking process held on the device
  uint64_t held;     // units that all processes of the tenant held there
  uint64_t cap;      // units, or kNoCap
  uint64_t largest;  // units held by the process that held the most

  Reason reason;
  uint32_t uid;
  uint32_t host_pid;  // 0: not known
  uint32_t pid;
  uint64_t pid_namespace;
  uint64_t start_time;
  uint32_t largest_pid;  // as `host_pid` if that is known, else as `pid`
  uint32_t reserved;
  char largest_command[16];
  char command[16];

  char api[40];          // the function that was called, NUL-terminated
  char key[kNameBytes];  // of the device; empty: not known
  uint64_t asked_bytes;  // what the call requested, if less than `asked`; 0: as `asked`
  uint64_t reserved_too;
};
static_assert(sizeof(RefusalRecord) == 256);
static_assert(offsetof(RefusalRecord, reason) == 64);

// The place of a record. It is written without a lock, word by word, so every reader checks it.
struct RefusalPlace {
  std::atomic<uint64_t> words[sizeof(RefusalRecord) / 8];
};

struct Ledger {
  Header header;
  // Encoded: the end of the slots that may hold anything, so that a sum over cells ends there.
  // Written under the file's lock, from the bitmaps.
  std::atomic<uint64_t> slots_used;
  // Encoded: the number of slots that have memory, and that have memory for their cells of each
  // used device; a multiple of kSlotsPerPage. Grows under the file's lock, before such a slot is
  // claimed.
  std::atomic<uint64_t> slots_backed;
  // Not 0: a recorder records the tenant (recording_ring.h). A recorder changes it to announce
  // itself.
  std::atomic<uint64_t> recording;
  // Not 0: units are or were parked, and sums over cells must subtract them.
  std::atomic<uint64_t> any_parked;
  // The slots that are claimed, perhaps by dead processes, recorded twice: bit set in `live`, or
  // bit clear in `unclaimed`. Either one counts, so that no flipped bit hides a slot.
  alignas(64) std::atomic<uint64_t> live[kMaxSlots / 64];
  std::atomic<uint64_t> unclaimed[kMaxSlots / 64];
  // Written only when memory is refused, so these words have cache lines that no granting process
  // reads. The records in `refused` outlive their processes.
  alignas(64) std::atomic<uint64_t> refusals[kMaxDevices + 1][kReasons];  // last: device not known
  alignas(64) std::atomic<uint64_t> refusal_number;  // the last record's; it is at number - 1 ...
  // Per device: the most units that the tenant's processes needed while a recorder watched, without
  // what their pools could have given back; 0: never recorded. Only `fracgpu record` writes it.
  alignas(64) std::atomic<uint64_t> needed[kMaxDevices];
  // One bit per device: processes that are gone have set its cap, and the next process that uses
  // the device sets its own.
  std::atomic<uint64_t> cap_is_left[kMaxDevices / 64];
  alignas(4096) RefusalPlace refused[kMaxRefusals];  // ... modulo kMaxRefusals
  Device devices[kMaxDevices];
  // Handles by which processes of the tenant let others open their memory: `hash_of_handle`, with
  // the export's number in the low bits. Each is in the set that begins at `handle_set`, newest
  // first. A new handle shifts the others of its set and evicts one, if it can one whose export has
  // ended: a process that finds none does not know what it imports, and any export may stay charged
  // for it. A process of another tenant finds the owner of imported memory here. It is a foreign
  // importer of this tenant while it has such memory.
  std::atomic<uint64_t> handles[kMaxHandles];
  Export exports[kMaxExports];
  alignas(4096) Slot slots[kMaxSlots];
  Cell cells[kMaxDevices][kMaxSlots];
};
static_assert(offsetof(Ledger, slots_used) == 96);
static_assert(offsetof(Ledger, recording) == 112);
static_assert(offsetof(Ledger, any_parked) == 120);
static_assert(offsetof(Ledger, live) == 128);
static_assert(offsetof(Ledger, refusals) == 384);
static_assert(offsetof(Ledger, refusal_number) == 4544);
static_assert(offsetof(Ledger, needed) == 4608);
static_assert(offsetof(Ledger, cap_is_left) == 5632);
static_assert(offsetof(Ledger, refused) == 8192);
static_assert(offsetof(Ledger, devices) == 8192 + 256 * kMaxRefusals);
static_assert(offsetof(Ledger, handles) == offsetof(Ledger, devices) + 128 * kMaxDevices);
static_assert(offsetof(Ledger, exports) == offsetof(Ledger, handles) + 8 * kMaxHandles);
static_assert(offsetof(Ledger, slots) == offsetof(Ledger, exports) + 16 * 1024);
static_assert(offsetof(Ledger, cells) == offsetof(Ledger, slots) + 192 * kMaxSlots);
static_assert(sizeof(Ledger) == offsetof(Ledger, cells) + 64 * kMaxSlots * kMaxDevices);

// The part that has memory from the beginning, at the start of the file: everything except most
// slots and the cells.
inline constexpr size_t kBackedAtFirst = offsetof(Ledger, slots) + kSlotsPerPage * sizeof(Slot);
// The same with one device. A container's /dev/shm may have 64 MiB in total.
inline constexpr size_t kSmallestBacked = kBackedAtFirst + kSlotsPerPage * sizeof(Cell);
static_assert(kSmallestBacked == 88 * 1024);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Bytes of the file that carry locks. Locks are advisory and may be past the end of the file.
inline constexpr int64_t kGrowLock = 0x40000000;  // held while leases, slots or rows change hands
constexpr int64_t lock_offset(uint32_t slot) {
  return kGrowLock + 1 + slot;
}
// Held by the one thread of the slot's process that is taking more than its lease.
constexpr int64_t growing_offset(uint32_t slot) {
  return lock_offset(kMaxSlots) + slot;
}
// Held by the one process that looks for dead processes when several join at once.
inline constexpr int64_t kReapLock = growing_offset(kMaxSlots);

constexpr uint64_t encode(uint64_t number) {
  return number * 3;
}
// The encoded number; above `kLargestEncoded` if the word is not a multiple of three.
constexpr uint64_t decode(uint64_t word) {
  constexpr uint64_t kInverseOfThree = 0xaaaaaaaaaaaaaaab;  // modulo 2^64
  return word * kInverseOfThree;
}
inline constexpr uint64_t kLargestEncoded = UINT64_MAX / 3;
constexpr bool is_codeword(uint64_t word) {
  return decode(word) <= kLargestEncoded;
}

// Encoded pairs. Neither half may exceed `kMaxUnits`.
constexpr uint64_t pack(uint64_t first, uint64_t second) {
  return encode(first << 32 | second);
}
constexpr uint64_t first_of(uint64_t word) {
  return is_codeword(word) ? decode(word) >> 32 : kDamaged;
}
constexpr uint64_t second_of(uint64_t word, uint64_t if_damaged) {
  return is_codeword(word) ? decode(word) & 0xffffffffu : if_damaged;
}

// The halves of a cell's word. A damaged word counts as fully held and grants nothing.
constexpr uint64_t held_of(uint64_t word) {
  return first_of(word);
}
constexpr uint64_t lease_of(uint64_t word) {
  return second_of(word, 0);
}
// The amount by which a cell reduces what can still be granted.
constexpr uint64_t claim_of(uint64_t word) {
  return held_of(word) > lease_of(word) ? held_of(word) : lease_of(word);
}

// Amounts of a cell without the parked units. A damaged `parked` parks nothing.
inline uint64_t less_parked(uint64_t units, const Cell& cell, std::memory_order order) {
  const uint64_t word = cell.parked.load(order);
  const uint64_t parked = is_codeword(word) ? decode(word) : 0;
  return units - (parked < units ? parked : units);
}
inline uint64_t held_now(const Cell& cell, std::memory_order order = std::memory_order_relaxed) {
  return less_parked(held_of(cell.held_and_lease.load(order)), cell, order);
}
inline uint64_t claimed_now(const Cell& cell, std::memory_order order) {
  return less_parked(claim_of(cell.held_and_lease.load(order)), cell, order);
}

// The halves of a cell's `exported_and_imported`.
constexpr uint64_t exported_of(uint64_t word) {
  return first_of(word);
}
constexpr uint64_t imported_of(uint64_t word) {
  return second_of(word, kDamaged);
}

// The cap of a device's word. A damaged cap is 0, so nothing can be taken under it.
constexpr uint64_t cap_units(uint64_t word) {
  if (word == kNoCap) return kNoCap;
  return is_codeword(word) ? decode(word) : 0;
}

inline bool is_used(const Device& row) {
  return row.cap.load(std::memory_order_acquire) != 0;
}

// The number of slots that have memory; all slots if that number is damaged.
inline uint32_t slots_backed(const Ledger& ledger) {
  const uint64_t number = decode(ledger.slots_backed.load(std::memory_order_seq_cst));
  const bool sound = number >= kSlotsPerPage && number <= kMaxSlots;
  return sound ? static_cast<uint32_t>(number) : kMaxSlots;
}

// The number of slots that a sum over cells visits; all that have memory if that number is damaged.
inline uint32_t slots_used(const Ledger& ledger) {
  const uint64_t number = decode(ledger.slots_used.load(std::memory_order_relaxed));
  return number < kMaxSlots ? static_cast<uint32_t>(number) : slots_backed(ledger);
}

// A listed export's exporter and device, and what the pair's halves mean.
constexpr uint64_t exporter_word(int device, uint32_t mark) {
  return encode(uint64_t{static_cast<uint32_t>(device)} << 32 | mark);
}
inline uint32_t device_of(const Export& row) {
  return static_cast<uint32_t>(decode(row.exporter.load()) >> 32);
}
inline constexpr uint32_t kIsFreed = uint32_t{1} << 31;  // no mark has this bit
inline uint32_t exporter_of(const Export& row) {
  return static_cast<uint32_t>(decode(row.exporter.load())) & ~kIsFreed;
}
inline bool is_freed(const Export& row) {
  return (decode(row.exporter.load()) & kIsFreed) != 0;
}
inline uint64_t exported_of(const Export& row) {
  return first_of(row.exported_and_orphaned.load());
}
inline uint64_t orphaned_of(const Export& row) {
  return second_of(row.exported_and_orphaned.load(), kDamaged);
}
inline bool is_free(const Export& row) {
  return row.exported_and_orphaned.load() == 0;
}
inline bool is_sound(const Export& row) {
  return is_codeword(row.exported_and_orphaned.load()) &&
         (is_free(row) || is_codeword(row.exporter.load()));
}

// Whether the slot's process has imported a listed export. A damaged word stands for all of them.
constexpr uint64_t import_bit(uint32_t number) {
  return encode(uint64_t{1} << ((number - 1) % kExportsPerWord));
}
inline bool has_imported(const Slot& slot, uint32_t number) {
  const uint64_t word = slot.imports[(number - 1) / kExportsPerWord].load();
  return !is_codeword(word) || (decode(word) >> ((number - 1) % kExportsPerWord) & 1) != 0;
}

inline bool has_imported_any(const Slot& slot) {
  bool any = false;
  for (const auto& word : slot.imports) any = any || word.load() != 0;
  return any;
}

// Calls visit(uint32_t number, const Export&) for each listed export.
template <typename Visit>
void for_each_export(const Ledger& ledger, Visit visit) {
  for (uint32_t i = 0; i < kMaxExports; ++i) {
    if (!is_free(ledger.exports[i])) visit(i + 1, ledger.exports[i]);
  }
}

// What the slot's process has imported on the device, in units.
inline uint64_t imported_by(const Ledger& ledger, int device, uint32_t slot) {
  uint64_t sum = imported_of(ledger.cells[device][slot].exported_and_imported.load());
  if (!has_imported_any(ledger.slots[slot])) return sum;
  for_each_export(ledger, [&](uint32_t number, const Export& row) {
    if (device_of(row) == static_cast<uint32_t>(device) && has_imported(ledger.slots[slot], number))
      sum += exported_of(row) + orphaned_of(row);
  });
  return sum;
}

// An upper bound of what the slot's process has imported on the device of exports that are not
// listed, in units.
inline uint64_t most_imported(const Ledger& ledger, int device, uint32_t slot) {
  // Read first: a call that is no longer under way is already in the sum.
  const uint64_t under_way = ledger.slots[slot].importing.load() != 0 ? kMaxUnits : 0;
  return under_way + imported_of(ledger.cells[device][slot].exported_and_imported.load());
}

// The claimed ones of 64 slots, from both bitmaps.
inline uint64_t claimed_slots(const Ledger& ledger, uint32_t word, std::memory_order order) {
  return ledger.live[word].load(order) | ~ledger.unclaimed[word].load(order);
}

// Calls visit(uint32_t slot) for each claimed slot. Sequentially consistent, because a process must
// count itself in before it counts the others.
template <typename Visit>
void for_each_live(const Ledger& ledger, Visit visit) {
  const uint32_t backed = slots_backed(ledger);
  for (uint32_t i = 0; i < backed / 64; ++i) {
    for (uint64_t bits = claimed_slots(ledger, i, std::memory_order_seq_cst); bits != 0;
         bits &= bits - 1) {
      visit(i * 64 + static_cast<uint32_t>(std::countr_zero(bits)));
    }
  }
}

// Calls visit(uint32_t device) for each device that is used.
template <typename Visit>
void for_each_device(const Ledger& ledger, Visit visit) {
  for (uint32_t i = 0; i < kMaxDevices; ++i) {
    if (is_used(ledger.devices[i])) visit(i);
  }
}

// FNV-1a.
constexpr uint64_t check_of(const char* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3;
  }
  return hash;
}
constexpr uint64_t check_of(const char (&key)[kNameBytes]) {
  return check_of(key, kNameBytes);
}
// A handle's place keeps the upper bits of its hash, and the export's number below.
inline constexpr uint64_t kNumberMask = 0x7ff;
static_assert(kMaxExports <= kNumberMask);
inline uint64_t hash_of_handle(const void* handle, size_t size) {
  const uint64_t hash = check_of(static_cast<const char*>(handle), size) & ~kNumberMask;
  return hash != 0 ? hash : ~kNumberMask;  // 0 is an empty place
}
constexpr uint32_t handle_set(uint64_t hash) {
  return (hash / (kNumberMask + 1)) % (kMaxHandles / kHandlesPerSet) * kHandlesPerSet;
}
using Handles = std::atomic<uint64_t>[kMaxHandles];
constexpr bool is_handle(uint64_t word, uint64_t hash) {
  return (word & ~kNumberMask) == hash;
}
constexpr uint32_t number_of_handle(uint64_t word) {
  return static_cast<uint32_t>(word & kNumberMask);
}
// Evicts the oldest handle whose number is not `is_listed(uint32_t number)`, or else the oldest.
// Two concurrent calls for the same set may evict a handle too early. A concurrent reader that
// starts at the beginning of the set misses no handle, because the shift starts behind them, or at
// the handle itself.
template <typename IsListed>
void enter_handle(Handles& handles, uint64_t hash, uint32_t number, IsListed is_listed) {
  std::atomic<uint64_t>* const set = &handles[handle_set(hash)];
  uint32_t evicted = kHandlesPerSet - 1;
  for (uint32_t i = 0; i < kHandlesPerSet; ++i) {
    if (!is_listed(number_of_handle(set[i].load()))) evicted = i;
  }
  for (uint32_t i = 0; i < kHandlesPerSet; ++i) {
    if (is_handle(set[i].load(), hash)) evicted = i;
  }
  for (uint32_t i = evicted; i > 0; --i) set[i].store(set[i - 1].load());
  set[0].store(hash | number);
}
// The newest handle's export; see `Ledger::handles`.
inline std::optional<uint32_t> find_handle(const Handles& handles, uint64_t hash) {
  const std::atomic<uint64_t>* const set = &handles[handle_set(hash)];
  for (uint32_t i = 0; i < kHandlesPerSet; ++i) {
    const uint64_t word = set[i].load();
    if (is_handle(word, hash)) return number_of_handle(word);
  }
  return {};
}
// Distinguishes the process that claimed a slot from other processes, living and dead: 31 bits.
inline constexpr int kSlotShift = 21;
inline uint32_t mark_of(const Slot& slot, uint32_t number) {
  constexpr uint32_t kMask = (uint32_t{1} << kSlotShift) - 1;
  return number << kSlotShift | ((slot.pid ^ static_cast<uint32_t>(slot.start_time)) & kMask);
}
constexpr uint32_t slot_of(uint32_t mark) {
  return mark >> kSlotShift & (kMaxSlots - 1);
}
// Distinguishes a tenant's ledger from others', also from earlier ledgers of the same name.
inline constexpr uint32_t kMarkBits = 30;
inline uint32_t mark_of(const Header& header) {
  const uint64_t check = check_of(reinterpret_cast<const char*>(&header), sizeof header);
  return static_cast<uint32_t>(check >> (64 - kMarkBits));
}
inline uint64_t check_of(const RefusalRecord& record) {
  const char* const bytes = reinterpret_cast<const char*>(&record);
  return check_of(bytes + sizeof record.check, sizeof record - sizeof record.check);
}

// False if the place has no complete and undamaged record.
inline bool read_refusal(const RefusalPlace& place, RefusalRecord& record) {
  uint64_t words[sizeof record / 8];
  for (size_t i = 0; i < sizeof record / 8; ++i) {
    words[i] = place.words[i].load(std::memory_order_relaxed);
  }
  memcpy(&record, words, sizeof record);
  return record.number != 0 && record.check == check_of(record);
}

constexpr uint64_t units_for(uint64_t bytes) {
  return bytes / kUnit + (bytes % kUnit != 0);
}

}  // namespace fracgpu::layout
