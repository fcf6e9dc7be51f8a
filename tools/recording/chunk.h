// Chunks of a recording's file: a header that checks itself, and compressed content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/recording/format.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace fracgpu::recording {

// In the file: six numbers of 4 bytes, in this order. The last one is a checksum of the others.
struct ChunkHeader {
  ChunkType type = ChunkType::events;
  uint32_t number = 0;   // of the chunk in its file: detects lost, repeated or exchanged chunks
  uint32_t stored = 0;   // bytes after the header
  uint32_t content = 0;  // bytes when decompressed
  uint32_t events = 0;
};
inline constexpr size_t kChunkHeaderBytes = 24;

// Throws Damage if these bytes are not the header of chunk `number`.
ChunkHeader header_of(std::string_view bytes, uint32_t number);

class Compressor {
 public:
  Compressor();
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // Appends the header and the compressed content to `out`. Put similar data into one piece: each
  // piece is compressed separately.
  void append_chunk(ChunkType type, uint32_t number, uint32_t events,
                    const std::vector<std::string_view>& content, std::string& out);

 private:
  ZSTD_CCtx_s* context_;
  std::string stored_;
};

class Decompressor {
 public:
  Decompressor();
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // The content of a chunk, valid until the next call. Throws Damage.
  std::string_view content(const ChunkHeader& header, std::string_view stored);

 private:
  ZSTD_DCtx_s* context_;
  std::string content_;
};

}  // namespace fracgpu::recording
