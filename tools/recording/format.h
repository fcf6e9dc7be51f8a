// The file of a recording, version 1.
//
//   start    8 bytes `kMagic`, the version as 4 bytes
//   chunk*   a header of 24 bytes (chunk.h), then a zstd frame with its own checksum
//
// All numbers of fixed size are little-endian. The first chunk holds the Header. The last chunk
// holds the number of events. A recording without it was cut off or is still being written. The
// chunks between hold new table entries and then events, each field in its own column:
//
//   tables      new entries of Tables (table_codec.h); they come before the events that name them
//   shapes      the common fields of events: all except time and address. Each event names one of
//               the last 65,536 shapes by its number, or adds one
//   codes       an event: its shape, and how its address is given
//   times       nanoseconds since the previous event
//   addresses   if given: the difference from the last address given
//   slots       of a release: the number of the live allocation that it ends. The slot gives the
//               address and all fields that an allocation and its release share
//
// Each event column is two columns, except shapes and rules. One has the low bytes of the numbers.
// The other has the rest as varints (varint.h), zigzag-encoded if it may be negative. Shapes and
// slots continue from chunk to chunk (event_codec.h). So a recording is read from its beginning,
// and data after a damaged part is lost. Chunks are small, and nothing in a chunk is trusted before
// it is checked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::recording {

inline constexpr char kMagic[8] = {'f', 'r', 'a', 'c', 'g', 'p', 'u', 'R'};
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kStartBytes = 12;

enum class ChunkType : uint32_t { header = 1, events = 2, end = 3 };

// Limits of a chunk, and so of a reader's memory.
inline constexpr uint32_t kMostEventsInChunk = 16'384;
inline constexpr uint32_t kMostBytesInChunk = 8 << 20;

// Limits of all tables of a recording. A writer leaves out call stacks and names beyond them.
inline constexpr size_t kMostProcesses = (1 << 20) - 1;
inline constexpr size_t kMostDevices = (1 << 12) - 1;
inline constexpr size_t kMostModules = 1 << 20;
inline constexpr size_t kMostTexts = 1 << 21;
inline constexpr size_t kMostStacks = 1 << 21;
inline constexpr size_t kMostFrames = 1 << 23;  // in all stacks
inline constexpr size_t kMostFramesInStack = 1'024;
inline constexpr size_t kMostTextBytes = 128 << 20;  // in all names and texts
inline constexpr size_t kMostBytesInText = 64 << 10;

inline constexpr uint32_t kShapes = 1 << 16;
inline constexpr uint32_t kSlots = 1 << 19;  // one more slot makes both sides forget all slots

}  // namespace fracgpu::recording
