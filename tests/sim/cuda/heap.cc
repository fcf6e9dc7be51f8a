// Device memory of one process: large allocations in whole pages, small ones inside chunks, and
// imports. Requests of 1 MiB and more are rounded up to 2 MiB pages of their own; smaller ones
// share chunks with others of the same context, and a chunk goes back to the node with its last
// block. Managed memory has chunks of its own: a hundred million allocations were seen to fit
// (kokkos issue 2641), and their addresses to be multiples of 256 bytes (gpgpu-sim_UVMSmart issue
// 7), so that several share a page. Every step is constant time.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "sim/cuda/driver.h"

namespace sim {
namespace {
constexpr uint64_t kSmallLimit = 2ULL << 20;

bool managed_is_late() {
  static const bool late = [] {
    const char* text = std::getenv("FRACGPU_SIM_MANAGED");
    return text != nullptr && std::strcmp(text, "late") == 0;
  }();
  return late;
}
}  // namespace

Range* Driver::new_range(Context* context, Range::Type type, uint64_t pages, bool low,
                         bool takes_memory) {
  Range* range;
  if (spare_ranges_.empty()) {
    range = new Range;
  } else {
    range = spare_ranges_.back();
    spare_ranges_.pop_back();
  }
  // A spare one holds no memory; what only some types mean is set by their makers.
  range->type = type;
  range->low = low;
  range->managed = false;
  range->array = false;
  range->bytes = 0;
  range->previous = nullptr;
  range->pages = pages;
  range->context = context;
  range->serial = next_serial_++;
  if (takes_memory && range->owns() &&
      !account_->take(context->device, pages * kPage, &range->physical)) {
    spare_ranges_.push_back(range);
    return nullptr;
  }
  range->address = space(low).take(pages, range);
  if (range->address == 0) {
    account_->drop(&range->physical);
    spare_ranges_.push_back(range);
    return nullptr;
  }
  range->next = context->ranges;
  if (range->next != nullptr) range->next->previous = range;
  context->ranges = range;
  return range;
}

void Driver::note_managed(const Range& range, int sign) {
  if (range.managed && range.physical.device >= 0)
    account_->note(range.physical.device, &ProcessDevice::managed_bytes,
                   sign * static_cast<int64_t>(range.physical.bytes));
}

void Driver::drop_range(Range* range) {
  Context* const context = range->context;
  note_managed(*range, -1);
  if (range->next != nullptr) range->next->previous = range->previous;
  (range->previous != nullptr ? range->previous->next : context->ranges) = range->next;
  space(range->low).give_back(range->address, range->pages);
  account_->drop(&range->physical);
  spare_ranges_.push_back(range);
}

CUresult Driver::allocate(Context* context, uint64_t bytes, bool low, bool managed, uint64_t* out,
                          bool array) {
  context = context->owner();
  // More than any device could hold also keeps the rounding below from overflowing.
  if (bytes > account_->total(context->device)) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool takes_memory = !managed || !managed_is_late();
  if (bytes >= kSmallLimit) {
    Range* range =
        new_range(context, Range::Type::kLarge, (bytes + kPage - 1) / kPage, low, takes_memory);
    if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    range->bytes = bytes;
    range->managed = managed;
    note_managed(*range, 1);
    *out = range->address;
    return CUDA_SUCCESS;
  }
  std::unique_ptr<SmallHeap>& heap = context->small[array ? 3 : managed ? 2 : low ? 1 : 0];
  if (heap == nullptr) heap = std::make_unique<SmallHeap>();
  SmallHeap::Place place;
  if (!heap->take(static_cast<uint32_t>(bytes), &place)) {
    Range* range = new_range(context, Range::Type::kChunk, 1, low, takes_memory);
    if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    range->managed = managed;
    range->array = array;
    note_managed(*range, 1);
    range->chunk = heap->add_chunk(range);
    heap->take(static_cast<uint32_t>(bytes), &place);
  }
  *out = heap->range(place.chunk)->address + uint64_t{place.unit} * kUnit;
  return CUDA_SUCCESS;
}

bool Driver::prefetch(Range* range) {
  if (range->physical.device >= 0) return true;
  if (!account_->take(range->context->device, range->pages * kPage, &range->physical)) return false;
  note_managed(*range, 1);
  return true;
}

CUresult Driver::free(uint64_t address) {
  AddressSpace& where = space(low_.contains(address));
  Range* range = where.starting_at(address & ~(kPage - 1));
  // The common case comes first: graphs and pools have addresses of their own.
  if (range == nullptr) {
    if (graph_memory.contains(address)) return graph_memory.free(address);
    // Freed without a stream: after everything that was asked before.
    return pools.owns(address) ? pools.free_now(address) : CUDA_ERROR_INVALID_VALUE;
  }
  if (pools.awaits(address)) return CUDA_ERROR_INVALID_VALUE;
  if (range->type == Range::Type::kLarge) {
    if (range->address != address) return CUDA_ERROR_INVALID_VALUE;
    drop_range(range);
    return CUDA_SUCCESS;
  }
  const uint64_t offset = address - range->address;
  if (range->type != Range::Type::kChunk || offset % kUnit != 0) {
    if (range->type != Range::Type::kExternal || offset != 0) return CUDA_ERROR_INVALID_VALUE;
    drop_range(range);
    return CUDA_SUCCESS;
  }
  SmallHeap& heap = *range->context->small[range->heap()];
  bool empty = false;
  if (!heap.give_back({range->chunk, static_cast<uint32_t>(offset / kUnit)}, &empty))
    return CUDA_ERROR_INVALID_VALUE;
  if (empty) {
    heap.remove_chunk(range->chunk);
    drop_range(range);
  }
  return CUDA_SUCCESS;
}

bool Driver::find(uint64_t address, Found* found) {
  if (vmm.contains(address)) {
    const Mapping* mapping = vmm.mapping_at(address, &found->base);
    if (mapping == nullptr) return false;
    found->ordinal = device_of(mapping->block->prop.location);
    found->bytes = mapping->bytes;
    found->id = mapping->block->handle;
    found->accessible = current() != nullptr && mapping->access[current()->ordinal] != 0;
    return true;
  }
  if (graph_memory.contains(address)) return graph_memory.find(address, found);
  if (pools.may_have(address) && pools.find(address, found)) return true;
  AddressSpace& where = space(low_.contains(address));
  Range* range = where.at_or_below(address);
  if (range == nullptr || address >= range->address + range->pages * kPage) return false;
  found->range = range;
  found->context = range->context;
  found->ordinal = range->context->ordinal;
  found->id = range->serial;
  found->managed = range->managed;
  found->base = range->address;
  found->bytes = range->bytes;
  if (range->type == Range::Type::kChunk) {
    const auto unit = static_cast<uint32_t>((address - range->address) / kUnit);
    uint32_t first = 0, bytes = 0;
    if (!range->context->small[range->heap()]->find({range->chunk, unit}, &first, &bytes))
      return false;
    found->base = range->address + uint64_t{first} * kUnit;
    found->bytes = bytes;
  }
  return address < found->base + found->bytes;
}

CUresult Driver::import(Context* context, const Physical& memory, uint64_t offset, uint64_t bytes,
                        uint64_t* out) {
  context = context->owner();
  for (Range* range = context->ranges; range != nullptr; range = range->next) {
    if (range->type == Range::Type::kImport && range->physical.serial == memory.serial &&
        range->import_offset == offset) {
      Physical second = memory;
      account_->drop(&second);
      ++range->references;
      *out = range->address;
      return CUDA_SUCCESS;
    }
  }
  Range* range = new_range(context, Range::Type::kImport, (bytes + kPage - 1) / kPage, false);
  if (range == nullptr) return CUDA_ERROR_MAP_FAILED;
  range->physical = memory;
  range->bytes = bytes;
  range->references = 1;
  range->import_offset = offset;
  *out = range->address;
  return CUDA_SUCCESS;
}

CUresult Driver::close_import(uint64_t address) {
  Range* range = high_.starting_at(address & ~(kPage - 1));
  if (range == nullptr || range->type != Range::Type::kImport || range->address != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (--range->references == 0) drop_range(range);
  return CUDA_SUCCESS;
}

CUresult Driver::attach(Context* context, Range::Type type, uint64_t bytes, uint64_t* out) {
  Range* range = new_range(context->owner(), type, (bytes + kPage - 1) / kPage, false);
  if (range == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  range->bytes = bytes;
  *out = range->address;
  return CUDA_SUCCESS;
}

int Driver::export_memory(Physical* memory, ObjectKind kind, const CUmemLocation& location) {
  const uint32_t where[2] = {static_cast<uint32_t>(location.type),
                             static_cast<uint32_t>(location.id)};
  return account_->share(memory, kind, where) ? account_->descriptor(*memory) : -1;
}

CUmemLocation Driver::location_of(const Physical& memory) {
  const ObjectRow& row = account_->row_of(memory);
  if (row.device < 0) return {static_cast<int>(row.location[0]), static_cast<int>(row.location[1])};
  const auto found = std::find(visible_.begin(), visible_.end(), row.device);
  return {CU_MEM_LOCATION_TYPE_DEVICE,
          found != visible_.end() ? static_cast<int>(found - visible_.begin()) : -1};
}

}  // namespace sim
