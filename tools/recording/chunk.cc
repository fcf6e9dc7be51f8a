// See chunk.h.
#include "tools/recording/chunk.h"

#include <zstd.h>

#include <new>

#include "tools/recording/varint.h"

namespace fracgpu::recording {
namespace {

// For a million allocations and releases, level 1 takes a third more space. Level 9 takes a
// twentieth less, in three times the time.
constexpr int kLevel = 3;

void append(std::string& out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

// An upper bound of a block's overhead beside its content.
constexpr size_t kBlockBytes = 16;
constexpr size_t kMostBytesStored = ZSTD_COMPRESSBOUND(kMostBytesInChunk) + 64 * kBlockBytes;

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + i])) << (8 * i);
  }
  return value;
}

// FNV-1a: a single changed byte always changes it.
uint32_t check_of(std::string_view bytes) {
  uint32_t check = 0x811c9dc5;
  for (const char byte : bytes) check = (check ^ static_cast<uint8_t>(byte)) * 0x01000193;
  return check;
}

}  // namespace

ChunkHeader header_of(std::string_view bytes, uint32_t number) {
  constexpr size_t kChecked = kChunkHeaderBytes - 4;
  if (number_at(bytes, kChecked) != check_of(bytes.substr(0, kChecked))) {
    throw Damage("a header whose checksum is wrong");
  }
  const ChunkHeader header{static_cast<ChunkType>(number_at(bytes, 0)), number_at(bytes, 4),
                           number_at(bytes, 8), number_at(bytes, 12), number_at(bytes, 16)};
  if (header.number != number) throw Damage("a piece that belongs elsewhere");
  if (header.type < ChunkType::header || header.type > ChunkType::end) {
    throw Damage("a piece of an unknown kind");
  }
  if (header.content > kMostBytesInChunk || header.events > kMostEventsInChunk ||
      header.stored > kMostBytesStored) {
    throw Damage("a piece that is too large");
  }
  return header;
}

Compressor::Compressor() : context_(ZSTD_createCCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
}

Compressor::~Compressor() {
  ZSTD_freeCCtx(context_);
}

void Compressor::append_chunk(ChunkType type, uint32_t number, uint32_t events,
                              const std::vector<std::string_view>& content, std::string& out) {
  size_t size = 0;
  for (const std::string_view piece : content) size += piece.size();
  // Each piece ends a block, and so has its own code table.
  stored_.resize(ZSTD_compressBound(size) + content.size() * kBlockBytes);
  ZSTD_outBuffer to{stored_.data(), stored_.size(), 0};
  ZSTD_CCtx_setPledgedSrcSize(context_, size);
  for (size_t i = 0; i < content.size(); ++i) {
    ZSTD_inBuffer from{content[i].data(), content[i].size(), 0};
    const bool last = i + 1 == content.size();
    const size_t left =
        ZSTD_compressStream2(context_, &to, &from, last ? ZSTD_e_end : ZSTD_e_flush);
    if (left != 0) throw std::runtime_error("cannot compress a recording");
  }
  const size_t begin = out.size();
  append(out, static_cast<uint32_t>(type));
  append(out, number);
  append(out, static_cast<uint32_t>(to.pos));
  append(out, static_cast<uint32_t>(size));
  append(out, events);
  append(out, check_of(std::string_view(out).substr(begin)));
  out.append(stored_, 0, to.pos);
}

Decompressor::Decompressor() : context_(ZSTD_createDCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
}

Decompressor::~Decompressor() {
  ZSTD_freeDCtx(context_);
}

std::string_view Decompressor::content(const ChunkHeader& header, std::string_view stored) {
  if (content_.size() < header.content) content_.resize(header.content);
  const size_t size =
      ZSTD_decompressDCtx(context_, content_.data(), header.content, stored.data(), stored.size());
  if (ZSTD_isError(size) != 0 || size != header.content) {
    throw Damage("compressed bytes that are wrong");
  }
  return std::string_view(content_).substr(0, size);
}

}  // namespace fracgpu::recording
