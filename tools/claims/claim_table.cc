// Decides which launch gets which share; see claim_table.h. claim_file.h handles the file.
#include "tools/claims/claim_table.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shim/base/clock.h"
#include "shim/ledger/ledger_file.h"
#include "tools/cli/plain_text.h"

namespace fracgpu::tools {
namespace {

using claim_table_layout::kEighths;
using claim_table_layout::kMaxClaims;
using claim_table_layout::kMaxGpus;
using claim_table_layout::MigGrant;
using claim_table_layout::MigPhase;
using claim_table_layout::State;
// Instances take seconds to make, and up to seven may be made on a GPU one after the other.
constexpr uint64_t kInstances_ms = 300'000;
constexpr uint64_t kMib = 1 << 20;
// How often a waiting launch checks for killed launches.
constexpr uint64_t kLookInterval_ms = 200;
// How often a waiting launch confirms that it still waits, and how long a confirmation counts. If a
// machine is so busy that a waiting launch does not run for that long, the launch only loses a
// turn.
constexpr uint64_t kSayInterval_ms = 1000;
constexpr uint64_t kBelieved_ms = 3000;

// Whether the tenant has a process that uses a GPU.
bool tenant_uses_gpu(const std::string& tenant) {
  if (tenant.empty() || tenant.find('/') != tenant.npos) return false;
  const Descriptor file(
      open((layout::kFilePrefix + tenant).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.get() >= 0 && LedgerFile::any_slot_is_alive(file.get());
}

void copy_text(char* to, size_t size, const std::string& text) {
  memset(to, 0, size);
  text.copy(to, size - 1);
}

// Texts that do not fit get a hash in place of their end, so that they stay distinguishable.
std::string shortened(const std::string& text, size_t size) {
  if (text.size() < size) return text;
  return text.substr(0, size - 24) + fmt::format("...{:016x}", std::hash<std::string>()(text));
}

MigWish wish_of(const claim_table_layout::Claim& claim) {
  MigWish wish{.kind = static_cast<MigWish::Kind>(claim.mig_wish), .amount = claim.mig_amount};
  if (wish.kind == MigWish::Kind::memory) wish.amount *= kMib;
  wish.profile = clean(claim.mig_profile, sizeof claim.mig_profile);
  return wish;
}

// Ends a row without a lock.
void bury(claim_table_layout::Claim& claim) {
  claim.state = claim.mig.phase == MigPhase::none ? State::free : State::abandoned;
}

}  // namespace

bool ClaimTable::is_alive(const Lock& lock, uint32_t row) const {
  if (ClaimFile::is_row_locked(lock, row)) return true;
  const Row& claim = table_.claims[row];
  return claim.state == State::held &&
         tenant_uses_gpu(std::string(claim.tenant, strnlen(claim.tenant, sizeof claim.tenant)));
}

bool ClaimTable::is_awake(const Row& claim) {
  return claim.seen_ms == 0 || coarse_now_ms() < claim.seen_ms + kBelieved_ms;
}

int ClaimTable::drop_dead(const Lock& lock) {
  int dropped = 0;
  for (uint32_t row = 0; row < table_.counters.claims_in_use; ++row) {
    Row& claim = table_.claims[row];
    if (claim.state == State::free || claim.state == State::abandoned) continue;
    if (!is_alive(lock, row)) {
      bury(claim);
      ++dropped;
    } else if (claim.state == State::held && claim.taken == 0 && !is_awake(claim)) {
      claim.state = State::waiting;
      claim.mig = {};
      if (claim.count != 0) memset(claim.eighths, 0, sizeof claim.eighths);
    } else {
      continue;
    }
    file_.write(lock, &claim, sizeof claim);
  }
  return dropped;
}

std::vector<uint32_t> ClaimTable::waiting_in_order(bool asleep_too) const {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < table_.counters.claims_in_use; ++row) {
    const Row& claim = table_.claims[row];
    if (claim.state == State::waiting && (asleep_too || is_awake(claim))) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
    const Row &first = table_.claims[a], &second = table_.claims[b];
    return first.priority != second.priority ? first.priority > second.priority
                                             : first.ticket < second.ticket;
  });
  return rows;
}

Shares ClaimTable::free_eighths() const {
  uint32_t used[kMaxGpus] = {};
  for (uint32_t row = 0; row < table_.counters.claims_in_use; ++row) {
    if (table_.claims[row].state != State::held) continue;
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) used[gpu] += table_.claims[row].eighths[gpu];
  }
  Shares free{};
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    free[gpu] = static_cast<uint8_t>(kEighths - std::min(used[gpu], kEighths));
  }
  return free;
}

// kMaxGpus if the GPU has no row.
uint32_t ClaimTable::row_of(const std::string& key) const {
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (strncmp(table_.gpus[gpu].key, key.c_str(), layout::kNameBytes) == 0) return gpu;
  }
  return kMaxGpus;
}

std::vector<DividedGpu> ClaimTable::divided_gpus() const {
  std::vector<DividedGpu> gpus;
  for (const MigGpu& each : mig_gpus_) {
    const uint32_t row = row_of(each.key);
    if (row == kMaxGpus) continue;  // no launch requests it
    SliceMask promised = 0;
    for (uint32_t i = 0; i < table_.counters.claims_in_use; ++i) {
      const Row& claim = table_.claims[i];
      const bool has = claim.state == State::held || claim.state == State::abandoned;
      if (has && claim.mig.phase != MigPhase::none && claim.mig.gpu == row) {
        promised |= mask_of(claim.mig);
      }
    }
    gpus.push_back({.row = row, .gpu = each, .fixed = each.occupied & ~promised});
    gpus.back().gpu.occupied |= promised;
  }
  return gpus;
}

// The waiting launches that can be served now, and their shares.
std::vector<ClaimTable::Served> ClaimTable::plan() const {
  const std::vector<uint32_t> rows = waiting_in_order(false);
  std::vector<PlacementRequest> requests;
  for (const uint32_t row : rows) {
    const Row& claim = table_.claims[row];
    PlacementRequest request{claim.allowed,  claim.each,       claim.count, {},
                             wish_of(claim), claim.mig_allowed};
    if (claim.count == 0) std::copy_n(claim.eighths, kMaxGpus, request.exact.begin());
    requests.push_back(request);
  }
  const auto placed = serve(requests, {free_eighths(), divided_gpus()});
  std::vector<Served> served;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (placed[i]) served.push_back({rows[i], *placed[i]});
  }
  return served;
}

void ClaimTable::grant(const Placed& placed, Row& row) {
  std::copy(placed.eighths.begin(), placed.eighths.end(), row.eighths);
  if (!placed.instance) return;
  row.mig = {.gpu = static_cast<uint8_t>(placed.instance->row),
             .start = placed.instance->start,
             .slices = static_cast<uint8_t>(placed.instance->profile.slices),
             .phase = MigPhase::promised,
             .profile = placed.instance->profile.id,
             .instance = 0,
             .reserved = 0};
}

void ClaimTable::serve_waiting(const Lock& lock) {
  for (const Served& served : plan()) {
    Row& claim = table_.claims[served.row];
    grant(served.placed, claim);
    claim.state = State::held;
    file_.write(lock, &claim, sizeof claim);
  }
  table_.counters.scheduled_ms = coarse_now_ms();
  file_.write(lock, &table_.counters, sizeof table_.counters);
}

// The row of the GPU. If it has none, a free row, or a row that no launch holds or awaits and that
// is not in `taken`.
uint32_t ClaimTable::gpu_row(const std::string& key, uint64_t taken) {
  uint64_t needed = taken;
  for (uint32_t row = 0; row < table_.counters.claims_in_use; ++row) {
    const Row& claim = table_.claims[row];
    if (claim.state == State::free) continue;
    needed |= claim.allowed | claim.mig_allowed;
    if (claim.mig.phase != MigPhase::none) needed |= uint64_t{1} << claim.mig.gpu;
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      if (claim.eighths[gpu] != 0) needed |= uint64_t{1} << gpu;
    }
  }
  if (const uint32_t there = row_of(key); there != kMaxGpus) return there;
  uint32_t best = kMaxGpus;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    const char* const there = table_.gpus[gpu].key;
    const bool better = best == kMaxGpus || (*there == '\0' && *table_.gpus[best].key != '\0');
    if ((needed >> gpu & 1) == 0 && better) best = gpu;
  }
  if (best == kMaxGpus) {
    throw std::runtime_error(
        fmt::format("{} has no room for another GPU: {} are in use", file_.path(), kMaxGpus));
  }
  copy_text(table_.gpus[best].key, layout::kNameBytes, key);
  return best;
}

void ClaimTable::fill_request(const ClaimRequest& wanted, Row& row) {
  row.each = wanted.each;
  row.count = wanted.count;
  uint64_t taken = 0;
  for (size_t i = 0; i < wanted.gpus.size(); ++i) {
    const uint32_t gpu = gpu_row(wanted.gpus[i], taken);
    taken |= uint64_t{1} << gpu;
    if (wanted.count == 0) row.eighths[gpu] = wanted.exact[i];
  }
  if (wanted.count != 0) row.allowed = taken;
  row.mig_wish = static_cast<claim_table_layout::MigWish>(wanted.mig.kind);
  row.mig_amount = static_cast<uint32_t>(wanted.mig.kind == MigWish::Kind::memory
                                             ? (wanted.mig.amount + kMib - 1) / kMib
                                             : wanted.mig.amount);
  copy_text(row.mig_profile, sizeof row.mig_profile, wanted.mig.profile);
  for (const std::string& key : wanted.mig_gpus) {
    const uint64_t bit = uint64_t{1} << gpu_row(key, taken);
    row.mig_allowed |= bit;
    taken |= bit;
  }
}

Claim ClaimTable::enter(const ClaimRequest& wanted) {
  Claim mine{file_.open_for_life()};
  look_at_driver();
  const std::string asked = shortened(wanted.asked, sizeof(Row::asked));

  const Lock lock(file_);
  file_.load(lock);
  drop_dead(lock);
  auto& in_use = table_.counters.claims_in_use;
  uint32_t same = in_use, unused = in_use;
  for (uint32_t row = in_use; row-- > 0;) {
    const Row& there = table_.claims[row];
    if (there.state == State::free) {
      unused = row;
    } else if (there.state != State::abandoned &&
               strncmp(there.tenant, wanted.tenant.c_str(), sizeof there.tenant) == 0) {
      same = row;
    }
  }
  const bool joins = same < in_use;
  mine.row = joins ? same : unused;
  if (mine.row == kMaxClaims) {
    throw std::runtime_error(fmt::format("{} is full: {} launches run or wait on this machine",
                                         file_.path(), kMaxClaims));
  }
  Row& entry = table_.claims[mine.row];
  if (joins && strncmp(entry.asked, asked.c_str(), sizeof entry.asked) != 0) {
    throw std::runtime_error(fmt::format(
        "tenant {} runs already with other caps, '{}', and this launch asks for '{}'; ask for the "
        "same, or take another name",
        wanted.tenant, clean(entry.asked, sizeof entry.asked), asked));
  }
  // The lock comes first: a row counts only with its lock.
  file_.lock_row(mine.life.get(), mine.row);
  if (joins) return mine;

  entry = Row{};
  fill_request(wanted, entry);
  entry.state = State::waiting;
  entry.pid = static_cast<uint32_t>(getpid());
  entry.uid = static_cast<uint32_t>(getuid());
  entry.priority = wanted.priority;
  entry.ticket = table_.counters.next_ticket++;
  entry.since_unix_s = static_cast<uint64_t>(time(nullptr));
  entry.seen_ms = std::max<uint64_t>(coarse_now_ms(), 1);
  copy_text(entry.tenant, sizeof entry.tenant, wanted.tenant);
  copy_text(entry.command, sizeof entry.command, wanted.command);
  copy_text(entry.asked, sizeof entry.asked, asked);
  in_use = std::max(in_use, mine.row + 1);
  file_.write(lock, table_.gpus, sizeof table_.gpus);
  file_.write(lock, &table_.counters, sizeof table_.counters);
  file_.write(lock, &entry, sizeof entry);
  serve_waiting(lock);
  return mine;
}

bool ClaimTable::preview(const ClaimRequest& wanted, std::vector<Share>& shares) {
  look_at_driver();
  const Lock lock(file_);
  file_.load(lock);
  drop_dead(lock);
  auto& in_use = table_.counters.claims_in_use;
  if (in_use == kMaxClaims) return false;
  // A row after the existing ones. It is never written.
  const uint32_t row = in_use;
  Row& entry = table_.claims[row];
  entry = Row{};
  fill_request(wanted, entry);
  entry.state = State::waiting;
  entry.priority = wanted.priority;
  entry.ticket = UINT64_MAX;
  ++in_use;
  for (const Served& served : plan()) {
    if (served.row != row) continue;
    grant(served.placed, entry);
    shares = shares_of(entry);
    return true;
  }
  return false;
}

bool ClaimTable::served(const Claim& claim, std::vector<Share>& shares) {
  // Reads without the lock whether something changed, and with the lock what changed.
  Row& row = table_.claims[claim.row];
  file_.look(claim.life.get(), &table_.counters, sizeof table_.counters);
  file_.look(claim.life.get(), &row, sizeof row);
  if (row.state == State::waiting && coarse_now_ms() < row.seen_ms + kSayInterval_ms &&
      coarse_now_ms() < table_.counters.scheduled_ms + kLookInterval_ms) {
    return false;
  }
  look_at_driver();
  const Lock lock(file_);
  file_.load(lock);
  row.seen_ms = std::max<uint64_t>(coarse_now_ms(), 1);
  file_.write(lock, &row, sizeof row);
  drop_dead(lock);
  serve_waiting(lock);
  if (row.state != State::held) return false;
  row.taken = 1;
  file_.write(lock, &row, sizeof row);
  shares = shares_of(row);
  return true;
}

std::vector<Share> ClaimTable::shares_of(const Row& row) const {
  std::vector<Share> shares;
  const auto key = [this](uint32_t gpu) { return clean(table_.gpus[gpu].key, layout::kNameBytes); };
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (row.eighths[gpu] != 0) shares.push_back({.key = key(gpu), .eighths = row.eighths[gpu]});
  }
  if (row.mig.phase != MigPhase::none && row.mig.gpu < kMaxGpus) {
    shares.push_back({.key = key(row.mig.gpu), .instance = row.mig});
  }
  return shares;
}

ClaimFile::Lock ClaimTable::lock_instances(uint32_t gpu) const {
  return {file_, claim_table_layout::mig_lock(gpu), kInstances_ms};
}

MigGrant ClaimTable::instance_of(const Claim& claim) {
  const Lock lock(file_);
  file_.load(lock);
  return table_.claims[claim.row].mig;
}

void ClaimTable::note_made(const Claim& claim, uint32_t instance) {
  const Lock lock(file_);
  file_.load(lock);
  Row& row = table_.claims[claim.row];
  row.mig.instance = instance;
  row.mig.phase = MigPhase::made;
  file_.write(lock, &row, sizeof row);
}

void ClaimTable::wait_again(const Claim& claim) {
  const Lock lock(file_);
  file_.load(lock);
  Row& row = table_.claims[claim.row];
  row.state = State::waiting;
  row.mig = {};
  row.taken = 0;
  row.seen_ms = std::max<uint64_t>(coarse_now_ms(), 1);
  file_.write(lock, &row, sizeof row);
}

std::optional<Orphan> ClaimTable::take_orphan() {
  const Lock lock(file_);
  file_.load(lock);
  drop_dead(lock);
  for (uint32_t row = 0; row < table_.counters.claims_in_use; ++row) {
    const Row& claim = table_.claims[row];
    if (claim.state != State::abandoned || claim.mig.gpu >= kMaxGpus) continue;
    Orphan orphan{.life = file_.open_to_lock_alone(),
                  .row = row,
                  .gpu = clean(table_.gpus[claim.mig.gpu].key, layout::kNameBytes),
                  .instance = claim.mig};
    if (ClaimFile::lock_row_alone(orphan.life.get(), row)) return orphan;
  }
  return std::nullopt;
}

void ClaimTable::drop(Orphan orphan) {
  look_at_driver();
  const Lock lock(file_);
  file_.load(lock);
  Row& row = table_.claims[orphan.row];
  row = Row{};
  file_.write(lock, &row, sizeof row);
  drop_dead(lock);
  serve_waiting(lock);
}

int ClaimTable::tidy() {
  look_at_driver();
  const Lock lock(file_);
  file_.load(lock);
  const int dropped = drop_dead(lock);
  serve_waiting(lock);
  return dropped;
}

void ClaimTable::leave(Claim claim) {
  claim.life = Descriptor();
  look_at_driver();
  const Lock lock(file_);
  file_.load(lock);
  // Only the lock counts here: the tenant may have processes elsewhere that do not use this share.
  Row& row = table_.claims[claim.row];
  if (row.state != State::free && !ClaimFile::is_row_locked(lock, claim.row)) {
    bury(row);
    file_.write(lock, &row, sizeof row);
  }
  drop_dead(lock);
  serve_waiting(lock);
}

Launch ClaimTable::launch_of(const Row& claim) const {
  Launch launch{
      .waiting = claim.state == State::waiting,
      .pid = claim.pid,
      .uid = claim.uid,
      .priority = claim.priority,
      .since_unix_s = claim.since_unix_s,
      .tenant = clean(claim.tenant, sizeof claim.tenant),
      .command = clean(claim.command, sizeof claim.command),
      .asked = clean(claim.asked, sizeof claim.asked),
      .shares = {},
      .awaited = {},
  };
  if (!launch.waiting) launch.shares = shares_of(claim);
  for (uint32_t gpu = 0; launch.waiting && gpu < kMaxGpus; ++gpu) {
    const bool allowed = ((claim.allowed | claim.mig_allowed) >> gpu & 1) != 0;
    if (!allowed && claim.eighths[gpu] == 0) continue;
    launch.awaited.push_back(clean(table_.gpus[gpu].key, layout::kNameBytes));
  }
  return launch;
}

std::optional<Launch> ClaimTable::launch_in(uint32_t row) {
  const Lock lock(file_);
  file_.load(lock);
  if (row >= table_.counters.claims_in_use || table_.claims[row].state != State::held) {
    return std::nullopt;
  }
  return launch_of(table_.claims[row]);
}

std::vector<Launch> ClaimTable::launches() {
  const Lock lock(file_);
  file_.load(lock);
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < table_.counters.claims_in_use; ++row) {
    if (table_.claims[row].state == State::held) rows.push_back(row);
  }
  for (const uint32_t row : waiting_in_order(true)) rows.push_back(row);
  std::vector<Launch> found;
  for (const uint32_t row : rows) {
    if (!is_alive(lock, row)) continue;
    found.push_back(launch_of(table_.claims[row]));
  }
  return found;
}

}  // namespace fracgpu::tools
