// Ledger Protocol
//
// A device's cap is a quota that the processes of a tenant share. The ledger is a file that all of
// them map (fracgpu/ledger_layout.h). It is a table of per-process quota leases:
//
// - Each process claims one slot, and has in it one cell per device. A cell is one word with two
//   numbers: what the process holds, and its lease, which is what it may hold without asking.
// - Fast path: within the lease, reserving and releasing are one compare-and-swap on the process's
//   own cell. They touch no other process's cache line.
// - Slow path: to take more than its lease, a process adds the units to its own cell and then sums
//   the claims of all processes. A claim is the larger of held and lease. If the sum exceeds the
//   cap, the process takes unspent leases back from others, or its own units out again. Adding
//   always comes before summing, so of two that do this at once the later one sees the earlier
//   one's units.
// - Leases grow, slots are claimed, devices are added, caps change and dead processes are reaped
//   under an OFD lock on one byte of the file. A process that cannot get that lock, because its
//   holder is stopped or no descriptor is free, may still take unclaimed units, but no lease grows.
// - Liveness: a process holds an OFD lock on its slot's byte through a mapping. The kernel drops
//   that lock however the process ends. Then any process may reap: zero the cells, free the slot.
// - Memory: the file is sparse. The parts for a device or for 64 more slots are given memory, and
//   zeroed, under the lock, before the row or the slot becomes visible. A full /dev/shm fails
//   there.
// - Overdraft: a driver may take more than was reserved. It is charged in any case, all leases are
//   revoked, and nothing is granted until what is held fits the cap again.
//
// Sums are computed from the cells each time and nothing is cached. A process killed at any
// instruction therefore leaves at worst a cell that is too high, until it is reaped. The sum of the
// leases never exceeds the cap; check_invariants() lists this and the other invariants.
//
// Amounts are units of 512 bytes. Functions may be called from any thread unless documented
// otherwise. None takes a process-local lock. Functions on the slow path take the file's lock and
// wait for it as grow_lock.h describes. All except join, observe and manage need an open ledger.
// All that change something need a joined one. The ledger knows nothing of vendors.
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

// The process that claims a slot; see layout::Slot for the fields.
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

// A dead process, as a release probe needs it to ask the driver about one device.
struct DeadProcess {
  uint32_t host_pid = 0;  // 0: not known
  uint32_t pid = 0;       // in the namespace beside it
  uint64_t pid_namespace = 0;
  uint64_t start_time = 0;
  uint64_t held = 0;            // units charged for it on the device that none has imported
  uint64_t imported = 0;        // units that it has imported there
  uint64_t held_by_living = 0;  // units that the tenant's living processes hold there
  // Of them: units that the driver's counts of these processes may leave out, because no call
  // requested them or because their exporter is gone.
  uint64_t uncounted_of_living = 0;
};

// A process as a driver's list names it: matches a slot with either of its PIDs.
struct ProcessName {
  uint32_t host_pid = 0;  // 0: not known
  uint32_t pid = 0;       // in the namespace beside it; 0: not known
  uint64_t pid_namespace = 0;
};

// Why a reservation was refused, for the message to the user. All amounts in units.
struct Refusal {
  uint64_t asked = 0;
  uint64_t asked_bytes = 0;  // what the program requested, if less than `asked`; 0: as `asked`
  uint64_t held = 0;         // by all processes of the tenant
  uint64_t cap = 0;
  uint64_t largest_held = 0;
  uint32_t largest_pid = 0;  // host PID if known, else the PID in its own namespace
  char largest_command[16] = "";
  layout::Reason reason = layout::Reason::cap;
  Message fault{};          // set if the ledger failed; empty if the cap refused
  bool lease_grew = false;  // granted, but not within the lease: the slow path
};

class Ledger {
 public:
  // Called before a dead process's units are granted again: whether the driver has released its
  // memory on the device. Called without any lock held. `unknown` counts as released, unless the
  // driver has answered for that device before: then the query has only failed this time.
  // `pid_reused`: another process has the PID, so the driver is not asked. `awaited`: the driver
  // does not report it, and the memory may still be held; the probe is called again, for a bounded
  // time.
  enum class DriverRelease { held, released, unknown, pid_reused, awaited };
  using ReleaseProbe = DriverRelease (*)(const DeadProcess& dead, const char* device_key);

  // Opens or makes the tenant's ledger and claims a slot in it for the calling process. If no slot
  // is claimed any more, first wipes the data of earlier processes. False with `error` set. Call it
  // once, from one thread, before anything else.
  bool join(const char* tenant, const ProcessIdentity& self, ReleaseProbe release_probe,
            Message& error);

  // The same in another tenant's ledger, whose memory the process with its slot in `own` imports.
  // It joins as a foreign importer, which holds nothing there. Does not make the file.
  bool join_as_foreign_importer(const char* tenant, const Ledger& own, Message& error);
  // Ends the membership, as death would: other processes reap the slot.
  void leave() { file_.close(); }

  // For a process that exits: removes the file if no other process lives in it and neither this
  // process nor a dead one holds anything. Otherwise the file stays for a sweep. Never waits. The
  // ledger stays open, but grants nothing more once the file is removed.
  void leave_for_good(uint64_t now_s);

  // Removes the files of other tenants that have ended: a few, within milliseconds. A process that
  // made a file calls it, so that removals keep up with new files. Needs a joined ledger.
  void sweep() const;
  bool has_made_file() const { return file_.is_made(); }

  // Removes one such file if no process lives in it, the driver has released the dead processes'
  // memory, and ten minutes have passed since the last refusal. A name that a user chose is also
  // kept for ten minutes after the file was made or joined. `now_s` is unix time. True if it
  // removed the file. Never waits for a lock.
  static bool remove_ended(const char* tenant, ReleaseProbe release_probe, uint64_t now_s);

  // Opens an existing ledger read-only. `absent` if there is none.
  LedgerFile::Result observe(const char* tenant, Message& error);

  // The same for changing caps, without a slot. Only a process that holds memory needs one.
  LedgerFile::Result manage(const char* tenant, Message& error);

  // The index of a device. A new device is appended with this cap (bytes, or UINT64_MAX for none).
  // If only dead processes had a device when the oldest living process joined, the first caller
  // replaces its cap; otherwise the cap stays. -1 with `error` set if there is no row left or the
  // ledger fails.
  int device(const char* key, uint64_t cap_bytes, uint64_t physical_bytes, Message& error);

  // The index of a device that the ledger already has, or -1. For observers.
  int find_device(const char* key) const;

  // The number of devices that can still be added.
  int free_device_rows() const;

  // Takes `units` for this process, or explains the refusal in `refusal`. Refused exactly if cap -
  // held by all < units at some moment during the call, or if the ledger itself failed. (While the
  // lock cannot be had, units that others try for at that moment count as held.)
  bool reserve(int device, uint64_t units, Refusal& refusal);

  // The fast path of `reserve`, which serves nearly all calls. False: the lease is too small.
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

  // Gives back `units`, no more than this process has reserved or charged. True if less than half
  // remains of what calls had taken at the last `set_allocations`: the caller should publish again.
  bool release(int device, uint64_t units);

  // Adds `units` that the driver has already taken, whether or not the cap has room for them.
  void charge_taken(int device, uint64_t units);

  // Lists memory that others may import as a whole: `units` of this process's charge. Returns its
  // number. 0, with nothing changed, if no place is free or the lock cannot be had.
  uint32_t list_export(int device, uint64_t units);
  // Changes how many of this process's held units may outlive it in other processes. Here and below
  // a `number` stands for a listed export, and 0 for all others together.
  void add_exported(int device, uint64_t units, uint32_t number = 0);
  void drop_exported(int device, uint64_t units, uint32_t number = 0);
  // This process has freed memory of a listed export that only descriptors hold now. Importers may
  // be counted for it as soon as these are closed, which this process may not see at once.
  void note_freed(int device, uint32_t number);
  // An upper bound of the tenant's unlisted exports that other processes have imported, in units.
  // Counts memory twice that was imported twice, and counts imports of memory that is not freed.
  uint64_t imported_by_others(int device) const;
  // For a process that has freed exported memory: gives back `units` of its charge, and charges to
  // the tenant as much of them as others have imported, until they release it. The tenant's charge
  // has a slot of its own, like the exports of a dead process. False, with nothing changed, if the
  // lock cannot be had or no slot is free. A number ends when all its units are freed and none is
  // imported.
  bool free_exported(int device, uint64_t units, uint32_t number = 0);
  // The most units of this process's imports that exporters have freed, or have died with. Makes
  // system calls to probe which processes are alive, if there are imports.
  uint64_t orphaned_imports(int device) const;
  // Records the hash of a handle that was given out, by which others may open memory of this
  // tenant.
  void note_handle(uint64_t hash, uint32_t number = 0);
  // The number of the listed export that a handle stands for, or that a process with this mark has
  // under that number; 0: none.
  uint32_t find_export(uint64_t hash) const;
  uint32_t find_export(uint32_t number, uint32_t exporter) const;
  uint64_t units_of_export(uint32_t number) const;
  // Whether another process has imported the export, or may be about to.
  bool is_imported(uint32_t number) const { return is_imported(number, nullptr); }
  // This process has imported a listed export, or has it no longer. Not from two threads at once.
  void add_import(uint32_t number);
  void drop_import(uint32_t number);
  // Changes the units of other memory that this process uses and that is charged to another one.
  // `is_unknown`: its exporter was not found.
  void add_imported(int device, uint64_t units, bool is_unknown = false);
  void drop_imported(int device, uint64_t units, bool is_unknown = false);
  // Called around a call that may import memory of this tenant: from before the driver is asked
  // until `add_import` or `add_imported` has counted the memory. The exporter may die meanwhile.
  void begin_import();
  void end_import();

  // Publishes the held units that no call requested by size.
  void set_overhead(int device, uint64_t units);
  // Publishes how many allocations of this process live on the device now.
  void set_allocations(int device, uint64_t number);
  uint64_t held_by_self(int device) const {
    return layout::held_of(own_cell(device).held_and_lease.load(std::memory_order_relaxed));
  }

  // The sum over all claimed slots. `alive_only` probes each owner (about a microsecond each) and
  // leaves dead processes out. Otherwise dead processes count until they are reaped.
  uint64_t held(int device, bool alive_only = false) const {
    if (alive_only) return held_by_living(device);
    return has_one_slot() ? held_in_first_slot(device) : held_by_all(device);
  }
  // Whether the first slot's cells are the whole sum. Many tenants have only one process.
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

  // Properties of this process.
  uint32_t slot() const { return slot_; }
  // Distinguishes this process from the tenant's other processes, living and dead: 31 bits.
  uint32_t mark_of_self() const { return mark_; }
  // The number changes when a recorder begins to record the tenant (shim/recording), and is 0 after
  // it ends. Leases are revoked, so that processes come to their slow path and see it.
  void ask_for_recording(uint64_t number);
  uint64_t recording() const { return file_.map()->recording.load(std::memory_order_relaxed); }

  // The slot of the tenant's living process with this name, or -1; and the units it holds there.
  int find_process(const ProcessName& name) const;
  uint64_t held_in_slot(int device, int slot) const;
  uint64_t peak_in_slot(int device, int slot) const;

  // Of each device, the encoded units of a process that do not count.
  struct Parked {
    uint64_t words[layout::kMaxDevices] = {};
  };
  // For a checkpoint that has moved all memory of the named process to the host: other processes
  // may take as much. Does nothing if the tenant has no such process or the lock cannot be had.
  void park(const ProcessName& name);
  // For a process whose memory is about to come back: `parked` is what counts again. If a device's
  // cap has no room for it beside what is held now, it stays parked, and the result is false:
  // `device` is that device's index, and `refusal` explains it. False too, with a fault, if the
  // lock cannot be had.
  bool unpark(const ProcessName& name, Parked& parked, int& device, Refusal& refusal);
  // For memory that did not move as was thought: parks just this. Does nothing without the lock.
  void set_parked(const ProcessName& name, const Parked& parked);
  // For memory of this process that is back on the device because a tool without knowledge of the
  // ledger restored it.
  void count_parked(int device);

  // Zeroes the slots of dead processes, except for exports that others of the tenant have imported.
  // True if anything was freed.
  bool reap_dead();

  // Changes the cap (bytes). Revokes leases at once, so that what is held may shrink but not grow
  // past the new cap.
  bool set_cap(int device, uint64_t cap_bytes, Message& error);

  bool within_cap(int device) const { return held(device) <= cap(device); }
  // Units, or layout::kNoCap.
  uint64_t cap(int device) const {
    return layout::cap_units(file_.map()->devices[device].cap.load(std::memory_order_relaxed));
  }
  // The largest context seen on the device, in units; 0: none yet.
  uint64_t context_size(int device) const;
  void set_context_size(int device, uint64_t units);
  // Adds a measured context size of `units`, if there is no other source. True if one of the last
  // samples has the same size.
  bool add_context_sample(int device, uint64_t units);

  // The first invariant of the tenant's ledger that does not hold, in words, or nothing. Takes the
  // file's lock, and checks what holds whenever that lock is held, whatever other processes do:
  // - Each device is there once, its key has its check, and devices are appended without a gap.
  // - A device's cap and the cells of claimed slots are codewords.
  // - The sum of the leases is at most the cap. What is held may be above it; see charge_taken.
  // - A slot that is not claimed, or that is behind `slots_used`, holds nothing.
  // - Every claimed slot has memory.
  std::string_view check_invariants() const;

  // The same for this process's own cells, which is valid while no thread of it is in a call: the
  // overhead and what is exported are part of what is held, and the peak is no less than that. (Two
  // threads that raise the peak at once may leave the lower one, until the next call.)
  std::string_view check_own_cells() const;

  const layout::Ledger* map() const { return file_.map(); }
  const char* path() const { return file_.path(); }
  std::string_view tenant() const { return file_.tenant(); }

  // Fills in which process holds how much, for a refusal of `units`. Also samples the device's
  // peak.
  void explain(int device, uint64_t units, Refusal& refusal) const;

  // Counts a refusal, once it is certain, and keeps it for people to read later. Takes no lock. A
  // process that dies meanwhile leaves at worst a record whose check is wrong. `device` is negative
  // if it is not known.
  void record(int device, const char* api, const Refusal& refusal) const;

 private:
  enum class Grant { given, not_enough, failed };
  enum class Growth { granted, no_room, lock_is_stuck, no_lock };
  // The state of a thread's wait for a stuck lock.
  struct StuckLock {
    uint64_t since_ms = 0;
    int looks = 0;
  };

  static void raise(std::atomic<uint32_t>& peak, uint64_t value) {
    // Two threads of this process may race and leave the lower value; the next call corrects it.
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
  // The first step of `free_exported`: charges up to `most` units as orphans, and returns them in
  // `kept`. Not 0: `number` is a listed export that is imported. These units of it are then no
  // longer exported.
  bool charge_orphans(int device, uint64_t most, uint32_t number, uint64_t& kept);
  uint64_t charge_unlisted_orphans(int device, layout::Cell& orphans, uint64_t most);
  // With the lock held: enters a process in a free slot. `orphaned`: see layout::Slot.
  void enter_slot(uint32_t slot, const ProcessIdentity& self, uint32_t orphaned);
  // With the lock held: the first free slot, with memory, or -1 with `error` set.
  int find_free_slot(const GrowLock& lock, Message& error);
  // With the lock held: the slot in which this process's freed exports are charged, or -1.
  int orphan_slot(const GrowLock& lock);
  // Whether the slot still belongs to this process. CRIU restores a process without its lock on the
  // slot: the lock is taken again, unless another process has claimed the slot meanwhile.
  bool keep_slot(const GrowLock& lock, Message& error);
  bool reap_dead(int fd);  // of the ledger's file
  // Returns false at once while another joining process does it: otherwise 64 processes that start
  // after 64 have died would ask the driver 64 times about each.
  bool reap_dead_for_all_who_join();
  bool back_slots(uint32_t slot, const GrowLock& lock, Message& error);
  bool back_device(uint32_t device, const GrowLock& lock, Message& error);
  void wipe_slot(uint32_t slot);
  void note_slots_used();
  // With the lock held; see orphans.cc.
  bool keep_exports(uint32_t slot, const uint32_t* gone);
  bool lower_orphans(int device, const uint32_t* gone);
  bool has_orphans(uint32_t slot) const;
  uint64_t most_orphans(int device, const uint32_t* gone) const;
  // The units that all processes except the one in slot `exporter` (-1: no exception) have
  // imported.
  uint64_t imported_beside(int exporter, int device, const uint32_t* gone) const;
  int exporter_of(uint32_t orphans) const;
  uint64_t exported_in(int device, uint32_t slot) const;
  uint64_t charged_for_unlisted(int device) const;
  // Listed exports; see exports.cc.
  layout::Export& export_at(uint32_t number) const;
  bool is_listed(uint32_t number) const;
  bool is_imported(uint32_t number, const uint32_t* gone) const;
  void orphan_listed_exports(uint32_t slot, const uint32_t* gone);
  void forget_released_orphans(const uint32_t* gone);
  // The sum of a half of the words of all listed exports of a process.
  uint64_t sum_listed(int device, uint32_t mark, uint64_t (*half)(const layout::Export&)) const;
  uint64_t listed_orphans_of_self(int device, const uint32_t* gone) const;
  uint64_t listed_orphans_in(int device, uint32_t slot) const;
  uint64_t listed_orphans_in_use(int device, const uint32_t* gone) const;
  // The units of the dead process's listed exports that living processes have imported.
  uint64_t exports_of_dead_in_use(int device, uint32_t slot, int fd) const;
  // The imports of all processes except the exporter whose exporter is unknown, in units.
  uint64_t unknown_imports_beside(uint32_t exporter, int device) const;
  // What living processes hold on a device, in units.
  struct Living {
    uint64_t held = layout::kMaxUnits;  // kMaxUnits: not counted yet
    uint64_t uncounted = 0;             // a part of it; see DeadProcess
  };
  Living count_living(int device) const;
  // Returns `held`, `awaited` or `released`. `living`: of each device.
  DriverRelease driver_released(int fd, uint32_t slot, Living (&living)[layout::kMaxDevices]);
  static bool is_same_process(const layout::Slot& one, const layout::Slot& other) {
    return one.pid == other.pid && one.pid_namespace == other.pid_namespace &&
           one.start_time == other.start_time;
  }
  // Distinguishes the process that claimed a slot from the next one; not 0.
  static uint32_t owner_of(const layout::Slot& slot);
  // The slot of the named process, with the lock held; -1 if there is none.
  int find_process(const ProcessName& name, const GrowLock& lock) const;
  bool fits_cap(int device) const;
  bool nobody_holds_anything() const;
  void note_peak(int device) const;
  bool is_damaged(int device) const;
  uint64_t held_by_all(int device) const;
  uint64_t held_by_living(int device) const { return count_living(device).held; }
  [[gnu::cold]] uint64_t held_one_by_one(int device) const;
  void describe_damage(Message& error) const;

  // Whether the last search for dead processes found memory that may still be held.
  std::atomic<bool> awaits_dead_{false};
  LedgerFile file_;
  uint32_t slot_ = 0;
  uint32_t owner_ = 0;  // `owner_of` this process's slot
  uint32_t mark_ = 0;   // layout::mark_of this process's slot
  ReleaseProbe release_probe_ = nullptr;
  std::atomic<uint64_t> publish_below_[layout::kMaxDevices] =
      {};                                                       // see `release`; as a cell's word
  std::atomic<bool> driver_reports_[layout::kMaxDevices] = {};  // see ReleaseProbe
  std::atomic<bool> stuck_{false};  // the lock's holder did not move at the last attempt
};

}  // namespace fracgpu
