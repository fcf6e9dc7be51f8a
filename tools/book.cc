// Decides what the book says; see book.h. Its file is that of book_file.h.
#include "tools/book.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shim/clock.h"
#include "shim/ledger_file.h"
#include "tools/plain_text.h"

namespace fracgpu::tools {
namespace {

using book_layout::kMaxClaims;
using book_layout::kMaxGpus;
using book_layout::kParts;
using book_layout::State;
// How often somebody who waits looks for launches that were killed.
constexpr uint64_t kLookInterval_ms = 200;

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

// Texts that do not fit are told apart by a number in place of their end.
std::string shortened(const std::string& text, size_t size) {
  if (text.size() < size) return text;
  return text.substr(0, size - 24) + fmt::format("...{:016x}", std::hash<std::string>()(text));
}

}  // namespace

bool Book::is_alive(const Lock& lock, uint32_t row) const {
  if (BookFile::is_row_locked(lock, row)) return true;
  const Row& claim = book_.claims[row];
  return claim.state == State::held &&
         tenant_uses_gpu(std::string(claim.tenant, strnlen(claim.tenant, sizeof claim.tenant)));
}

int Book::drop_dead(const Lock& lock) {
  int dropped = 0;
  for (uint32_t row = 0; row < book_.counters.claims_in_use; ++row) {
    Row& claim = book_.claims[row];
    if (claim.state == State::free || is_alive(lock, row)) continue;
    claim.state = State::free;
    file_.write(lock, &claim, sizeof claim);
    ++dropped;
  }
  return dropped;
}

std::vector<uint32_t> Book::waiting_in_order() const {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < book_.counters.claims_in_use; ++row) {
    if (book_.claims[row].state == State::waiting) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
    const Row &first = book_.claims[a], &second = book_.claims[b];
    return first.priority != second.priority ? first.priority > second.priority
                                             : first.ticket < second.ticket;
  });
  return rows;
}

Parts Book::free_parts() const {
  uint32_t used[kMaxGpus] = {};
  for (uint32_t row = 0; row < book_.counters.claims_in_use; ++row) {
    if (book_.claims[row].state != State::held) continue;
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) used[gpu] += book_.claims[row].parts[gpu];
  }
  Parts free{};
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    free[gpu] = static_cast<uint8_t>(kParts - std::min(used[gpu], kParts));
  }
  return free;
}

// Who of those that wait can be served now, and with what.
std::vector<Book::Served> Book::plan() const {
  const std::vector<uint32_t> rows = waiting_in_order();
  std::vector<Wish> wishes;
  for (const uint32_t row : rows) {
    const Row& claim = book_.claims[row];
    Wish wish{claim.allowed, claim.each, claim.count, {}};
    if (claim.count == 0) std::copy_n(claim.parts, kMaxGpus, wish.exact.begin());
    wishes.push_back(wish);
  }
  const auto placed = serve(wishes, free_parts());
  std::vector<Served> served;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (placed[i]) served.push_back({rows[i], *placed[i]});
  }
  return served;
}

void Book::serve_waiting(const Lock& lock) {
  for (const Served& served : plan()) {
    Row& claim = book_.claims[served.row];
    std::copy(served.parts.begin(), served.parts.end(), claim.parts);
    claim.state = State::held;
    file_.write(lock, &claim, sizeof claim);
  }
  book_.counters.scheduled_ms = coarse_now_ms();
  file_.write(lock, &book_.counters, sizeof book_.counters);
}

// The row of a GPU, or a free one, or one that nobody has or awaits and that is not among `taken`.
uint32_t Book::gpu_row(const std::string& key, uint64_t taken) {
  uint64_t needed = taken;
  for (uint32_t row = 0; row < book_.counters.claims_in_use; ++row) {
    const Row& claim = book_.claims[row];
    if (claim.state == State::free) continue;
    needed |= claim.allowed;
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      if (claim.parts[gpu] != 0) needed |= uint64_t{1} << gpu;
    }
  }
  uint32_t best = kMaxGpus;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    const char* const there = book_.gpus[gpu].key;
    if (strncmp(there, key.c_str(), layout::kNameBytes) == 0) return gpu;
    const bool better = best == kMaxGpus || (*there == '\0' && *book_.gpus[best].key != '\0');
    if ((needed >> gpu & 1) == 0 && better) best = gpu;
  }
  if (best == kMaxGpus) {
    throw std::runtime_error(
        fmt::format("{} has no room for another GPU: {} are in use", file_.path(), kMaxGpus));
  }
  copy_text(book_.gpus[best].key, layout::kNameBytes, key);
  return best;
}

void Book::fill_wish(const Asking& asking, Row& row) {
  row.each = asking.each;
  row.count = asking.count;
  uint64_t taken = 0;
  for (size_t i = 0; i < asking.gpus.size(); ++i) {
    const uint32_t gpu = gpu_row(asking.gpus[i], taken);
    taken |= uint64_t{1} << gpu;
    if (asking.count == 0) row.parts[gpu] = asking.exact[i];
  }
  if (asking.count != 0) row.allowed = taken;
}

Claim Book::enter(const Asking& asking) {
  Claim mine{file_.open_for_life()};
  const std::string asked = shortened(asking.asked, sizeof(Row::asked));

  const Lock lock(file_);
  file_.load(lock);
  drop_dead(lock);
  auto& in_use = book_.counters.claims_in_use;
  uint32_t same = in_use, unused = in_use;
  for (uint32_t row = in_use; row-- > 0;) {
    const Row& there = book_.claims[row];
    if (there.state == State::free) {
      unused = row;
    } else if (strncmp(there.tenant, asking.tenant.c_str(), sizeof there.tenant) == 0) {
      same = row;
    }
  }
  const bool joins = same < in_use;
  mine.row = joins ? same : unused;
  if (mine.row == kMaxClaims) {
    throw std::runtime_error(fmt::format("{} is full: {} launches run or wait on this machine",
                                         file_.path(), kMaxClaims));
  }
  Row& entry = book_.claims[mine.row];
  if (joins && strncmp(entry.asked, asked.c_str(), sizeof entry.asked) != 0) {
    throw std::runtime_error(fmt::format(
        "tenant {} runs already with other caps, '{}', and this launch asks for '{}'; ask for the "
        "same, or take another name",
        asking.tenant, clean(entry.asked, sizeof entry.asked), asked));
  }
  // The lock first: a row counts only with it.
  file_.lock_row(mine.life.get(), mine.row);
  if (joins) return mine;

  entry = Row{};
  fill_wish(asking, entry);
  entry.state = State::waiting;
  entry.pid = static_cast<uint32_t>(getpid());
  entry.uid = static_cast<uint32_t>(getuid());
  entry.priority = asking.priority;
  entry.ticket = book_.counters.next_ticket++;
  entry.since_unix_s = static_cast<uint64_t>(time(nullptr));
  copy_text(entry.tenant, sizeof entry.tenant, asking.tenant);
  copy_text(entry.command, sizeof entry.command, asking.command);
  copy_text(entry.asked, sizeof entry.asked, asked);
  in_use = std::max(in_use, mine.row + 1);
  file_.write(lock, book_.gpus, sizeof book_.gpus);
  file_.write(lock, &book_.counters, sizeof book_.counters);
  file_.write(lock, &entry, sizeof entry);
  serve_waiting(lock);
  return mine;
}

bool Book::preview(const Asking& asking, std::vector<Share>& shares) {
  const Lock lock(file_);
  file_.load(lock);
  drop_dead(lock);
  auto& in_use = book_.counters.claims_in_use;
  if (in_use == kMaxClaims) return false;
  // Beside the rows that exist, and never written.
  const uint32_t row = in_use;
  Row& entry = book_.claims[row];
  entry = Row{};
  fill_wish(asking, entry);
  entry.state = State::waiting;
  entry.priority = asking.priority;
  entry.ticket = UINT64_MAX;
  ++in_use;
  for (const Served& served : plan()) {
    if (served.row != row) continue;
    shares = shares_of(served.parts);
    return true;
  }
  return false;
}

bool Book::served(const Claim& claim, std::vector<Share>& shares) {
  // Whether something has changed is seen without the lock, and what it is only with it.
  Row& row = book_.claims[claim.row];
  file_.look(claim.life.get(), &book_.counters, sizeof book_.counters);
  file_.look(claim.life.get(), &row.state, sizeof row.state);
  if (row.state != State::waiting ||
      coarse_now_ms() >= book_.counters.scheduled_ms + kLookInterval_ms) {
    tidy();
  }
  if (row.state != State::held) return false;
  Parts parts;
  std::copy_n(row.parts, kMaxGpus, parts.begin());
  shares = shares_of(parts);
  return true;
}

std::vector<Share> Book::shares_of(const Parts& parts) const {
  std::vector<Share> shares;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (parts[gpu] == 0) continue;
    shares.push_back({clean(book_.gpus[gpu].key, layout::kNameBytes), parts[gpu]});
  }
  return shares;
}

int Book::tidy() {
  const Lock lock(file_);
  file_.load(lock);
  const int dropped = drop_dead(lock);
  serve_waiting(lock);
  return dropped;
}

void Book::leave(Claim claim) {
  claim.life = Descriptor();
  const Lock lock(file_);
  file_.load(lock);
  // Its tenant may have processes elsewhere, which this share was not for.
  Row& row = book_.claims[claim.row];
  if (row.state != State::free && !BookFile::is_row_locked(lock, claim.row)) {
    row.state = State::free;
    file_.write(lock, &row, sizeof row);
  }
  drop_dead(lock);
  serve_waiting(lock);
}

std::vector<Launch> Book::launches() {
  const Lock lock(file_);
  file_.load(lock);
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < book_.counters.claims_in_use; ++row) {
    if (book_.claims[row].state == State::held) rows.push_back(row);
  }
  for (const uint32_t row : waiting_in_order()) rows.push_back(row);
  std::vector<Launch> found;
  for (const uint32_t row : rows) {
    if (!is_alive(lock, row)) continue;
    const Row& claim = book_.claims[row];
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
    };
    Parts parts;
    std::copy_n(claim.parts, kMaxGpus, parts.begin());
    if (!launch.waiting) launch.shares = shares_of(parts);
    found.push_back(std::move(launch));
  }
  return found;
}

}  // namespace fracgpu::tools
