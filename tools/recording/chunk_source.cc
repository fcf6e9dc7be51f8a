// See chunk_source.h.
#include "tools/recording/chunk_source.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <unistd.h>

#include <stdexcept>

#include "shim/base/text.h"
#include "tools/cli/judged_file.h"
#include "tools/recording/varint.h"

namespace fracgpu::recording {
namespace {

// Reads `size` bytes, fewer at the end of the file.
size_t read_at(int fd, char* bytes, size_t size, uint64_t at) {
  size_t done = 0;
  while (done < size) {
    const ssize_t got = pread(fd, bytes + done, size - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Damage(strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

void check_start(int fd, const std::string& path) {
  const auto name = fracgpu::quoted(path);
  char start[kStartBytes] = {};
  const size_t size = read_at(fd, start, sizeof start, 0);
  if (size == 0) throw std::runtime_error(fmt::format("{} is empty: no recording", name.view()));
  if (size < sizeof start || memcmp(start, kMagic, sizeof kMagic) != 0) {
    throw std::runtime_error(fmt::format("{} is no recording of fracgpu record", name.view()));
  }
  uint32_t version = 0;
  for (size_t i = 4; i > 0; --i) {
    version = version << 8 | static_cast<uint8_t>(start[sizeof kMagic + i - 1]);
  }
  if (version == kVersion) return;
  throw std::runtime_error(fmt::format(
      "{} is a recording of version {}, and this fracgpu reads version {}; use the fracgpu that "
      "made it",
      name.view(), version, kVersion));
}

}  // namespace

ChunkSource::ChunkSource(const std::string& path)
    : file_(tools::open_judged(path, O_RDONLY, tools::Links::followed)) {
  check_start(file_.get(), path);
  rewind();
}

void ChunkSource::rewind() {
  at_ = kStartBytes;
  number_ = 0;
}

std::string_view ChunkSource::read(size_t size) {
  if (bytes_.size() < size) bytes_.resize(size);
  if (read_at(file_.get(), bytes_.data(), size, at_) < size) throw CutOff("cut off");
  at_ += size;
  return std::string_view(bytes_).substr(0, size);
}

ChunkSource::Chunk ChunkSource::next() {
  begin_ = at_;
  const ChunkHeader header = header_of(read(kChunkHeaderBytes), number_);
  const std::string_view content = decompressor_.content(header, read(header.stored));
  ++number_;
  return {header, content};
}

bool ChunkSource::at_end() {
  char byte;
  return read_at(file_.get(), &byte, 1, at_) == 0;
}

}  // namespace fracgpu::recording
