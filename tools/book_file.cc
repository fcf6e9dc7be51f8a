// See book_file.h.
#include "tools/book_file.h"

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
#include "shim/shared_file.h"

namespace fracgpu::tools {
namespace {

constexpr uint64_t kPatience_ms = 30'000;

std::string book_path() {
  const char* const other = getenv("FRACGPU_BOOK");
  return other != nullptr && *other != '\0' ? other : book_layout::kPath;
}

book_layout::Header good_header() {
  book_layout::Header header = {};
  header.magic = book_layout::kMagic;
  header.version = book_layout::kVersion;
  header.file_bytes = sizeof(book_layout::Book);
  header.max_gpus = book_layout::kMaxGpus;
  header.max_claims = book_layout::kMaxClaims;
  header.parts = book_layout::kParts;
  header.created_unix_s = static_cast<uint64_t>(time(nullptr));
  return header;
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

void BookFile::fail(const char* what, int code) const {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path_, strerror(code)));
}

BookFile::Lock::Lock(const BookFile& file) : file_(file.open_checked()) {
  struct flock lock = byte_lock(F_WRLCK, book_layout::kBookLock);
  const uint64_t end = coarse_now_ms() + kPatience_ms;
  for (long pause = 1; fcntl(fd(), F_OFD_SETLK, &lock) != 0; pause = std::min(2 * pause, 16L)) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) file.fail("lock", errno);
    if (coarse_now_ms() > end) {
      throw std::runtime_error(
          fmt::format("{} stayed locked for 30 s; is a fracgpu process stopped?", file.path()));
    }
    sleep_ms(pause);
  }
}

bool BookFile::exists() {
  return access(book_path().c_str(), F_OK) == 0;
}

BookFile::BookFile() : path_(book_path()), book_(std::make_unique<book_layout::Book>()) {
  if (exists()) return;
  const book_layout::Header header = good_header();
  const int code =
      make_shared_file(path_.c_str(), sizeof(book_layout::Book), &header, sizeof header);
  if (code != 0 && code != EEXIST) fail("make", code);
}

Descriptor BookFile::open_checked() const {
  Descriptor file(open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) fail("open", errno);
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

Descriptor BookFile::open_for_life() const {
  Descriptor file = moved_up(Descriptor(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)));
  if (file.get() < 0) fail("open", errno);
  return file;
}

void BookFile::lock_row(int fd, uint32_t row) const {
  struct flock life = byte_lock(F_RDLCK, book_layout::claim_lock(row));
  if (fcntl(fd, F_OFD_SETLK, &life) != 0) fail("lock a row of", errno);
}

bool BookFile::is_row_locked(const Lock& lock, uint32_t row) {
  struct flock life = byte_lock(F_WRLCK, book_layout::claim_lock(row));
  // A probe that fails proves nothing, and a live launch must not lose its share.
  return fcntl(lock.fd(), F_OFD_GETLK, &life) != 0 || life.l_type != F_UNLCK;
}

off_t BookFile::offset_of(const void* field) const {
  return static_cast<const char*>(field) - reinterpret_cast<const char*>(book_.get());
}

void BookFile::load(const Lock& lock) const {
  look(lock.fd(), book_.get(), offsetof(book_layout::Book, claims));
  auto& in_use = book_->counters.claims_in_use;
  in_use = std::min(in_use, book_layout::kMaxClaims);
  look(lock.fd(), book_->claims, sizeof(book_layout::Claim) * in_use);
}

void BookFile::look(int fd, void* field, size_t size) const {
  const ssize_t got = pread(fd, field, size, offset_of(field));
  if (got != static_cast<ssize_t>(size)) fail("read", EIO);
}

void BookFile::write(const Lock& lock, const void* field, size_t size) const {
  const ssize_t written = pwrite(lock.fd(), field, size, offset_of(field));
  if (written != static_cast<ssize_t>(size)) fail("write", errno);
}

}  // namespace fracgpu::tools
