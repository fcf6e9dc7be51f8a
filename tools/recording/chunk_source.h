// The chunks of a recording's file, one after another. Each is checked before it is returned.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "tools/cli/descriptor.h"
#include "tools/recording/chunk.h"

namespace fracgpu::recording {

// The file ends where a chunk should start or continue. The text is a few words.
class CutOff : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ChunkSource {
 public:
  // Throws std::runtime_error with one line if there is no readable recording.
  explicit ChunkSource(const std::string& path);

  // Goes back to the first chunk.
  void rewind();
  struct Chunk {
    ChunkHeader header;
    std::string_view content;  // valid until the next call
  };
  // Throws CutOff and Damage.
  Chunk next();
  // Whether the file ends here.
  bool at_end();

  // The start of the chunk that was requested last.
  uint64_t chunk_begin() const { return begin_; }

 private:
  std::string_view read(size_t size);

  tools::Descriptor file_;
  Decompressor decompressor_;
  std::string bytes_;
  uint64_t at_ = 0, begin_ = 0;
  uint32_t number_ = 0;
};

}  // namespace fracgpu::recording
