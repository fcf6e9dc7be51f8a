// Overhead: device memory that no call requests by size, contexts and what the driver adds to them.
#pragma once

#include <cstdint>

#include "shim/base/clock.h"
#include "shim/charge/refusal.h"
#include "shim/process/process.h"

namespace fracgpu {

// Holds `Process::cold_paths`, which is not recursive. A function that takes one is called with the
// lock held; a function of this header that takes a Process instead takes the lock itself.
class OverheadLock {
 public:
  explicit OverheadLock(Process& process) : process_(process), lock_(process.cold_paths) {}

  Process& process() const { return process_; }

 private:
  Process& process_;
  Locked<SleepLock> lock_;
};

// Counts units that are already charged as overhead from now on. Only the driver-reported usage can
// show when they are gone. It is read at the next opportunity.
[[gnu::cold]] void defer_to_reported_usage(Process& process, int device_index, uint64_t units);
[[gnu::cold]] void defer_to_reported_usage(const OverheadLock& lock, int device_index,
                                           uint64_t units);

// The same for freed exports. Units that have left this process's usage at the next reading are
// then charged to the tenant, as far as importers may hold them. `number`: the export's in the
// ledger.
void defer_exported(Process& process, int device_index, uint64_t units, uint32_t number = 0);
void defer_exported(const OverheadLock& lock, int device_index, uint64_t units,
                    uint32_t number = 0);

// The image that a module is loaded from, and the context. The default matches any.
struct ModuleImage {
  uint64_t key = 0;
  uint16_t context = kUntrackedContext;
  uint64_t units = 0;  // size that the image reveals, in whole chunks of the driver; 0: none
};

// A limit of a context, and the value that it is raised to.
struct ContextLimit {
  uint16_t context = kUntrackedContext;
  int limit = 0;
  uint64_t value = 0;
};

// Whether the last reading reported what this process holds. Takes `cold_paths`.
bool usage_is_told(Process& process, int device_index);

// The highest value of the context's limit that is charged by a guess; 0 if the driver reports what
// this process holds. Takes `cold_paths`.
uint64_t charged_limit(Process& process, int device_index, uint16_t context, int limit);

// Memory that a call makes the driver take without naming a size. It is reserved by an estimate
// before the call, and corrected by the driver-reported usage after it. All amounts are units.
// Every function takes `cold_paths`, so no caller may hold it.
class OverheadReservation {
 public:
  // `code`: a module that takes exactly the size that its image reveals.
  enum class Kind { given, context, runtime, module, code, array, limit };

  // `units`: the most that the call takes, or an estimate for a module.
  OverheadReservation(Process& process, int device_index, uint64_t units, const AskingCall& call,
                      Kind kind = Kind::given, const ModuleImage& image = {},
                      const ContextLimit& limit = {});
  // For a context or a module: reserves the largest size seen, or the known size of the image.
  // `estimate`: units, used while none was seen; for a module whose image reveals a size, the units
  // beyond it.
  static OverheadReservation for_context(Process& process, int device_index, const char* api,
                                         uint64_t estimate);
  static OverheadReservation for_module(Process& process, int device_index, const char* api,
                                        uint64_t estimate, const ModuleImage& image = {});
  // For a limit that is raised. If the driver does not report the usage, `units` stay charged until
  // the context ends.
  static OverheadReservation for_limit(Process& process, int device_index, const char* api,
                                       uint64_t units, const ContextLimit& limit);
  ~OverheadReservation();
  OverheadReservation(const OverheadReservation&) = delete;
  OverheadReservation& operator=(const OverheadReservation&) = delete;

  explicit operator bool() const { return granted_; }

  uint64_t units() const { return granted_ ? units_ : 0; }
  // The call has taken more, for which the caller has reserved as many units.
  void extend(uint64_t units);
  // The call has failed after the driver gave back or took memory, so a reading measures what is
  // left. If the reading fails, `units` of the reservation stay charged until the next one.
  void failed_half_way(uint64_t units);

  // The driver's call has succeeded; `handle` is the loaded module's. False if the memory does not
  // fit under the cap: the caller must undo the call and then call `settle_overhead` or
  // `settle_after_destroy`.
  bool made(const void* handle = nullptr);
  // The same if nothing can be undone: the memory is charged, above the cap too.
  void made_for_good();

  // After `made`, for an array: the number of readings so far if none has seen it yet; otherwise 0.
  uint32_t unread_since() const { return unread_since_; }

  // See Reservation::refused_by_driver.
  void refused_by_driver() const;

 private:
  struct Outcome;
  void foresee_module(const OverheadLock& lock);
  uint64_t least_room(uint64_t estimate) const;
  LargestSeen& seen_of_others() const;
  bool is_usual(uint64_t grown) const;
  // Returns whether it fits.
  bool settle(const OverheadLock& lock, const void* handle, Outcome& outcome);
  // The steps of `settle`.
  void charge_unread(const OverheadLock& lock, const void* handle);
  Outcome read_outcome(const OverheadLock& lock);
  uint64_t estimate_context();
  uint64_t grown_by_all() const;
  uint64_t guess_module() const;
  void learn_from(const OverheadLock& lock, const Outcome& outcome);
  void learn_module(const OverheadLock& lock, const Outcome& outcome, const void* handle);
  void charge(const OverheadLock& lock, const Outcome& outcome);
  void report_excess(const Outcome& outcome);
  void enter_guess(const OverheadLock& lock, const void* handle, uint64_t units);

  bool is_guessed(const Outcome& outcome) const;
  bool is_context() const { return kind_ == Kind::context || kind_ == Kind::runtime; }

  Process& process_;
  int device_index_;
  AskingCall call_;
  Kind kind_;
  ModuleImage image_;
  ContextLimit limit_;
  uint64_t units_;
  // Before the call, for contexts and guessed modules: units that all processes use on the device.
  uint64_t used_before_ = UINT64_MAX;
  uint64_t held_before_ = 0;  // and units that the tenant held
  bool granted_ = false;
  bool foreseen_ = true;  // `units_` is the known size, not an estimate
  bool unread_ = false;   // no reading is needed after the call
  uint32_t unread_since_ = 0;
  bool read_before_ = false;  // nothing else can have grown since the last reading
};

// Around the unloading of a module: its known size may save a reading.
class ModuleRelease {
 public:
  // Before the driver is called. Takes `cold_paths`.
  ModuleRelease(Process& process, const void* handle);
  // If the driver has not unloaded the module, it stays known.
  ~ModuleRelease();
  ModuleRelease(const ModuleRelease&) = delete;
  ModuleRelease& operator=(const ModuleRelease&) = delete;

  // The driver has unloaded it. `device_index`: of the current context, may be negative. Takes
  // `cold_paths`.
  void done(int device_index);
  static constexpr int kNoDevice = -1;  // another caller determines what is gone

 private:
  KnownModule* living(const OverheadLock& lock);
  bool is_guessed() const;  // with the lock held

  Process& process_;
  const void* const handle_;
  KnownModule* known_ = nullptr;
  KnownModule before_;
  GuessedCharges::Entry guessed_;
  uint32_t readings_ = 0;  // of the device, before the call
};

// The driver has destroyed a small array with this `unread_since`. Takes `cold_paths`.
void release_small_array(Process& process, int device_index, uint32_t unread_since);

// The driver has destroyed the context, and the code in it. Takes `cold_paths`.
void forget_code(Process& process, uint16_t context);

// Reads the driver-reported usage if the last reading is old or has failed. True if the overhead is
// less than what was charged. `own` units are reserved by the calling thread for a call that it has
// not made yet.
bool refresh_overhead(Process& process, int device_index, uint64_t own = 0);

// Programs choose their sizes by the free memory that they read, so an older reading is renewed
// first.
inline bool reading_is_stale(Process& process, int device_index) {
  return coarse_now_s() >= process.overhead[device_index].stale_s.load(std::memory_order_relaxed);
}
// For hooks after which the driver may have taken memory unseen.
inline void outdate_reading(Process& process, int device_index) {
  process.overhead[device_index].stale_s.store(0, std::memory_order_relaxed);
}
// Reads the usage again, in one thread if several ask.
[[gnu::cold]] void renew_reading(Process& process, int device_index);

// The driver may have given overhead back: reads its reported usage now. False if the driver
// reports none.
bool settle_overhead(Process& process, int device_index);

// The same after a library was unloaded, whose memory the driver may keep for other code.
void settle_unloaded_library(Process& process, int device_index);

// Gives back what only descriptors held that are closed by now; see OpenExports. True if there was
// any. The form without the lock leaves what this process itself may have imported to a reading.
bool give_back_closed_exports(Process& process);
void give_back_closed_exports(const OverheadLock& lock);

// `units` of memory with this token in OpenExports were freed. Returns the export's number in the
// ledger.
uint32_t take_export(Process& process, uint64_t token, uint64_t units);

// Gives back `units` of a freed export that no descriptor holds. As much as importers may still
// hold stays charged to the tenant. `number`: the export's in the ledger. Takes `cold_paths` if
// this process may hold some itself, by an import of its own export.
void give_back_released_export(Process& process, int device_index, uint64_t units, uint32_t number);

// Lowers the overhead by `units` that the caller knows to be gone.
void release_overhead(Process& process, int device_index, uint64_t units);

// The driver has destroyed a context: reads the usage, or subtracts the estimate (units) if the
// driver reports none.
void settle_after_destroy(Process& process, int device_index, uint64_t estimate);

}  // namespace fracgpu
