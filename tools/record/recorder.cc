// See recorder.h.
#include "tools/record/recorder.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <thread>

#include "shim/base/clock.h"
#include "shim/ledger/ledger_file.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/plain_text.h"
#include "tools/record/outsiders.h"
#include "tools/record/ring_file.h"
#include "tools/record/tracker.h"
#include "tools/recording/writer.h"

namespace fracgpu::tools {
namespace {

uint64_t clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

recording::Header header_of(const RecordingOptions& options) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return {.began_unix_ns = clock_ns(CLOCK_REALTIME),
          .command = options.command,
          .host = host,
          .tool_version = FRACGPU_VERSION,
          .stacks = options.frames > 0,
          .attached = options.attached};
}

template <size_t kSize>
std::string bounded(const char (&name)[kSize]) {
  return {name, strnlen(name, sizeof name)};
}

std::string ledger_path(const std::string& tenant) {
  return layout::kFilePrefix + tenant;
}

// The user whose processes are recorded. A tenant that does not exist yet will belong to this
// command's user.
uid_t owner_of(const std::string& tenant) {
  struct stat status = {};
  return stat(ledger_path(tenant).c_str(), &status) == 0 ? status.st_uid : geteuid();
}

}  // namespace

struct TenantRecorder::State {
  State(const std::string& tenant, const RecordingOptions& options)
      : tenant(tenant),
        ledger(ledger_path(tenant)),
        began_ns(clock_ns(CLOCK_MONOTONIC)),
        user(owner_of(tenant)),
        rings(tenant, static_cast<uint32_t>(options.frames), user),
        outsiders(tenant, user,
                  [this](const std::string& name, const std::string& why) {
                    note_unrecorded(name, why);
                  }),
        writer(options.output, header_of(options), options.force),
        tracker(writer, began_ns, options.device_name) {
    tracker.set_ledger([this](uint32_t slot, const ring::ProcessText& process,
                              const std::string& device) { return held(slot, process, device); });
  }

  void run();
  void take();
  void take_records();
  void renew_lossy();
  void look_for_dead();
  bool see_ledger();
  void note_roomless();
  void note_unrecorded(const std::string& name, const std::string& why);
  bool is_alive(uint32_t slot) const;
  std::optional<Tracker::Held> held(uint32_t slot, const ring::ProcessText& process,
                                    const std::string& device);
  void visit_ledger();

  const std::string tenant;

  const std::string ledger;
  const uint64_t began_ns;
  const uid_t user;  // whose processes are recorded
  // The order matters: a recording that cannot start must not replace an older one.
  RingFile rings;
  Outsiders outsiders;
  recording::Writer writer;
  Tracker tracker;
  LedgerFile ledger_file;                      // mapped while sums are renewed from it
  std::map<uint32_t, uint64_t> told_by_lossy;  // number of records at the last check
  std::atomic<bool> stop{false}, idle{true};
  std::string failure;
  uint32_t unrecorded = 0;
  std::string unrecorded_names;
  std::thread thread;
};

bool TenantRecorder::State::is_alive(uint32_t slot) const {
  const Descriptor file(open(ledger.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.get() >= 0 && LedgerFile::slot_is_alive(file.get(), slot);
}

// Maps the tenant's ledger, if it is not mapped yet.
bool TenantRecorder::State::see_ledger() {
  if (ledger_file.map() != nullptr && ledger_file.is_current()) return true;
  ledger_file.close();
  Message ignored;
  return ledger_file.open_existing(tenant.c_str(), LedgerFile::Access::read, ignored) ==
         LedgerFile::Result::ok;
}

std::optional<Tracker::Held> TenantRecorder::State::held(uint32_t slot,
                                                         const ring::ProcessText& process,
                                                         const std::string& device) {
  if (!see_ledger()) return {};
  const layout::Ledger& shown = *ledger_file.map();
  const layout::Slot& owner = shown.slots[slot];
  if (slot >= layout::slots_backed(shown) || owner.pid != process.pid ||
      owner.pid_namespace != process.pid_namespace || owner.start_time != process.start_time) {
    return {};
  }
  std::optional<Tracker::Held> held;
  layout::for_each_device(shown, [&](uint32_t row) {
    if (bounded(shown.devices[row].key) != device) return;
    const layout::Cell& cell = shown.cells[row][slot];
    const uint64_t units = layout::held_of(cell.held_and_lease.load(std::memory_order_acquire));
    const uint64_t most = std::max<uint64_t>(units, cell.peak.load(std::memory_order_relaxed));
    if (units <= layout::kMaxUnits)
      held = Tracker::Held{.now = units * layout::kUnit, .most = most * layout::kUnit};
  });
  return held;
}

void TenantRecorder::State::take_records() {
  rings.take([&](uint32_t slot, const ring::Record& record) { tracker.add(slot, record); },
             [&](uint32_t slot, uint64_t number) { tracker.missed(slot, number); },
             [&](uint32_t slot) { return is_alive(slot); });
}

// A process's ledger entry is comparable with its records only if it records nothing meanwhile.
void TenantRecorder::State::renew_lossy() {
  for (const uint32_t slot : tracker.lossy()) {
    const uint64_t told = rings.told(slot);
    uint64_t& before = told_by_lossy[slot];
    if (rings.is_empty(slot)) tracker.renew(slot, clock_ns(CLOCK_MONOTONIC), before == told);
    before = told;
  }
}

// Records of this moment may arrive a little later, because a thread can be interrupted between
// reading the clock and writing its record.
void TenantRecorder::State::take() {
  constexpr uint64_t kHeld_ns = 30'000'000;
  // Read before any record is taken: this thread may be interrupted at any time while others
  // record.
  const uint64_t until = clock_ns(CLOCK_MONOTONIC) - kHeld_ns;
  take_records();
  // A process that another process found gone had written all its records before that report.
  if (!tracker.gone().empty()) {
    take_records();
    for (const uint32_t slot : tracker.gone()) tracker.end(slot, clock_ns(CLOCK_MONOTONIC));
  }
  renew_lossy();
  tracker.write(until);
}

void TenantRecorder::State::look_for_dead() {
  for (const uint32_t slot : tracker.living()) {
    const uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (is_alive(slot)) {
      tracker.set_alive(slot, now);
    } else if (rings.is_empty(slot)) {
      tracker.end(slot, now);
    }
  }
  idle.store(tracker.living().empty(), std::memory_order_relaxed);
  if (see_ledger()) outsiders.look_in(*ledger_file.map());
}

void TenantRecorder::State::note_roomless() {
  uint32_t count = 0;
  const std::vector<ring::Unrecorded> first = rings.unrecorded(count);
  for (const ring::Unrecorded& each : first) {
    note_unrecorded(fmt::format("{} (PID {})", bounded(each.command),
                                each.host_pid != 0 ? each.host_pid : each.pid),
                    "its ring in /dev/shm had no room");
  }
  unrecorded += count - static_cast<uint32_t>(first.size());
}

void TenantRecorder::State::note_unrecorded(const std::string& name, const std::string& why) {
  constexpr uint32_t kNamed = 8;
  tracker.add_remark(fmt::format("{} was not recorded: {}", name, why), clock_ns(CLOCK_MONOTONIC));
  if (unrecorded < kNamed) {
    unrecorded_names += fmt::format("{}{}: {}", unrecorded == 0 ? "" : "; ", name, why);
  } else if (unrecorded == kNamed) {
    unrecorded_names += "; ...";
  }
  ++unrecorded;
}

// If the tenant's ledger exists, records changed caps in the recording, and writes the needed
// memory to the ledger for `fracgpu status` and `fracgpu metrics`.
void TenantRecorder::State::visit_ledger() {
  const std::map<std::string, uint64_t> needed = tracker.needed();
  LedgerFile file;
  Message ignored;
  if (file.open_existing(tenant.c_str(), LedgerFile::Access::write, ignored) !=
      LedgerFile::Result::ok) {
    return;
  }
  layout::Ledger& shown = *file.map();
  layout::for_each_device(shown, [&](uint32_t device) {
    const std::string key = bounded(shown.devices[device].key);
    const uint64_t cap =
        layout::cap_units(shown.devices[device].cap.load(std::memory_order_acquire));
    tracker.set_cap(key, cap == layout::kNoCap ? cap : cap * layout::kUnit,
                    clock_ns(CLOCK_MONOTONIC));
    const auto found = needed.find(key);
    if (found == needed.end()) return;
    const uint64_t units = layout::units_for(found->second);
    if (units > shown.needed[device].load(std::memory_order_relaxed))
      shown.needed[device].store(units, std::memory_order_relaxed);
  });
}

// A ring has room for 16 ms of calls that take 1 us each. If this process is killed, only the data
// that it has not flushed is lost.
void TenantRecorder::State::run() {
  constexpr long kPause_ms = 2;
  constexpr uint64_t kFlushInterval_ms = 60, kDeadInterval_ms = 20, kVisitInterval_ms = 1000;
  uint64_t flush_at = 0, dead_at = 0, visit_at = 0;
  try {
    while (!stop.load(std::memory_order_acquire)) {
      take();
      outsiders.look_elsewhere();
      const uint64_t now = coarse_now_ms();
      if (now >= dead_at) {
        look_for_dead();
        dead_at = now + kDeadInterval_ms;
      }
      if (now >= flush_at) {
        writer.flush();
        flush_at = now + kFlushInterval_ms;
      }
      if (now >= visit_at) {
        visit_ledger();
        visit_at = now + kVisitInterval_ms;
      }
      sleep_ms(kPause_ms);
    }
    take();
    look_for_dead();
    visit_ledger();
    note_roomless();
    tracker.write();
    writer.finish();
  } catch (const std::exception& error) {
    failure = error.what();
  }
}

TenantRecorder::TenantRecorder(const std::string& tenant, const RecordingOptions& options)
    : state_(std::make_unique<State>(tenant, options)) {
  // Signals belong to the thread that supervises the tree.
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

TenantRecorder::~TenantRecorder() {
  if (state_ != nullptr && state_->thread.joinable()) finish();
}

RecordingSummary TenantRecorder::finish() {
  state_->stop.store(true, std::memory_order_release);
  state_->thread.join();
  return {
      .events = state_->tracker.events(),
      .dropped = state_->tracker.dropped(),
      .processes = state_->tracker.processes(),
      .unrecorded = state_->unrecorded,
      .unrecorded_names = clean(state_->unrecorded_names.c_str(), state_->unrecorded_names.size()),
      .failure = state_->failure};
}

bool TenantRecorder::is_idle() const {
  return state_->idle.load(std::memory_order_relaxed);
}

}  // namespace fracgpu::tools
