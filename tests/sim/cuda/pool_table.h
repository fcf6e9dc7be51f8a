// Stream-ordered memory pools of one process.
// A pool takes physical memory in chunks and hands out parts of them. A part that was freed in a
// stream can be taken again by that stream at once, by a stream that comes after the free by an
// event unless the pool's attribute forbids it, by others when the stream was waited for; then,
// too, chunks without any part are given back down to the release threshold. Pools belong to a
// device, and what they gave outlives its contexts, a reset of the primary one too (libcuda
// 535.261.03). Managed memory counts in full, on the device that its pool prefers, or else on the
// one that was current when the pool was made. All of it wants the driver's lock held.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "sim/cuda/memory_abi.h"
#include "sim/cuda/reused.h"
#include "sim/cuda/space.h"
#include "sim/cuda/stream_table.h"
#include "sim/node/account.h"

namespace sim {

// The least that a pool, and the reserve of graphs, grows by.
inline constexpr uint64_t kPoolGrowth = 32ULL << 20;

struct Found;
struct Pool;

struct PoolChunk {
  Pool* pool = nullptr;
  Physical physical;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t parts = 0;  // in use, or freed in a stream that was not waited for yet
};

// Chunks are covered by parts without a gap. Free ones never have a free neighbour.
struct PoolPart {
  enum class State : uint8_t { kFree, kUsed, kFreed };
  PoolChunk* chunk = nullptr;
  uint64_t bytes = 0;
  uint64_t asked = 0;
  State state = State::kFree;
  uint64_t stream = 0;  // in which it was freed, and when
  uint64_t moment = 0;
};

struct Pool : Reused<Pool> {
  using Places = std::set<std::pair<uint64_t, uint64_t>>;  // size and address
  // The names of the flags are those of the attributes 1 to 3.
  static constexpr int kFlags = 3;

  CUmemoryPool handle = nullptr;
  CUmemPoolProps props = {};
  int device = -1;  // physical; < 0: host memory
  bool imported = false;
  bool destroyed = false;  // without a handle, until the last part is free
  int flag[kFlags] = {1, 1, 1};
  uint8_t access[kMaxDevices] = {};
  uint64_t threshold = 0;
  uint64_t reserved = 0, reserved_high = 0, used = 0, used_high = 0;
  uint64_t parts = 0;  // of all chunks, and imports
  Physical shared;     // stands for the pool itself when it is exported: no bytes
  Places free;
  std::map<uint64_t, Places> freed;  // by stream
  std::map<uint64_t, std::unique_ptr<PoolChunk>> chunks;
};

class Pools {
 public:
  Pool* create(const CUmemPoolProps& props);
  Pool* find(CUmemoryPool handle);
  bool destroy(Pool* pool);
  // The pools of a type of memory and a place: a device, or the host as a whole or by node, or for
  // managed memory none. Null: no such place.
  Pool* default_of(const CUmemLocation& where, int type = CU_MEM_ALLOCATION_TYPE_PINNED);
  Pool* current_of(const CUmemLocation& where, int type = CU_MEM_ALLOCATION_TYPE_PINNED);
  bool set_current(const CUmemLocation& where, int type, Pool* pool);

  CUresult allocate(Pool* pool, uint64_t bytes, const CUstream_st& stream, uint64_t* out);
  // Frees what a pool gave or imported, or plain memory, when the stream gets there.
  CUresult free_in(const CUstream_st& stream, uint64_t address);
  bool owns(uint64_t address) const;
  CUresult free_now(uint64_t address);
  // Plain memory that is free as soon as some stream gets there, and may not be freed again.
  bool awaits(uint64_t address) const { return plain_.count(address) != 0; }

  void synchronised(const Reach& reach);
  // Gives back chunks without parts, and never leaves less than this.
  void trim(Pool* pool, uint64_t keep);
  bool may_have(uint64_t address) const { return space_.contains(address) || host_chunks_ != 0; }
  bool find(uint64_t address, Found* found) const;
  // A context ends, and plain memory of its own with it.
  void forget(const Context* context);

  CUresult export_pointer(uint64_t address, CUmemPoolPtrExportData* out);
  CUresult import_pointer(Pool* pool, const CUmemPoolPtrExportData& data, uint64_t* out);

 private:
  using Parts = std::map<uint64_t, PoolPart>;
  struct Waiting {
    const Context* context = nullptr;
    uint64_t stream = 0;
    uint64_t moment = 0;
  };
  struct Imported {
    Pool* pool = nullptr;
    Physical physical;
    uint64_t bytes = 0;
    uint64_t stream = 0;  // 0: not freed yet
    uint64_t moment = 0;
  };
  using Imports = std::map<uint64_t, Imported>;
  using Chunks = std::map<uint64_t, std::unique_ptr<PoolChunk>>;
  using Place = std::array<int, 3>;

  static Pool::Places& places(const PoolPart& part);
  void enter(Parts::iterator part) {
    places(part->second).insert({part->second.bytes, part->first});
  }
  void leave(Parts::iterator part) {
    places(part->second).erase({part->second.bytes, part->first});
  }
  Parts::iterator fitting(Pool* pool, const CUstream_st& stream, uint64_t bytes);
  Parts::iterator grow(Pool* pool, uint64_t bytes);
  Parts::iterator merge(Parts::iterator first, Parts::iterator second);
  void make_free(Parts::iterator part);
  void reach_parts(Pool* pool, const Reach& reach);
  Chunks::iterator drop_chunk(Chunks::iterator at);
  Imports::iterator drop_import(Imports::iterator at);
  void settle(Pool* pool);  // a destroyed pool goes with its last part
  static Place place_of(const CUmemLocation& where, int type);

  AddressSpace space_{0x3b0000000000ULL, 0x430000000000ULL};
  std::map<CUmemoryPool, std::unique_ptr<Pool>> pools_;
  std::map<Place, Pool*> default_, current_;
  Parts parts_;
  Imports imports_;
  std::map<uint64_t, Waiting> plain_;
  uint64_t host_chunks_ = 0;
};

}  // namespace sim
