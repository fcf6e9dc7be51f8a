// Reaches into tables to break what they keep, so that each of their invariants is seen to fail.
#pragma once

#include "shim/tracking/live_map.h"
#include "shim/tracking/physical_table.h"
#include "shim/tracking/pool_table.h"

namespace fracgpu {

struct TableCorrupter {
  static auto& pools(PoolTable& table) { return table.pools_; }
  static auto& count(PoolTable& table) { return table.count_; }

  static auto& shard_of(LiveMap& map, uint64_t key) { return map.shard_of(key); }

  template <typename Map>
  static auto& beside(Map& map) {
    return map.others_;
  }

  static auto& handles(PhysicalTable& table) { return table.handles_; }
  static auto& memories(PhysicalTable& table) { return table.memories_; }
  static auto& mappings(PhysicalTable& table) { return table.mappings_; }
  static auto& unmaps(PhysicalTable& table) { return table.unmaps_; }
  static auto& units(PhysicalTable& table) { return table.units_; }
  static auto& count(PhysicalTable& table) { return table.count_; }
  static auto& without_object(PhysicalTable& table) { return table.without_object_; }
  static auto& any(PhysicalTable& table) { return table.any_; }
  static auto& next(PhysicalTable& table) { return table.next_; }
  static auto& serial(PhysicalTable& table) { return table.serial_; }
  static auto& granules(PhysicalTable& table) { return table.granules_; }
};

}  // namespace fracgpu
