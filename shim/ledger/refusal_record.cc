// Keeps refusals in the ledger for people to read later; see ledger.h and layout::RefusalRecord.
//
// A record is built in local memory, then stored word by word under its own number. Two processes
// write to one place only if one of them is stopped while 64 others are refused. The result of
// that, or of a death while storing, has a wrong check, and readers skip it.
#include <string.h>

#include "shim/base/clock.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

template <size_t N>
void copy_text(char (&to)[N], const char* from) {
  memcpy(to, from, strnlen(from, N - 1));
}

void store(layout::RefusalPlace& place, layout::RefusalRecord& record) {
  uint64_t words[sizeof record / 8];
  record.check = layout::check_of(record);
  memcpy(words, &record, sizeof record);
  for (size_t i = 0; i < sizeof record / 8; ++i) place.words[i].store(words[i], kRelaxed);
}

}  // namespace

void Ledger::record(int device, const char* api, const Refusal& refusal) const {
  layout::Ledger& ledger = *file_.map();
  const bool known = device >= 0;
  auto& counts = ledger.refusals[known ? device : static_cast<int>(layout::kMaxDevices)];
  counts[static_cast<uint32_t>(refusal.reason)].fetch_add(1, kRelaxed);

  const layout::Slot& self = ledger.slots[slot_];
  layout::RefusalRecord record;
  memset(static_cast<void*>(&record), 0, sizeof record);  // the check covers every byte
  record.number = ledger.refusal_number.fetch_add(1, kRelaxed) + 1;
  record.unix_ms = unix_now_ms();
  record.asked = refusal.asked;
  record.asked_bytes = refusal.asked_bytes;
  record.own = known ? held_by_self(device) : 0;
  record.held = refusal.held;
  record.cap = refusal.cap;
  record.largest = refusal.largest_held;
  record.reason = refusal.reason;
  record.uid = self.uid;
  record.host_pid = self.host_pid.load(kRelaxed);
  record.pid = self.pid;
  record.pid_namespace = self.pid_namespace;
  record.start_time = self.start_time;
  record.largest_pid = refusal.largest_pid;
  copy_text(record.largest_command, refusal.largest_command);
  memcpy(record.command, self.command, sizeof record.command);
  copy_text(record.api, api);
  if (known) memcpy(record.key, ledger.devices[device].key, sizeof record.key);
  store(ledger.refused[(record.number - 1) % layout::kMaxRefusals], record);
}

}  // namespace fracgpu
