// Reserves and charges overhead; see overhead.h. overhead_reading.cc measures it.
#include "shim/charge/overhead.h"

#include <algorithm>

#include "shim/charge/overhead_reading.h"
#include "shim/charge/pools.h"
#include "shim/charge/refusal.h"
#include "shim/vendor/backend.h"

namespace fracgpu {
namespace {

using layout::kUnit;

// By public reports, contexts take from 150 to 600 MiB. The bounds leave room on both sides; a size
// outside of them is not a context's. tests/hardware.sh measures contexts, as context.first_bytes.
constexpr uint64_t kLeastContext = (32u << 20) / kUnit, kMostContext = (1u << 30) / kUnit;

void note_context_size(Process& process, int device_index, uint64_t units) {
  process.ledger.set_context_size(device_index,
                                  std::max(units, process.ledger.context_size(device_index)));
}

// The estimate may be larger than the real size. Only a process that holds all the tenant's memory
// may then try with what remains, because it can push no other process over the cap.
uint64_t room_if_alone(Process& process, int device_index) {
  const uint64_t held = process.ledger.held(device_index), cap = process.ledger.cap(device_index);
  const bool alone = held == process.ledger.held_by_self(device_index);
  return alone && cap > held ? cap - held : 0;
}

// Makes the runtime give back what it keeps unused, if the cap has no room for `units`. The caller
// must not hold `cold_paths`.
void trim_runtime_for(const Process& process, int device_index, uint64_t units) {
  const char* const key = process.ledger.map()->devices[device_index].key;
  if (process.ledger.held(device_index) + units > process.ledger.cap(device_index))
    backend_of(key).trim(key);
}

}  // namespace

OverheadReservation::OverheadReservation(Process& process, int device_index, uint64_t units,
                                         const AskingCall& call, Kind kind,
                                         const ModuleImage& image, const ContextLimit& limit)
    : process_(process),
      device_index_(device_index),
      call_(call),
      kind_(kind),
      image_(image),
      limit_(limit),
      units_(units),
      foreseen_(kind == Kind::given || kind == Kind::code || kind == Kind::array ||
                kind == Kind::limit) {
  const OverheadLock lock(process);
  Refusal refusal;
  if (kind == Kind::module) foresee_module(lock);
  // An array that shares a chunk takes one chunk at most. Until many were made, that is charged.
  if (kind == Kind::array)
    unread_ = process.overhead[device_index].unread_arrays < kMostUnreadArrays;
  granted_ = process.ledger.reserve(device_index, units_, refusal);
  if (!granted_ && refusal.fault.empty()) {
    const bool trimmed = trim_pools(lock, device_index);
    if (reconcile_overhead(lock, device_index) == Reading::believed || trimmed) {
      granted_ = process.ledger.reserve(device_index, units_, refusal);
    }
  }
  if (!granted_ && refusal.fault.empty() && !foreseen_) {
    // Another process may have measured a context meanwhile. The next module may be smaller than
    // all before.
    const uint64_t seen = is_context() ? process.ledger.context_size(device_index) : 0;
    const KnownModule* const known =
        kind == Kind::module ? process.modules.of_image(image.key, image.context) : nullptr;
    units_ = seen != 0                                   ? seen
             : known != nullptr && known->seen_once != 0 ? known->seen_once
                                                         : room_if_alone(process, device_index);
    if (kind == Kind::module && units_ < least_room(units)) units_ = 0;
    granted_ = units_ > 0 && process.ledger.reserve(device_index, units_, refusal);
  }
  if (granted_) {
    process.overhead[device_index].pending.fetch_add(units_, std::memory_order_relaxed);
    const bool guessed = kind_ == Kind::module && process.overhead[device_index].untold;
    if (kind_ == Kind::context || guessed) {
      used_before_ = use_by_all(process, device_index);
      held_before_ = process.ledger.held(device_index);
    }
  } else {
    report_refusal(process, device_index, call, refusal);
  }
}

// Decides whether the module's size is known, and otherwise how much is reserved for it.
void OverheadReservation::foresee_module(const OverheadLock& lock) {
  Overhead& overhead = process_.overhead[device_index_];
  const KnownModule* const known = process_.modules.of_image(image_.key, image_.context);
  const bool settled = known != nullptr && known->settled && known->handle == nullptr;
  unread_ = settled && overhead.unread.take();
  if (!unread_ && overhead.size_in_doubt) {
    read_before_ = reconcile_overhead(lock, device_index_) == Reading::believed;
    overhead.size_in_doubt = false;  // also if nothing can be learnt now
  }
  foreseen_ = unread_ || (known != nullptr && known->seen > 0);
  // An image that is larger than the device reveals nothing: the driver will report the error.
  const uint64_t physical = process_.ledger.map()->devices[device_index_].physical_bytes;
  if (physical != 0 && image_.units > layout::units_for(physical)) image_.units = 0;
  if (foreseen_) {
    units_ = unread_ ? known->units : known->seen;
  } else {
    units_ = image_.units + seen_of_others().foreseen(units_);
  }
}

// With less room, a module is not tried: it would not fit, by its own image and by earlier modules.
uint64_t OverheadReservation::least_room(uint64_t estimate) const {
  return image_.units + std::min(seen_of_others().most(), estimate);
}

// What such modules took beyond the size in their images.
LargestSeen& OverheadReservation::seen_of_others() const {
  Overhead& overhead = process_.overhead[device_index_];
  return image_.units != 0 ? overhead.excess : overhead.growth;
}

OverheadReservation OverheadReservation::for_module(Process& process, int device_index,
                                                    const char* api, uint64_t estimate,
                                                    const ModuleImage& image) {
  return OverheadReservation(process, device_index, estimate, api, Kind::module, image);
}

OverheadReservation OverheadReservation::for_limit(Process& process, int device_index,
                                                   const char* api, uint64_t units,
                                                   const ContextLimit& limit) {
  trim_runtime_for(process, device_index, units);
  return OverheadReservation(process, device_index, units, api, Kind::limit, {}, limit);
}

OverheadReservation OverheadReservation::for_context(Process& process, int device_index,
                                                     const char* api, uint64_t estimate) {
  const uint64_t seen = process.ledger.context_size(device_index);
  const uint64_t units = seen != 0 ? seen : estimate;
  trim_runtime_for(process, device_index, units);
  return OverheadReservation(process, device_index, units, api, Kind::context);
}

OverheadReservation::~OverheadReservation() {
  if (!granted_ || units_ == 0) return;
  const OverheadLock lock(process_);
  process_.overhead[device_index_].pending.fetch_sub(units_, std::memory_order_relaxed);
  process_.ledger.release(device_index_, units_);
}

void OverheadReservation::extend(uint64_t units) {
  units_ += units;
  process_.overhead[device_index_].pending.fetch_add(units, std::memory_order_relaxed);
}

// Before the reservation is given back: other processes must not see the rest as free in between.
void OverheadReservation::failed_half_way(uint64_t units) {
  const OverheadLock lock(process_);
  std::atomic<uint64_t>& pending = process_.overhead[device_index_].pending;
  pending.fetch_sub(units_, std::memory_order_relaxed);
  if (reconcile_overhead(lock, device_index_, units_) != Reading::believed) {
    const uint64_t kept = std::min(units, units_);
    add_overhead(lock, device_index_, kept);
    units_ -= kept;
  }
  pending.fetch_add(units_, std::memory_order_relaxed);
}

void OverheadReservation::refused_by_driver() const {
  report_driver_refusal(process_, device_index_, call_, units_);
}

// The call's effect on the overhead.
struct OverheadReservation::Outcome {
  Reading reading = Reading::in_flight;
  uint64_t before = 0, after = 0;  // units
  bool exact = false;              // `after` is the driver's count, to the unit

  uint64_t grown() const { return after > before ? after - before : 0; }
};

bool OverheadReservation::made(const void* handle) {
  const OverheadLock lock(process_);
  Outcome outcome;
  if (settle(lock, handle, outcome)) return true;
  report_excess(outcome);
  // No reading will show that it is gone.
  if (is_guessed(outcome)) charge_overhead(lock, device_index_, outcome.before);
  // The caller unloads it by the driver's own function.
  if (KnownModule* const known = process_.modules.of_handle(handle); known != nullptr)
    known->handle = nullptr;
  return false;
}

void OverheadReservation::made_for_good() {
  const OverheadLock lock(process_);
  Outcome outcome;
  if (settle(lock, nullptr, outcome)) return;
  report(Level::warn, "{} took {} on {}, for which its cap has no room: it is charged, and stays",
         call_.api, human_bytes(outcome.grown() * kUnit).view(),
         process_.ledger.map()->devices[device_index_].key);
}

bool OverheadReservation::settle(const OverheadLock& lock, const void* handle, Outcome& outcome) {
  if (unread_) {
    charge_unread(lock, handle);
    return true;
  }
  outcome = read_outcome(lock);
  if (outcome.reading != Reading::in_flight)
    process_.overhead[device_index_].untold = outcome.reading == Reading::unknown;
  if (kind_ == Kind::module) learn_module(lock, outcome, handle);
  learn_from(lock, outcome);
  charge(lock, outcome);
  process_.recorder.add({.type = ring::Type::mark,
                         .device = static_cast<uint8_t>(device_index_),
                         .taken = outcome.grown() * kUnit},
                        call_.api);
  if (!process_.ledger.within_cap(device_index_)) return false;
  if (is_guessed(outcome) && outcome.grown() > 0) enter_guess(lock, handle, outcome.grown());
  return true;
}

bool OverheadReservation::is_guessed(const Outcome& outcome) const {
  return outcome.reading == Reading::unknown &&
         (kind_ == Kind::module || kind_ == Kind::code || kind_ == Kind::limit);
}

void OverheadReservation::enter_guess(const OverheadLock&, const void* handle, uint64_t units) {
  const bool is_limit = kind_ == Kind::limit && limit_.context != kUntrackedContext;
  const bool are_pages =
      kind_ == Kind::code && handle == nullptr && image_.context != kUntrackedContext;
  const uint64_t key = is_limit    ? GuessedCharges::key_of_limit(limit_.context, limit_.limit)
                       : are_pages ? GuessedCharges::key_of_pages(image_.context)
                                   : GuessedCharges::key_of(handle);
  if (key == 0) return;
  // A limit may be raised again, and an executable may hold several code objects.
  const bool adds = is_limit || kind_ == Kind::code;
  const uint64_t earlier = adds ? process_.guessed_charges.find(key).units : 0;
  process_.guessed_charges.enter({.key = key,
                                  .units = earlier + units,
                                  .device_index = device_index_,
                                  .context = kind_ == Kind::limit ? limit_.context : image_.context,
                                  .value = limit_.value});
}

// The reservation becomes overhead unchanged.
void OverheadReservation::charge_unread(const OverheadLock& lock, const void* handle) {
  Overhead& overhead = process_.overhead[device_index_];
  if (kind_ == Kind::array) {
    add_overhead(lock, device_index_, units_);
    overhead.unread_arrays += units_;
    unread_since_ = overhead.readings;
  } else {
    publish_overhead(process_, device_index_, overhead.units.fetch_add(units_) + units_);
    KnownModule* const known = process_.modules.of_image(image_.key, image_.context);
    process_.modules.note_beside();
    if (known != nullptr) {
      known->device_index = device_index_;
      process_.modules.enter(known, handle);
    }
  }
  overhead.pending.fetch_sub(units_, std::memory_order_relaxed);
  units_ = 0;
}

OverheadReservation::Outcome OverheadReservation::read_outcome(const OverheadLock& lock) {
  const Overhead& overhead = process_.overhead[device_index_];
  Outcome outcome;
  Bounds bounds;
  // While another such call is under way, the difference may belong to it.
  const bool only_one = overhead.pending.load(std::memory_order_relaxed) == units_;
  if (only_one) outcome.reading = measure_overhead(lock, device_index_, units_, bounds);
  // Read only now: measuring may have added to it.
  outcome.before = overhead.units.load(std::memory_order_relaxed);
  // A driver that counts nothing for a process with a context does not know the process.
  if (outcome.reading == Reading::believed && bounds.most == 0 && kind_ != Kind::runtime) {
    outcome.reading = Reading::unknown;
  }
  switch (outcome.reading) {
    case Reading::believed:
      outcome.after = bounds.nearest_to(outcome.before + units_, overhead.unconfirmed);
      outcome.exact = bounds.exact();
      break;
    case Reading::in_flight:
      outcome.after = outcome.before + units_;
      break;
    case Reading::unknown:
      outcome.after = outcome.before + (is_context()            ? estimate_context()
                                        : kind_ == Kind::module ? guess_module()
                                        : kind_ == Kind::limit || kind_ == Kind::code ? units_
                                                                                      : 0);
      outcome.after = std::max(outcome.after, least_overhead(process_, device_index_, units_));
  }
  return outcome;
}

// In units, if the driver does not report what this process holds: the measured size of the
// tenant's contexts, or otherwise what was reserved. The growth of the device's usage includes
// allocations and frees of other processes, so two contexts must have shown exactly the same
// growth. Less is charged only if the device's whole usage is less.
uint64_t OverheadReservation::estimate_context() {
  const uint64_t seemed = grown_by_all();
  const uint64_t grown = seemed >= kLeastContext && seemed <= kMostContext ? seemed : 0;
  if (grown != 0 && process_.ledger.add_context_sample(device_index_, grown)) {
    note_context_size(process_, device_index_, grown);
  }
  // Another process may have measured it meanwhile.
  const uint64_t seen = process_.ledger.context_size(device_index_);
  const uint64_t estimate = seen != 0 ? seen : std::max(grown, units_);
  const uint64_t before = process_.overhead[device_index_].units.load(std::memory_order_relaxed);
  const uint64_t most =
      kind_ == Kind::context ? most_overhead(process_, device_index_, units_) : kNotTold;
  const bool is_bound =
      most != kNotTold && most >= before + kLeastContext && most < before + estimate;
  const uint64_t charged = is_bound ? most - before : estimate;
  report(Level::info,
         "the driver does not tell what this process holds on {}: a context is "
         "charged by {}, {}, and modules by what its use grows by, if that is told",
         process_.ledger.map()->devices[device_index_].key,
         charged == grown || is_bound ? "what the GPU's use grew by" : "estimate",
         human_bytes(charged * kUnit).view());
  return charged;
}

// In units, if the driver does not report what this process holds: the growth of the device's whole
// usage, without what the tenant took or gave back meanwhile. If another tenant allocates at that
// moment, the result is too large; if another tenant frees, it is too small. 0 if not known.
uint64_t OverheadReservation::grown_by_all() const {
  const uint64_t used = used_before_ != kNotTold ? use_by_all(process_, device_index_) : kNotTold;
  if (used == kNotTold) return 0;
  const uint64_t before = used_before_ + process_.ledger.held(device_index_);
  const uint64_t after = used + held_before_;
  return after > before ? after - before : 0;
}

// More than modules take certainly belongs to another process. No public source states what modules
// take: tests/hardware.sh measures one, as context.module_bytes.
uint64_t OverheadReservation::guess_module() const {
  constexpr uint64_t kMost = (1u << 30) / kUnit;
  const uint64_t grown = grown_by_all();
  return grown <= kMost ? grown : 0;
}

// Remembers the size of a context or a module, if nothing else can be in the difference.
void OverheadReservation::learn_from(const OverheadLock&, const Outcome& outcome) {
  // One huge module whose image revealed no size is no reason to refuse all later ones: beside
  // another process, the next module needs as much room as this, however small it is. The price is
  // that a second huge one may exceed the cap for a moment: one of 299 MiB with room for 240 did so
  // with 4 to 128 MiB, and was refused before with 256.
  constexpr uint64_t kMostForeseen = (128u << 20) / kUnit;
  Overhead& overhead = process_.overhead[device_index_];
  if (!outcome.exact || !overhead.exact) return;
  if (is_context()) {
    if (outcome.grown() > 0) note_context_size(process_, device_index_, outcome.grown());
  } else if (kind_ == Kind::module) {
    // Since the last reading, code may have been loaded lazily, and a launch may have made the
    // local memory grow. In that case the next call reads first.
    if (outcome.grown() < image_.units) return;
    const uint64_t seen = std::min(outcome.grown() - image_.units, kMostForeseen);
    if (read_before_) seen_of_others().see(seen);
    overhead.size_in_doubt = seen_of_others().in_doubt(seen);
  }
}

// Whether modules took as much before, so that nothing else need be in it.
bool OverheadReservation::is_usual(uint64_t grown) const {
  return grown < image_.units || seen_of_others().covers(grown - image_.units);
}

// Remembers what loading this image took, for its unloading and its next loading.
void OverheadReservation::learn_module(const OverheadLock&, const Outcome& outcome,
                                       const void* handle) {
  KnownModule* const known = process_.modules.of_image(image_.key, image_.context);
  Overhead& overhead = process_.overhead[device_index_];
  const bool exact = outcome.exact && overhead.exact;
  // As far as the image reveals, all of it is in chunks of its own.
  const bool is_apart = exact && image_.units != 0 && outcome.grown() >= image_.units;
  if (!is_apart) process_.modules.note_beside();
  if (known == nullptr) return;
  // Beside an earlier load, this one may have got memory of another module.
  if (known->handle != nullptr && overhead.code_is_kept) return;
  const bool measured = exact && outcome.after >= outcome.before;
  if (measured && (read_before_ || is_usual(outcome.grown()))) {
    // Another thread may have given overhead back at the same moment, so that this seems to be
    // less.
    known->seen = known->seen_once == outcome.grown() ? outcome.grown() : 0;
    known->seen_once = outcome.grown();
  }
  if (known->handle != nullptr) return;  // an earlier load is still there
  known->measured = measured && (is_apart || image_.units == 0);
  known->grown = outcome.grown();
  if (known->settled && known->measured) {
    overhead.unread.judge(known->grown <= known->units);
    known->settled = known->grown == known->units;
  }
  if (!known->measured) known->settled = false;
  known->device_index = device_index_;
  process_.modules.enter(known, handle);
}

// The reservation becomes overhead.
void OverheadReservation::charge(const OverheadLock& lock, const Outcome& outcome) {
  Overhead& overhead = process_.overhead[device_index_];
  overhead.exact = outcome.exact;
  // Overhead that was not measured is read before the next refusal.
  if (outcome.reading == Reading::in_flight) {
    overhead.read_again_ms.store(0, std::memory_order_relaxed);
  }
  charge_overhead(lock, device_index_, outcome.after, units_);
  if (outcome.reading == Reading::believed) note_reading(lock, device_index_, outcome.exact);
  publish_allocation_count(process_, device_index_);
  overhead.pending.fetch_sub(units_, std::memory_order_relaxed);
  units_ = 0;
}

// The call took more than the cap has room for.
void OverheadReservation::report_excess(const Outcome& outcome) {
  Refusal refusal;
  refusal.asked = outcome.grown();
  refusal.held = process_.ledger.held(device_index_) - refusal.asked;
  refusal.cap = process_.ledger.cap(device_index_);
  report_refusal(process_, device_index_, call_, refusal);
}

bool usage_is_told(Process& process, int device_index) {
  const OverheadLock lock(process);
  return !process.overhead[device_index].untold;
}

uint64_t charged_limit(Process& process, int device_index, uint16_t context, int limit) {
  const OverheadLock lock(process);
  if (!process.overhead[device_index].untold || context == kUntrackedContext) return 0;
  return process.guessed_charges.find(GuessedCharges::key_of_limit(context, limit)).value;
}

void defer_to_reported_usage(Process& process, int device_index, uint64_t units) {
  defer_to_reported_usage(OverheadLock(process), device_index, units);
}

void defer_to_reported_usage(const OverheadLock& lock, int device_index, uint64_t units) {
  add_overhead(lock, device_index, units);
  lock.process().overhead[device_index].read_again_ms.store(0, std::memory_order_relaxed);
}

void defer_exported(Process& process, int device_index, uint64_t units, uint32_t number) {
  defer_exported(OverheadLock(process), device_index, units, number);
}

void defer_exported(const OverheadLock& lock, int device_index, uint64_t units, uint32_t number) {
  Process& process = lock.process();
  if (number != 0) {
    DeferredExport* const entry = process.deferred_exports.insert(number);
    if (entry == nullptr) {  // the host is out of memory; a reading shows what is not free yet
      process.ledger.free_exported(device_index, units, number);
      return;
    }
    entry->units += units;
    entry->device_index = device_index;
  }
  process.overhead[device_index].exported += units;
  defer_to_reported_usage(lock, device_index, units);
}

}  // namespace fracgpu
