// Ledger Protocol
//
// A device's cap is a quota that the processes of a tenant share. The ledger is a file that all of
// them map (fracgpu/ledger_layout.h). It is a table of per-process quota leases:
//
// - Each process claims one slot, and has in it one cell per device. A cell is one word with two
//   numbers: what the process holds, and its lease, which is what it may hold without asking.
// - Fast path: within the lease, reserving and releasing are one compare-and-swap on the process's
//   own cell. Nobody else's cache line is touched.
// - Slow path: to take more than its lease, a process adds the units to its own cell and then sums
//   everybody's claims, a claim being the larger of held and lease. Where that exceeds the cap it
//   takes unspent leases back from others, or its own units out again. Adding comes before summing
//   everywhere, so of two that do this at once the later one sees the earlier one's units.
// - Leases grow, slots are claimed, devices are added, caps change and the dead are reaped under an
//   OFD lock on one byte of the file. Without that lock, because its holder is stopped or this
//   process has no descriptor free, it may still take what nobody claims, but no lease grows.
// - Liveness: a process holds an OFD lock on its slot's byte through a mapping. The kernel drops it
//   when the process ends in whatever way. Then anybody may reap: zero the cells, free the slot.
// - Memory: the file is sparse. What a device or 64 more slots need is given memory, and zeroed,
//   under the lock, before the row or the slot can be seen. A full /dev/shm refuses it there.
// - Overdraft: a driver may take more than was reserved. It is charged in any case, all leases are
//   revoked, and nothing is granted until what is held fits the cap again.
//
// Sums are computed from the cells each time and nothing is cached. A process killed at any
// instruction therefore leaves at worst a cell that is too high, until it is reaped. The sum of the
// leases never exceeds the cap; check_invariants() has this and the rest.
//
// Amounts are units of 512 bytes. Functions may be called from any thread unless they say
// otherwise. None takes a lock of the process's; those on the slow path take the file's lock, for
// which they wait as grow_lock.h says. Except for join, observe and manage, all need a ledger that
// is open, and all that change something need one that was joined. The ledger knows nothing of
// vendors.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/text.h"
#include "shim/ledger/grow_lock.h"
#include "shim/ledger/ledger_file.h"

namespace fracgpu {

// Who claims a slot; see layout::Slot for the fields.
struct ProcessIdentity {
  uint32_t host_pid = 0;
  uint32_t pid = 0;
  uint64_t pid_namespace = 0;
  uint64_t start_time = 0;
  uint32_t uid = 0;
  char command[16] = "";
  bool is_foreign_importer = false;

  static ProcessIdentity of_self();
  static ProcessIdentity of_slot(const layout::Slot& slot);
};

// A process that is gone, of whose memory on one device the driver is asked.
struct DeadProcess {
  uint32_t host_pid = 0;  // 0: not known
  uint32_t pid = 0;       // in the namespace beside it
  uint64_t pid_namespace = 0;
  uint64_t start_time = 0;
  uint64_t held = 0;            // units that are charged for it on the device
  uint64_t held_by_living = 0;  // and for the tenant's living processes
};

// A process as a driver's list names it: matches a slot that has either of its PIDs.
struct ProcessName {
  uint32_t host_pid = 0;  // 0: not known
  uint32_t pid = 0;       // in the namespace beside it; 0: not known
  uint64_t pid_namespace = 0;
};

// Why a reservation was refused, for the line a person reads. All amounts in units.
struct Refusal {
  uint64_t asked = 0;
  uint64_t asked_bytes = 0;  // what the program asked for, where that is less; 0: as `asked`
  uint64_t held = 0;         // by all processes of the tenant
  uint64_t cap = 0;
  uint64_t largest_held = 0;
  uint32_t largest_pid = 0;  // host PID where known, else the PID in its own namespace
  char largest_command[16] = "";
  layout::Reason reason = layout::Reason::cap;
  Message fault{};          // set when the ledger failed, and not the cap
  bool lease_grew = false;  // granted, but not within the lease: the slow path
};

class Ledger {
 public:
  // Asked before what a dead process held is given out again: whether the driver has released its
  // memory on the device. Called without any lock held. What is unknown counts as yes, unless the
  // driver has answered for that device before: then it could not be asked just now. `reused`: the
  // PID is another process's, so the driver is not asked. `awaited`: the driver does not tell, and
  // the memory may still be held; it is asked for again, and not for ever.
  enum class DriverRelease { held, released, unknown, pid_reused, awaited };
  using ReleaseProbe = DriverRelease (*)(const DeadProcess& dead, const char* device_key);

  // Opens or makes the tenant's ledger and claims a slot in it for the calling process. When no
  // other process of the tenant is alive, what earlier ones wrote is wiped first. False with
  // `error` set. Call it once, from one thread, before anything else.
  bool join(const char* tenant, const ProcessIdentity& self, ReleaseProbe release_probe,
            Message& error);

  // The same in the ledger of another tenant, whose memory the process that has its slot in `own`
  // imports: as a foreign importer, which holds nothing there. Does not make the file.
  bool join_as_foreign_importer(const char* tenant, const Ledger& own, Message& error);
  // Ends that, as death would; the slot is for others to reap.
  void leave() { file_.close(); }

  // For a process that exits: removes the file when nobody else lives in it and neither this
  // process nor the dead hold anything. What is left stays for a sweep. Never waits. The ledger
  // stays open, but where the file was removed it grants nothing more.
  void leave_for_good(uint64_t now_s);

  // Removes the files of other tenants that ended: a few, within milliseconds. For the process that
  // made a file, so that as many go as come. Needs a ledger that was joined.
  void sweep() const;
  bool has_made_file() const { return file_.is_made(); }

  // Removes one such file: nobody lives in it, the driver has released what the dead held, and ten
  // minutes have passed (`now_s` is unix time) since a refusal, or, under a name that somebody
  // chose, since it was made or joined. True if it did. Never waits for a lock.
  static bool remove_ended(const char* tenant, ReleaseProbe release_probe, uint64_t now_s);

  // Opens an existing ledger for looking only. `absent` when there is none.
  LedgerFile::Result observe(const char* tenant, Message& error);

  // The same for changing caps: without a slot, which only a process that holds memory needs.
  LedgerFile::Result manage(const char* tenant, Message& error);

  // The index of a device, appended with this cap (bytes, or UINT64_MAX for none) when it is new.
  // A cap that only dead processes knew when the oldest living one joined is replaced by the first
  // caller's; any other stays. -1 with `error` set when full.
  int device(const char* key, uint64_t cap_bytes, uint64_t physical_bytes, Message& error);

  // The index of a device that is already known, or -1. For observers.
  int find_device(const char* key) const;

  // How many devices more it has room for.
  int free_device_rows() const;

  // Takes `units` for this process, or explains in `refusal` why not. Refused exactly when cap -
  // held by all < units at some moment during the call, or when the ledger itself failed. (While
  // the lock cannot be had, units that others try for at that moment count as held.)
  bool reserve(int device, uint64_t units, Refusal& refusal);

  // The fast path of `reserve`, which is how nearly all calls end. False: the lease does not reach.
  bool reserve_within_lease(int device, uint64_t units) {
    layout::Cell& cell = own_cell(device);
    uint64_t word = cell.held_and_lease.load(std::memory_order_relaxed);
    while (units <= layout::kMaxUnits && layout::held_of(word) + units <= layout::lease_of(word)) {
      const uint64_t held = layout::held_of(word) + units;
      if (cell.held_and_lease.compare_exchange_weak(word, word + layout::pack(units, 0),
                                                    std::memory_order_relaxed)) {
        raise(cell.peak, held);
        return true;
      }
    }
    return false;
  }

  // Gives back `units`, no more than this process has reserved or charged. True when less than half
  // remains of what calls had taken at the last `set_allocations`: time for another.
  bool release(int device, uint64_t units);

  // Adds `units` that the driver has taken already, whether or not the cap has room for them.
  void charge_taken(int device, uint64_t units);

  // Of what this process holds, `units` more may outlive it in others, or no longer do.
  void add_exported(int device, uint64_t units);
  void drop_exported(int device, uint64_t units);
  // The most of the tenant's memory that other processes have imported, in units. Counts what was
  // imported twice twice, and imports of what is not freed.
  uint64_t imported_by_others(int device) const;
  // This process has freed what it exported: `units` of its charge are given back, and as much of
  // them is charged to the tenant as others have imported, until they let go of it. That is charged
  // in a slot of its own, like the exports of a dead process. False, with nothing changed, if the
  // lock cannot be had or no slot is free.
  bool free_exported(int device, uint64_t units);
  // The units that are charged for what exporters have freed, or have died with. Asks who is alive.
  uint64_t orphaned(int device) const;
  // A handle, by its hash, was given out by which others may open memory of this tenant's.
  void note_export(uint64_t hash);
  // This process uses memory that another one pays for, or does no longer.
  void add_imported(int device, uint64_t units);
  void drop_imported(int device, uint64_t units);
  // Around a call that may import memory of this tenant's, from before the driver is asked until
  // `add_imported` has said how much it was: its exporter may die meanwhile.
  void begin_import();
  void end_import();

  // Units of what is held that no call asked for by size.
  void set_overhead(int device, uint64_t units);
  // Publishes how many allocations of this process live on the device just now.
  void set_allocations(int device, uint64_t number);
  uint64_t held_by_self(int device) const {
    return layout::held_of(own_cell(device).held_and_lease.load(std::memory_order_relaxed));
  }

  // Sum over all claimed slots. `alive_only` probes each owner (about a microsecond each) and
  // leaves the dead out; without it the dead count until they are reaped.
  uint64_t held(int device, bool alive_only = false) const {
    if (alive_only) return held_by_living(device);
    return has_one_slot() ? held_in_first_slot(device) : held_by_all(device);
  }
  // Whether the first slot's cells say all, as in a tenant of one process, which many are.
  bool has_one_slot() const {
    const layout::Ledger& ledger = *file_.map();
    return ledger.slots_used.load(std::memory_order_relaxed) == layout::encode(1) &&
           ledger.any_parked.load(std::memory_order_relaxed) == 0;
  }
  uint64_t held_in_first_slot(int device) const {
    const layout::Cell& cell = file_.map()->cells[device][0];
    return layout::held_of(cell.held_and_lease.load(std::memory_order_relaxed));
  }
  bool any_alive() const;

  // This process's own.
  uint32_t slot() const { return slot_; }
  // Distinguishes this process from others of the tenant, living and dead: 31 bits.
  uint32_t mark_of_self() const { return slot_ << 21 | (owner_ >> 1 & 0x1fffff); }
  // Changes when somebody begins to record the tenant (shim/recording), or ends it: then it is 0.
  // Leases are taken back, so that processes come to their slow path and see it.
  void ask_for_recording(uint64_t number);
  uint64_t recording() const { return file_.map()->recording.load(std::memory_order_relaxed); }

  // The slot of the tenant's living process of this name, or -1; and what is held there.
  int find_process(const ProcessName& name) const;
  uint64_t held_in_slot(int device, int slot) const;
  uint64_t peak_in_slot(int device, int slot) const;

  // A checkpoint has moved all that the process of this name holds to the host, so that others may
  // take as much. Nothing where it is not the tenant's, or where the lock cannot be had.
  void park(const ProcessName& name);
  // It is about to come back. False where a device's cap has no room for it beside what is held
  // now: it stays parked, and `refusal` says why, of the device with this index.
  bool unpark(const ProcessName& name, int& device, Refusal& refusal);
  // What this process holds on the device is back: somebody restored it who does not know the
  // ledger.
  void count_parked(int device);

  // Zeroes the slots of processes that died, but for what they exported and others of the tenant
  // have imported. True if anything was freed.
  bool reap_dead();

  // Changes the cap (bytes). Leases are taken back at once, so that what is held may drain but not
  // grow past the new cap.
  bool set_cap(int device, uint64_t cap_bytes, Message& error);

  bool within_cap(int device) const { return held(device) <= cap(device); }
  // Units, or layout::kNoCap.
  uint64_t cap(int device) const {
    return layout::cap_units(file_.map()->devices[device].cap.load(std::memory_order_relaxed));
  }
  // The largest context seen on the device, in units; 0: none yet.
  uint64_t context_size(int device) const;
  void set_context_size(int device, uint64_t units);
  // A context of which nothing else tells seemed to take `units`. True where one of the last ones
  // seemed to take just the same.
  bool add_context_sample(int device, uint64_t units);

  // The first invariant of the tenant's ledger that does not hold, in words, or nothing. Takes the
  // file's lock, and asks for what holds whenever that is held, whatever other processes do:
  // - Each device is there once, its key has its check, and devices are appended without a gap.
  // - A device's cap and the cells of claimed slots are codewords.
  // - The sum of the leases is at most the cap. What is held may be above it; see charge_taken.
  // - A slot that nobody has claimed, or that lies behind those used, holds nothing.
  // - Every claimed slot has memory.
  std::string_view check_invariants() const;

  // The same of this process's own cells, which hold while no thread of it is in a call: the
  // overhead and what is exported are part of what is held, and the peak is no less than that. (Two
  // threads that raise the peak at once may leave the lower one, until the next call.)
  std::string_view check_own_cells() const;

  const layout::Ledger* map() const { return file_.map(); }
  const char* path() const { return file_.path(); }
  std::string_view tenant() const { return file_.tenant(); }

  // Fills in who holds what, for a refusal of `units`. Also samples the device's peak.
  void explain(int device, uint64_t units, Refusal& refusal) const;

  // Counts a refusal, once it is certain, and keeps it for people to read later. Waits for nobody,
  // and a process that dies on the way leaves at worst a record whose check is wrong.
  // `device` may be negative: not known.
  void record(int device, const char* api, const Refusal& refusal) const;

 private:
  enum class Grant { given, not_enough, failed };
  enum class Growth { granted, no_room, lock_is_stuck, no_lock };
  // What a thread that waits for a stuck lock has seen so far.
  struct StuckLock {
    uint64_t since_ms = 0;
    int looks = 0;
  };

  static void raise(std::atomic<uint32_t>& peak, uint64_t value) {
    // Two threads of the owner may race and the lower value win by a hair; the next call mends it.
    if (value > peak.load(std::memory_order_relaxed)) {
      peak.store(static_cast<uint32_t>(value), std::memory_order_relaxed);
    }
  }
  layout::Cell& own_cell(int device) const { return file_.map()->cells[device][slot_]; }
  Grant grow(int device, uint64_t units, Message& error);
  Growth grow_once(int device, uint64_t units, Message& error);
  std::optional<Grant> give_up_if_stuck(int device, uint64_t units, StuckLock& stuck) const;
  bool fits_without_the_dead(int device, uint64_t units) const;
  GrowLock::LockTimeout lock_timeout() const;
  void note(const GrowLock& lock);
  bool try_grant(int device, uint64_t units, bool locked);
  bool take_back_unspent(int device, uint64_t wanted);
  void revoke_unspent(int device);
  bool cap_is_left(int device) const;
  void replace_cap(int device, uint64_t cap_bytes);
  template <typename Open>
  bool join_opened(const ProcessIdentity& self, Message& error, Open open);
  bool claim_slot(const ProcessIdentity& self, Message& error);
  // The first step of `free_exported`: charges `kept` units as orphans, `most` at most.
  bool charge_orphans(int device, uint64_t most, uint64_t& kept);
  // With the lock held: enters a process in a free slot. `orphaned`: see layout::Slot.
  void enter_slot(uint32_t slot, const ProcessIdentity& self, uint32_t orphaned);
  // With the lock held: the first free slot, with memory, or -1 with `error` set.
  int find_free_slot(const GrowLock& lock, Message& error);
  // With the lock held: the slot in which this process's freed exports are charged, or -1.
  int orphan_slot(const GrowLock& lock);
  // Whether the slot still belongs to this process. CRIU restores a process without its lock on the
  // slot: the lock is taken again, unless another process has claimed the slot meanwhile.
  bool keep_slot(const GrowLock& lock, Message& error);
  bool reap_dead(int fd);  // of the file
  // False, at once, while another one that joins does it: 64 that start where 64 have died would
  // otherwise ask 64 times about each.
  bool reap_dead_for_all_who_join();
  bool back_slots(uint32_t slot, const GrowLock& lock, Message& error);
  bool back_device(uint32_t device, const GrowLock& lock, Message& error);
  void wipe_slot(uint32_t slot);
  void note_slots_used();
  // With the lock held; orphans.cc says what each does.
  bool keep_exports(uint32_t slot);
  bool lower_orphans(int device, const uint32_t* gone);
  bool has_orphans(uint32_t slot) const;
  uint64_t most_orphans(int device, const uint32_t* gone) const;
  // What all processes except that of the slot `exporter` (-1: all) have imported.
  uint64_t imported_beside(int exporter, int device, const uint32_t* gone) const;
  int exporter_of(uint32_t orphans) const;
  uint64_t exported_in(int device, uint32_t slot) const;
  uint64_t held_as_orphans(int device) const;
  // `held`, `awaited` or `released`. `living`: what living processes hold of each device, or
  // kMaxUnits while that was not counted.
  DriverRelease driver_released(int fd, uint32_t slot, uint64_t (&living)[layout::kMaxDevices]);
  static bool is_same_process(const layout::Slot& one, const layout::Slot& other) {
    return one.pid == other.pid && one.pid_namespace == other.pid_namespace &&
           one.start_time == other.start_time;
  }
  // Distinguishes the process that claimed a slot from the next one; not 0.
  static uint32_t owner_of(const layout::Slot& slot);
  // The slot, with the lock held; -1 where it has become another's since.
  int find_process(const ProcessName& name, const GrowLock& lock) const;
  bool fits_cap(int device) const;
  bool nobody_holds_anything() const;
  void note_peak(int device) const;
  bool is_damaged(int device) const;
  uint64_t held_by_all(int device) const;
  uint64_t held_by_living(int device) const;
  [[gnu::cold]] uint64_t held_one_by_one(int device) const;
  void describe_damage(Message& error) const;

  // Whether some dead process's memory is taken to be held for a while, by the last look at them.
  std::atomic<bool> awaits_dead_{false};
  LedgerFile file_;
  uint32_t slot_ = 0;
  uint32_t owner_ = 0;  // of it: `owner_of` this process
  ReleaseProbe release_probe_ = nullptr;
  std::atomic<uint64_t> publish_below_[layout::kMaxDevices] =
      {};                                                       // see `release`; as a cell's word
  std::atomic<bool> driver_reports_[layout::kMaxDevices] = {};  // see ReleaseProbe
  std::atomic<bool> stuck_{false};  // the lock's holder did not move when we last asked
};

}  // namespace fracgpu
