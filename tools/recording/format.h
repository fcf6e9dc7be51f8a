// The file of a recording, version 1.
//
//   start    8 bytes `kMagic`, the version as 4 bytes
//   chunk*   a header of 24 bytes (chunk.h), then a zstd frame with a checksum of its own
//
// All numbers of fixed size are little-endian. The first chunk holds the Header, the last one says
// how many events there are; a recording without it was cut off, or goes on. Those between hold
// what the tables have gained and then events, each field in a column of its own:
//
//   tables      new entries of Tables (table_codec.h); what events name is there before them
//   shapes      what events have in common: all but time and address. Of the last 65,536 shapes
//   each
//               event names one by its number, or adds one
//   codes       an event: its shape, and how its address is told
//   times       nanoseconds since the event before
//   addresses   where they are told: what the address is above the last one told
//   slots       of a release: the number of the allocation that it ends, of those that live. It
//   gives
//               the address and all that an allocation and its release have in common
//
// Columns of events are two each, but for shapes and rules: one has the low bytes of the numbers,
// the other what is above them as varints (varint.h), in zigzag where it may be negative. Shapes
// and slots go on from chunk to chunk (event_codec.h), so a recording is read from its beginning,
// and what lies behind damage is lost. Chunks are small, and nothing in one is trusted before it is
// checked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::recording {

inline constexpr char kMagic[8] = {'f', 'r', 'a', 'c', 'g', 'p', 'u', 'R'};
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kStartBytes = 12;

enum class ChunkType : uint32_t { header = 1, events = 2, end = 3 };

// What a chunk may hold, which is what a reader needs memory for.
inline constexpr uint32_t kMostEventsInChunk = 16'384;
inline constexpr uint32_t kMostBytesInChunk = 8 << 20;

// What all tables of a recording may hold. A writer leaves out call stacks and names beyond that.
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
inline constexpr uint32_t kSlots = 1 << 19;  // all are forgotten when there would be more

}  // namespace fracgpu::recording
