// Reads, changes and writes the book; see book.h.
//
// The file is read and written, not mapped: a mapping would be SIGBUS if somebody cut the file. A
// row lies within one page, and is written by one call that a kill does not divide.
#include "tools/book.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "shim/byte_lock.h"
#include "shim/clock.h"
#include "shim/ledger_file.h"
#include "shim/shared_file.h"
#include "tools/plain_text.h"

namespace fracgpu::tools {
namespace {

using book_layout::kMaxClaims;
using book_layout::kMaxGpus;
using book_layout::kParts;
using book_layout::State;
constexpr uint64_t kPatience_ms = 30'000;
// How often somebody who waits looks for launches that were killed.
constexpr uint64_t kLookInterval_ms = 200;

std::string book_path() {
  const char* const other = getenv("FRACGPU_BOOK");
  return other != nullptr && *other != '\0' ? other : book_layout::kPath;
}

book_layout::Header good_header() {
  book_layout::Header header = {};
  header.magic = book_layout::kMagic;
  header.version = book_layout::kVersion;
  header.file_bytes = sizeof(book_layout::Book);
  header.max_gpus = kMaxGpus;
  header.max_claims = kMaxClaims;
  header.parts = kParts;
  header.created_unix_s = static_cast<uint64_t>(time(nullptr));
  return header;
}

[[noreturn]] void fail(const std::string& path, const char* what, int code) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path, strerror(code)));
}

// Whether the tenant has a process that uses a GPU.
bool tenant_uses_gpu(const std::string& tenant) {
  if (tenant.empty() || tenant.find('/') != tenant.npos) return false;
  const Descriptor file(
      open((layout::kFilePrefix + tenant).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file.get() >= 0 && LedgerFile::any_slot_is_alive(file.get());
}

void copy_text(char* to, size_t size, const std::string& text) {
  memset(to, 0, size);
  memcpy(to, text.data(), std::min(text.size(), size - 1));
}

// Texts that do not fit are told apart by a number in place of their end.
std::string shortened(const std::string& text, size_t size) {
  if (text.size() < size) return text;
  return text.substr(0, size - 24) + fmt::format("...{:016x}", std::hash<std::string>()(text));
}

// With a number out of the way of those that programs expect to get. A lock goes with the open
// file, whatever its numbers.
Descriptor moved_up(Descriptor fd) {
  for (const int lowest : {1000, 100}) {
    if (const int up = fcntl(fd.get(), F_DUPFD_CLOEXEC, lowest); up >= 0) return Descriptor(up);
  }
  return fd;
}

}  // namespace

// Held while rows change. Polled, not waited for in the kernel: somebody who is stopped while he
// has it must not stop everybody for ever. The file is opened for each time, so that no child that
// is forked meanwhile keeps what its parent had.
class Book::Lock {
 public:
  explicit Lock(const Book& book) : file_(book.open_file()) {
    struct flock lock = byte_lock(F_WRLCK, book_layout::kBookLock);
    const uint64_t end = coarse_now_ms() + kPatience_ms;
    for (long pause = 1; fcntl(fd(), F_OFD_SETLK, &lock) != 0; pause = std::min(2 * pause, 16L)) {
      if (errno != EAGAIN && errno != EACCES && errno != EINTR) fail(book.path_, "lock", errno);
      if (coarse_now_ms() > end) {
        throw std::runtime_error(
            fmt::format("{} stayed locked for 30 s; is a fracgpu process stopped?", book.path_));
      }
      sleep_ms(pause);
    }
  }
  int fd() const { return file_.get(); }

 private:
  Descriptor file_;  // closing it unlocks
};

bool Book::exists() {
  return access(book_path().c_str(), F_OK) == 0;
}

Book::Book() : path_(book_path()), book_(std::make_unique<book_layout::Book>()) {
  if (exists()) return;
  const book_layout::Header header = good_header();
  const int code =
      make_shared_file(path_.c_str(), sizeof(book_layout::Book), &header, sizeof header);
  if (code != 0 && code != EEXIST) fail(path_, "make", code);
}

Descriptor Book::open_file() const {
  Descriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) fail(path_, "open", errno);
  book_layout::Header header = good_header(), found = {};
  struct stat status = {};
  const bool whole = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_size == sizeof(book_layout::Book) &&
                     pread(file.get(), &found, sizeof found, 0) == sizeof found;
  header.created_unix_s = found.created_unix_s;
  if (!whole || memcmp(&found, &header, sizeof header) != 0) {
    throw std::runtime_error(fmt::format(
        "{} is no book of this version; remove it when nothing runs under fracgpu run", path_));
  }
  return file;
}

void Book::load(const Lock& lock) {
  const auto read = [&](void* to, size_t size, size_t offset) {
    if (pread(lock.fd(), to, size, static_cast<off_t>(offset)) != static_cast<ssize_t>(size)) {
      fail(path_, "read", EIO);
    }
  };
  read(book_.get(), offsetof(book_layout::Book, claims), 0);
  auto& in_use = book_->counters.claims_in_use;
  in_use = std::min(in_use, kMaxClaims);
  read(book_->claims, sizeof(Row) * in_use, offsetof(book_layout::Book, claims));
}

void Book::write(const Lock& lock, const void* field, size_t size) const {
  const off_t at = static_cast<const char*>(field) - reinterpret_cast<const char*>(book_.get());
  if (pwrite(lock.fd(), field, size, at) != static_cast<ssize_t>(size)) fail(path_, "write", errno);
}

bool Book::is_locked(const Lock& lock, uint32_t row) {
  struct flock life = byte_lock(F_WRLCK, book_layout::claim_lock(row));
  // A probe that fails proves nothing, and a live launch must not lose its share.
  return fcntl(lock.fd(), F_OFD_GETLK, &life) != 0 || life.l_type != F_UNLCK;
}

bool Book::is_alive(const Lock& lock, uint32_t row) const {
  if (is_locked(lock, row)) return true;
  const Row& claim = book_->claims[row];
  return claim.state == State::held &&
         tenant_uses_gpu(std::string(claim.tenant, strnlen(claim.tenant, sizeof claim.tenant)));
}

int Book::drop_dead(const Lock& lock) {
  int dropped = 0;
  for (uint32_t row = 0; row < book_->counters.claims_in_use; ++row) {
    Row& claim = book_->claims[row];
    if (claim.state == State::free || is_alive(lock, row)) continue;
    claim.state = State::free;
    write(lock, &claim, sizeof claim);
    ++dropped;
  }
  return dropped;
}

std::vector<uint32_t> Book::waiting_in_order() const {
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < book_->counters.claims_in_use; ++row) {
    if (book_->claims[row].state == State::waiting) rows.push_back(row);
  }
  std::sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
    const Row &first = book_->claims[a], &second = book_->claims[b];
    return first.priority != second.priority ? first.priority > second.priority
                                             : first.ticket < second.ticket;
  });
  return rows;
}

Parts Book::free_parts() const {
  uint32_t used[kMaxGpus] = {};
  for (uint32_t row = 0; row < book_->counters.claims_in_use; ++row) {
    if (book_->claims[row].state != State::held) continue;
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) used[gpu] += book_->claims[row].parts[gpu];
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
    const Row& claim = book_->claims[row];
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
    Row& claim = book_->claims[served.row];
    std::copy(served.parts.begin(), served.parts.end(), claim.parts);
    claim.state = State::held;
    write(lock, &claim, sizeof claim);
  }
  book_->counters.scheduled_ms = coarse_now_ms();
  write(lock, &book_->counters, sizeof book_->counters);
}

// The row of a GPU, or a free one, or one that nobody has or awaits and that is not among `taken`.
uint32_t Book::gpu_row(const std::string& key, uint64_t taken) {
  uint64_t needed = taken;
  for (uint32_t row = 0; row < book_->counters.claims_in_use; ++row) {
    const Row& claim = book_->claims[row];
    if (claim.state == State::free) continue;
    needed |= claim.allowed;
    for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
      if (claim.parts[gpu] != 0) needed |= uint64_t{1} << gpu;
    }
  }
  uint32_t best = kMaxGpus;
  for (uint32_t gpu = 0; gpu < kMaxGpus; ++gpu) {
    const char* const there = book_->gpus[gpu].key;
    if (strncmp(there, key.c_str(), layout::kNameBytes) == 0) return gpu;
    const bool better = best == kMaxGpus || (*there == '\0' && *book_->gpus[best].key != '\0');
    if ((needed >> gpu & 1) == 0 && better) best = gpu;
  }
  if (best == kMaxGpus) {
    throw std::runtime_error(
        fmt::format("{} has no room for another GPU: {} are in use", path_, kMaxGpus));
  }
  copy_text(book_->gpus[best].key, layout::kNameBytes, key);
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
  Claim mine{moved_up(Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)))};
  if (mine.life.get() < 0) fail(path_, "open", errno);
  const std::string asked = shortened(asking.asked, sizeof(Row::asked));

  const Lock lock(*this);
  load(lock);
  drop_dead(lock);
  auto& in_use = book_->counters.claims_in_use;
  uint32_t same = in_use, unused = in_use;
  for (uint32_t row = in_use; row-- > 0;) {
    const Row& there = book_->claims[row];
    if (there.state == State::free) {
      unused = row;
    } else if (strncmp(there.tenant, asking.tenant.c_str(), sizeof there.tenant) == 0) {
      same = row;
    }
  }
  const bool joins = same < in_use;
  mine.row = joins ? same : unused;
  if (mine.row == kMaxClaims) {
    throw std::runtime_error(
        fmt::format("{} is full: {} launches run or wait on this machine", path_, kMaxClaims));
  }
  Row& entry = book_->claims[mine.row];
  if (joins && strncmp(entry.asked, asked.c_str(), sizeof entry.asked) != 0) {
    throw std::runtime_error(fmt::format(
        "tenant {} runs already with other caps, '{}', and this launch asks for '{}'; ask for the "
        "same, or take another name",
        asking.tenant, clean(entry.asked, sizeof entry.asked), asked));
  }
  // The lock first: a row counts only with it.
  struct flock life = byte_lock(F_RDLCK, book_layout::claim_lock(mine.row));
  if (fcntl(mine.life.get(), F_OFD_SETLK, &life) != 0) fail(path_, "lock a row of", errno);
  if (joins) return mine;

  entry = Row{};
  fill_wish(asking, entry);
  entry.state = State::waiting;
  entry.pid = static_cast<uint32_t>(getpid());
  entry.uid = static_cast<uint32_t>(getuid());
  entry.priority = asking.priority;
  entry.ticket = book_->counters.next_ticket++;
  entry.since_unix_s = static_cast<uint64_t>(time(nullptr));
  copy_text(entry.tenant, sizeof entry.tenant, asking.tenant);
  copy_text(entry.command, sizeof entry.command, asking.command);
  copy_text(entry.asked, sizeof entry.asked, asked);
  in_use = std::max(in_use, mine.row + 1);
  write(lock, book_->gpus, sizeof book_->gpus);
  write(lock, &book_->counters, sizeof book_->counters);
  write(lock, &entry, sizeof entry);
  serve_waiting(lock);
  return mine;
}

bool Book::preview(const Asking& asking, std::vector<Share>& shares) {
  const Lock lock(*this);
  load(lock);
  drop_dead(lock);
  auto& in_use = book_->counters.claims_in_use;
  if (in_use == kMaxClaims) return false;
  // Beside the rows that exist, and never written.
  const uint32_t row = in_use;
  Row& entry = book_->claims[row];
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
  const Row& row = book_->claims[claim.row];
  const auto look = [&](const void* field, size_t size) {
    const auto at = static_cast<const char*>(field) - reinterpret_cast<const char*>(book_.get());
    const ssize_t got = pread(claim.life.get(), const_cast<void*>(field), size, at);
    if (got != static_cast<ssize_t>(size)) fail(path_, "read", EIO);
  };
  look(&book_->counters, sizeof book_->counters);
  look(&row.state, sizeof row.state);
  if (row.state != State::waiting ||
      coarse_now_ms() >= book_->counters.scheduled_ms + kLookInterval_ms) {
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
    shares.push_back({clean(book_->gpus[gpu].key, layout::kNameBytes), parts[gpu]});
  }
  return shares;
}

int Book::tidy() {
  const Lock lock(*this);
  load(lock);
  const int dropped = drop_dead(lock);
  serve_waiting(lock);
  return dropped;
}

void Book::leave(Claim claim) {
  claim.life = Descriptor();
  const Lock lock(*this);
  load(lock);
  // Its tenant may have processes elsewhere, which this share was not for.
  Row& row = book_->claims[claim.row];
  if (row.state != State::free && !is_locked(lock, claim.row)) {
    row.state = State::free;
    write(lock, &row, sizeof row);
  }
  drop_dead(lock);
  serve_waiting(lock);
}

std::vector<Launch> Book::launches() {
  const Lock lock(*this);
  load(lock);
  std::vector<uint32_t> rows;
  for (uint32_t row = 0; row < book_->counters.claims_in_use; ++row) {
    if (book_->claims[row].state == State::held) rows.push_back(row);
  }
  for (const uint32_t row : waiting_in_order()) rows.push_back(row);
  std::vector<Launch> found;
  for (const uint32_t row : rows) {
    if (!is_alive(lock, row)) continue;
    const Row& claim = book_->claims[row];
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
