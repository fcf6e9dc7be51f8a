// Records and releases linear allocations; see linear.h.
#include "shim/charge/linear.h"

#include <utility>

#include "shim/charge/overhead.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu {

namespace {

Allocation entry_of(const Context& context, uint64_t key, uint64_t units) {
  return {.key = key,
          .units = static_cast<uint32_t>(units),
          .users = 1,
          .context = context.id,
          .device_index = static_cast<uint8_t>(context.device_index)};
}

// For an entry that is gone before its suballocations were freed. If it was a block of a runtime,
// the runtime has one less in use.
void discard_block(Process& process, const Allocation& entry) {
  if ((entry.key & 1) != 0) process.blocks[entry.device_index][entry.pool].discarded(entry.apart);
}

// The driver has made new memory at the address of this entry, if there is one.
void give_back_displaced(Process& process, const Allocation& entry) {
  if (entry.key == 0) [[likely]]
    return;
  discard_block(process, entry);
  give_back(process, entry, entry.units);
}

// For the lines after a refusal, if they are enabled.
void note_call_site(Process& process, const Allocation& allocation) {
  if (process.keeps_call_sites) process.call_sites.enter(process.allocations, allocation);
}

}  // namespace

void give_back(Process& process, int device_index, uint64_t units) {
  if (process.ledger.release(device_index, units)) publish_allocation_count(process, device_index);
}

void give_back_exported(Process& process, int device_index, uint64_t units, uint64_t token) {
  if (process.open_exports.keep(token, device_index, units))
    return note_freed_export(process, token, device_index);
  give_back_released_export(process, device_index, units, take_export(process, token, units));
}

void give_back(Process& process, const Allocation& entry, uint64_t units) {
  if (!entry.exported) return give_back(process, entry.device_index, units);
  give_back_exported(process, entry.device_index, units, token_of(entry));
}

void give_back(Process& process, const PhysicalTable::Freed& freed) {
  if (freed.memory == 0) return;
  if (process.recorder.is_on()) {
    process.recorder.add(
        {.type = ring::Type::released, .address = ring::physical_key(freed.memory)});
  }
  if (freed.units > 0 && freed.lingers && !freed.exported &&
      usage_is_told(process, freed.device_index)) {
    // The kernel driver has no object of it, so no request shows when it is gone.
    const OverheadLock lock(process);
    process.overhead[freed.device_index].unseen += freed.units;
    defer_to_reported_usage(lock, freed.device_index, freed.units);
  } else if (freed.units > 0 && freed.exported) {
    give_back_exported(process, freed.device_index, freed.units, token_of(freed));
  } else if (freed.units > 0) {
    give_back(process, freed.device_index, freed.units);
  }
  if (freed.source.exporter != 0)
    process.imports.leave(process.ledger, freed.source, freed.device_index, freed.imported);
  // A multicast object keeps what is bound to it.
  process.physical.drop_owned(
      PhysicalTable::owner_key(freed.memory), UINT64_MAX,
      [&](const PhysicalTable::Freed& bound) { give_back(process, bound); });
}

bool finish_waiting_unmaps(Process& process) {
  bool any = false;
  process.physical.finish_unmaps([&](const PhysicalTable::Freed& freed) {
    give_back(process, freed);
    any = true;
  });
  return any;
}

void record_physical(Process& process, const Reservation& reservation, uint64_t handle,
                     uint64_t units) {
  const AskingCall& call = reservation.call();
  process.recorder.add({.type = ring::Type::allocated,
                        .kind = ring::Kind::physical,
                        .device = static_cast<uint8_t>(reservation.device_index()),
                        .address = ring::physical_key(process.physical.memory_of(handle)),
                        .bytes = call.bytes,
                        .taken = units * layout::kUnit},
                       call.api);
}

bool record_linear(Process& process, Reservation& reservation, const Context& context,
                   uint64_t address, const LinearSize& size) {
  Allocation allocation =
      entry_of(context, size.shares_chunk ? chunk_key(address) : address, size.units);
  allocation.managed = size.managed;
  allocation.lingers = size.shares_chunk && process.lingering.may_have(allocation.key);
  Allocation displaced;
  const auto added = size.shares_chunk
                         ? process.allocations.add_user(allocation, displaced,
                                                        {unit_in_chunk(address), size.in_chunk})
                         : process.allocations.add(allocation, displaced);
  if (added == LiveMap::Added::out_of_memory) return false;
  give_back_displaced(process, displaced);
  // The chunk was there and charged already: the driver took no new page.
  reservation.keep(added == LiveMap::Added::shared ? 0 : size.units);
  note_call_site(process, allocation);
  return true;
}

HoleScope::HoleScope(Process& process, const Context& context, const LinearSize& size,
                     bool is_watched)
    : process_(process),
      wanted_(size.in_chunk),
      chunk_(entry_of(context, 1, size.units)),
      is_watched_(is_watched) {
  chunk_.managed = size.managed;
  if (is_watched) {
    is_closed_ = process.small_allocations.close();
    if (is_closed_) in_flight_.emplace(process);
    return;
  }
  if (process.holes_are_unforeseen.load(std::memory_order_relaxed) ||
      !process.allocations.has_hole(chunk_, wanted_) || !process.small_allocations.close()) {
    return;
  }
  in_flight_.emplace(process);
  // Another thread may have taken the hole meanwhile.
  is_closed_ = process.allocations.pin_hole(chunk_, wanted_, pinned_);
  if (is_closed_) return;
  in_flight_.reset();
  process.small_allocations.open();
}

// The charge of the pinned chunk, if the driver no longer has it.
uint64_t HoleScope::unpin() {
  Allocation taken, gone;
  const uint64_t key = std::exchange(pinned_.key, 0);
  if (key == 0 || !process_.allocations.begin_drop(key, taken)) return 0;
  const uint64_t units = process_.allocations.finish_drop(taken, &gone);
  if (units == 0 || (!gone.lingers && !gone.exported)) return units;
  if (gone.lingers) process_.lingering.add(gone.key);
  gone_ = gone;
  return 0;
}

void HoleScope::end() {
  if (const uint64_t units = unpin(); units > 0)
    process_.ledger.release(chunk_.device_index, units);
  in_flight_.reset();
  process_.small_allocations.open();
  if (gone_.exported) {
    give_back(process_, gone_, gone_.units);
  } else if (gone_.key != 0) {
    defer_to_reported_usage(process_, gone_.device_index, gone_.units);
  }
}

bool HoleScope::record(uint64_t address, const LinearSize& size, uint64_t given) {
  if (!size.shares_chunk) return false;
  chunk_.key = chunk_key(address);
  // A chunk that the driver still keeps for a while is charged, but no longer in the map.
  chunk_.lingers = process_.lingering.may_have(chunk_.key);
  const ChunkPart part{unit_in_chunk(address), size.in_chunk};
  Allocation displaced;
  const auto added = process_.allocations.add_user(chunk_, displaced, part);
  if (added == LiveMap::Added::out_of_memory) return false;
  give_back_displaced(process_, displaced);
  Refusal refusal;
  is_new_chunk_ = added == LiveMap::Added::fresh;
  if (is_new_chunk_ && given < chunk_.units && unpin() == 0 &&
      !process_.ledger.reserve(chunk_.device_index, chunk_.units, refusal)) {
    Allocation taken;
    if (process_.allocations.begin_drop(chunk_.key, taken))
      process_.allocations.finish_drop(taken, nullptr, false, part.first);
    if (!is_watched_ && !chunk_.lingers && process_.allocations.has_hole(chunk_, wanted_) &&
        !process_.holes_are_unforeseen.exchange(true)) {
      report(Level::warn,
             "this driver does not place small allocations as libcuda 470 to 550 do: from now on "
             "each of them needs room for {} under the cap",
             human_bytes(kPageBytes).view());
    }
    return false;
  }
  note_call_site(process_, chunk_);
  return true;
}

bool enter_managed(Process& process, const Context& context, uint64_t key, uint64_t units) {
  Allocation displaced;
  Allocation allocation = entry_of(context, key, units);
  allocation.managed = true;
  const auto added = process.allocations.add(allocation, displaced);
  give_back_displaced(process, displaced);
  if (added == LiveMap::Added::out_of_memory) {
    process.ledger.release(context.device_index, units);
    return false;
  }
  note_call_site(process, allocation);
  return true;
}

namespace {

// Gives back blocks that the runtime was seen to return.
void give_back_returned(Process& process, int device_index, int pool) {
  const uint32_t gone = process.blocks[device_index][pool].take_returned();
  if (gone > 0) [[unlikely]]
    give_back(process, device_index, gone * BlockCache::kBlockUnits);
}

Allocation block_of(const Context& context, int pool, uint64_t address) {
  Allocation block = entry_of(context, chunk_key(address), BlockCache::kBlockUnits);
  block.pool = static_cast<uint8_t>(pool);
  return block;
}

LiveMap::Added add_user_of(Process& process, const Allocation& block) {
  Allocation displaced;
  const auto added = process.allocations.add_user(block, displaced);
  give_back_displaced(process, displaced);
  return added;
}

}  // namespace

bool record_suballocation(Process& process, Reservation& reservation, const Context& context,
                          int pool, uint64_t address, const BlockCache::Ticket& begun) {
  const Allocation block = block_of(context, pool, address);
  const auto added = add_user_of(process, block);
  if (added == LiveMap::Added::out_of_memory) return false;
  BlockCache& blocks = process.blocks[context.device_index][pool];
  if (added == LiveMap::Added::fresh) {
    reservation.keep(BlockCache::kBlockUnits);
    if (begun.from_empty) blocks.filled();
  } else if (blocks.shared(begun)) {
    reservation.take();
  }
  blocks.placed();
  give_back_returned(process, context.device_index, pool);
  return true;
}

bool record_in_hole(Process& process, const Context& context, int pool, uint64_t address,
                    const BlockCache::Ticket& begun) {
  const Allocation block = block_of(context, pool, address);
  const auto added = add_user_of(process, block);
  if (added == LiveMap::Added::out_of_memory) return false;
  BlockCache& blocks = process.blocks[context.device_index][pool];
  if (added == LiveMap::Added::shared) {
    blocks.shared(begun);
  } else if (!blocks.take_empty()) {
    // A concurrent free has emptied the block, and has not given back its charge yet.
    Allocation taken;
    if (process.allocations.begin_drop(block.key, taken)) process.allocations.finish_drop(taken);
    return false;
  }
  blocks.placed();
  give_back_returned(process, context.device_index, pool);
  return true;
}

uint64_t Release::finish(bool lingers) {
  done_ = true;
  if (!found_) return 0;
  if (in_chunk()) {
    // A thread that relies on a hole may have got one in this chunk before the driver freed this
    // part. The chunk is then not empty, which the map shows once that allocation is recorded.
    process_.small_allocations.await_open();
    if (lingers || taken_.exported) process_.lingering.add(taken_.key);
    taken_.units =
        process_.allocations.finish_drop(taken_, &taken_, lingers, unit_in_chunk(address_));
  }
  return taken_.units;
}

void Release::done() {
  const uint64_t units = finish(false);
  if (units > 0) {
    if (taken_.lingers && !taken_.exported) {
      defer_to_reported_usage(process_, taken_.device_index, units);
    } else {
      give_back(process_, taken_, units);
    }
  }
  if (found_ && units == 0 && !in_chunk()) {
    process_.small_arrays.fetch_sub(1, std::memory_order_relaxed);
    release_small_array(process_, taken_.device_index, taken_.detail);
  }
}

void Release::done_in_block() {
  const bool block = found_ && in_chunk();
  const uint64_t units = finish(false);
  if (units == 0) return;
  if (!block) return give_back(process_, taken_, units);
  // The export's charge lasts as long as an importer has the block open. The runtime may keep the
  // block for longer, so the block cache charges it as well.
  if (taken_.exported) {
    process_.ledger.charge_taken(taken_.device_index, BlockCache::kBlockUnits);
    give_back(process_, taken_, units);
  }
  BlockCache& blocks = process_.blocks[taken_.device_index][taken_.pool];
  if (const uint32_t gone = taken_.apart ? blocks.emptied_apart() : blocks.emptied(); gone > 0)
    give_back(process_, taken_.device_index, gone * BlockCache::kBlockUnits);
  give_back_returned(process_, taken_.device_index, taken_.pool);
}

void Release::defer() {
  const uint64_t units = finish(true);
  if (units == 0) return;
  if (taken_.exported) {
    const uint32_t number = take_export(process_, token_of(taken_), units);
    return defer_exported(process_, taken_.device_index, units, number);
  }
  defer_to_reported_usage(process_, taken_.device_index, units);
}

void Release::put_back() {
  if (in_chunk()) {
    process_.allocations.abandon_drop(taken_);
  } else {
    Allocation displaced;
    process_.allocations.add(taken_, displaced);
  }
}

bool record_small_array(Process& process, const Context& context, uint64_t handle,
                        uint32_t unread_since) {
  Allocation displaced, array = entry_of(context, handle, 0);
  array.detail = unread_since;
  return process.allocations.add(array, displaced) == LiveMap::Added::fresh;
}

void release_context(Process& process, const Context& context) {
  if (context.id == kUntrackedContext) return;
  // Giving exports back takes the ledger's lock, so it waits until the map is unlocked.
  struct Export {
    uint64_t key;
    Allocation allocation;
  };
  HashTable<Export, 8> exported;
  process.allocations.take_context(context.id, [&](const Allocation& allocation) {
    if (allocation.exported) {
      Export* const entry = exported.insert(allocation.key);
      // Without memory for the entry it stays charged.
      if (entry != nullptr) entry->allocation = allocation;
    } else {
      discard_block(process, allocation);
      process.ledger.release(allocation.device_index, allocation.units);
    }
    if (allocation.units == 0) process.small_arrays.fetch_sub(1, std::memory_order_relaxed);
  });
  exported.for_each(
      [&](const Export& each) { give_back(process, each.allocation, each.allocation.units); });
  exported.clear();
  process.physical.drop_context(
      context.id, [&](const PhysicalTable::Freed& freed) { give_back(process, freed); });
  process.recorder.add({.type = ring::Type::context_gone, .owner = context.id});
  forget_code(process, context.id);
  process.contexts.recycle(context.id);
}

}  // namespace fracgpu
