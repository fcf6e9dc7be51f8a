// Records refusals and writes their lines; see refusal.h.
#include "shim/charge/refusal.h"

#include <algorithm>

#include "shim/base/call_stack.h"
#include "shim/charge/reservation.h"
#include "shim/charge/upper_call.h"
#include "shim/vendor/backend.h"

namespace fracgpu {

using layout::kUnit;
using layout::Reason;

namespace {

// What the program requested if that is less than `taken` bytes; otherwise 0.
uint64_t asked_if_less(const AskingCall& call, uint64_t taken) {
  const uint64_t above = UpperCall::asked_bytes(), asked = above != 0 ? above : call.bytes;
  return asked < taken ? asked : 0;
}

// Appends what the program requested, and what that takes if it differs in print.
void append_asked(Message& line, const Refusal& refusal) {
  const Text<24> in_words = human_bytes(refusal.asked_bytes);
  const Text<24> rounded = human_bytes(refusal.asked * kUnit);
  if (refusal.asked_bytes == 0 || in_words.view() == rounded.view()) {
    line.append("asked {}, ", rounded.view());
  } else {
    line.append("asked {} (which takes {}), ", in_words.view(), rounded.view());
  }
}

uint8_t recorded_index(int device_index) {
  return device_index < 0 ? ring::kNoDevice : static_cast<uint8_t>(device_index);
}

}  // namespace

void report_refusal(Process& process, int device_index, const AskingCall& call, Refusal& refusal) {
  const char* const api = call.api;
  unsigned held_back = 0;
  UpperCall::note_refusal_reported();
  refusal.asked = std::min(refusal.asked, UINT64_MAX / kUnit);
  refusal.asked_bytes = asked_if_less(call, refusal.asked * kUnit);
  if (!refusal.fault.empty()) refusal.reason = Reason::ledger;
  process.ledger.record(device_index, api, refusal);
  process.recorder.add(
      {.type = ring::Type::refused,
       .device = recorded_index(device_index),
       .reason = static_cast<uint8_t>(refusal.reason),
       .address = refusal.held * kUnit,
       .bytes = refusal.asked_bytes != 0 ? refusal.asked_bytes : refusal.asked * kUnit,
       .taken = refusal.asked * kUnit,
       .owner = refusal.cap * kUnit},
      api);
  if (device_index >= 0) publish_allocation_count(process, device_index);
  if (!logs(Level::warn) || !process.refusal_rate.pass(held_back)) return;
  Message line;
  if (refusal.reason == Reason::ledger) {
    line.format("{} refused: {}", api, refusal.fault.view());
  } else {
    const char* key = process.ledger.map()->devices[device_index].key;
    line.format("{} refused on {}: ", api, backend_of(key).describe(key).view());
    if (refusal.reason == Reason::runtime) {
      line.append("the runtime is out of memory by its own count, ");
    } else {
      append_asked(line, refusal);
    }
    if (refusal.reason == Reason::driver) line.append("which the driver does not have; ");
    line.append("in use {} of cap {}", human_bytes(refusal.held * kUnit).view(),
                human_bytes(refusal.cap * kUnit).view());
    if (refusal.largest_held > 0) {
      line.append("; pid {} ({:.16}) holds the most, {}", refusal.largest_pid,
                  refusal.largest_command, human_bytes(refusal.largest_held * kUnit).view());
    }
  }
  if (held_back > 0) line.append(" [{} refusals not shown]", held_back);
  write_line(Level::warn, line.view());
  if (report_call_stack != nullptr) report_call_stack();
  if (device_index >= 0) process.call_sites.report(process.allocations, device_index);
}

void report_driver_refusal(Process& process, int device_index, const AskingCall& call,
                           uint64_t units) {
  Refusal refusal{.reason = Reason::driver};
  process.ledger.explain(device_index, units, refusal);
  refusal.held -= std::min(refusal.held, units);
  report_refusal(process, device_index, call, refusal);
}

void report_runtime_refusal(Process& process, int device_index, const char* api) {
  if (device_index < 0) return;
  Refusal refusal{.reason = Reason::runtime};
  process.ledger.explain(device_index, 0, refusal);
  report_refusal(process, device_index, api, refusal);
}

void report_fault(Process& process, const char* api) {
  unsigned held_back = 0;
  UpperCall::note_refusal_reported();
  if (process.has_joined()) process.ledger.record(-1, api, {.reason = Reason::ledger});
  // Faults stay, and had their line when they occurred.
  if (!process.fault().empty() || !process.device_fault().empty()) return;
  if (!logs(Level::error) || !process.refusal_rate.pass(held_back)) return;
  report(Level::error, "{} refused: {}", api,
         process.lacked_descriptor() ? "no file descriptor is free, by which to use the ledger"
                                     : "the driver does not tell whose memory it would be");
}

}  // namespace fracgpu
