// Virtual memory management, in every order that NCCL, PyTorch and others use: released while
// mapped, unmapped while referenced, several maps in one unmap, references taken by address.
#include <algorithm>
#include <vector>

#include "actor.h"

namespace client {
namespace {

constexpr uint64_t kPage = 2u << 20;

class Vmm : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    switch (below(8)) {
      case 0:
      case 1:
        create();
        break;
      case 2:
      case 3:
        map_range();
        break;
      case 4:
        unmap_range();
        break;
      case 5:
        retain();
        break;
      case 6:
        create_on_host();
        break;
      default:
        release();
    }
  }

  void clear() override {
    while (!ranges_.empty()) unmap_range();
    while (!handles_.empty()) release();
  }

 private:
  struct Handle {
    CUmemGenericAllocationHandle value;
    size_t bytes;
  };
  struct Range {
    CUdeviceptr address;
    size_t bytes;
  };

  static CUmemAllocationProp properties(int location) {
    CUmemAllocationProp properties = {};
    properties.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location = {.type = location, .id = 0};
    return properties;
  }

  void create() {
    if (handles_.size() > 30) return release();
    Handle handle = {.value = 0, .bytes = (size() + kPage - 1) / kPage * kPage};
    const CUmemAllocationProp wanted = properties(kLocationDevice);
    if (good(call("cuMemCreate", &handle.value, handle.bytes, &wanted, 0ull), "cuMemCreate",
             handle.bytes)) {
      handles_.push_back(handle);
    }
  }

  // Costs no device memory, and must not be charged whatever becomes of its handle.
  void create_on_host() {
    Handle handle = {.value = 0, .bytes = kPage};
    const CUmemAllocationProp wanted = properties(3);  // CU_MEM_LOCATION_TYPE_HOST_NUMA
    if (!good(call("cuMemCreate", &handle.value, handle.bytes, &wanted, 0ull), "cuMemCreate"))
      return;
    good(call("cuMemRelease", handle.value), "cuMemRelease");
  }

  // Maps one to four handles, or one several times, side by side.
  void map_range() {
    if (handles_.empty() || ranges_.size() > 20) return unmap_range();
    std::vector<Handle> chosen;
    Range range = {};
    for (uint64_t n = below(4) + 1; n > 0; --n) {
      chosen.push_back(handles_[below(handles_.size())]);
      range.bytes += chosen.back().bytes;
    }
    if (!good(call("cuMemAddressReserve", &range.address, range.bytes, size_t{0}, CUdeviceptr{0},
                   0ull),
              "cuMemAddressReserve")) {
      return;
    }
    CUdeviceptr at = range.address;
    for (const Handle& handle : chosen) {
      good(call("cuMemMap", at, handle.bytes, size_t{0}, handle.value, 0ull), "cuMemMap");
      at += handle.bytes;
    }
    ranges_.push_back(range);
  }

  void unmap_range() {
    if (ranges_.empty()) return;
    std::swap(ranges_[below(ranges_.size())], ranges_.back());
    const Range range = ranges_.back();
    ranges_.pop_back();
    good(call("cuMemUnmap", range.address, range.bytes), "cuMemUnmap");
    good(call("cuMemAddressFree", range.address, range.bytes), "cuMemAddressFree");
  }

  void retain() {
    if (ranges_.empty()) return;
    const Range& range = ranges_[below(ranges_.size())];
    Handle handle = {};
    void* inside = reinterpret_cast<void*>(range.address + below(kPage));
    if (!good(call("cuMemRetainAllocationHandle", &handle.value, inside), "cuMemRetain")) return;
    // Its size is not known here; it is only good for being released.
    good(call("cuMemRelease", handle.value), "cuMemRelease");
  }

  void release() {
    if (handles_.empty()) return;
    std::swap(handles_[below(handles_.size())], handles_.back());
    good(call("cuMemRelease", handles_.back().value), "cuMemRelease");
    handles_.pop_back();
  }

  std::vector<Handle> handles_;
  std::vector<Range> ranges_;
};

}  // namespace

std::unique_ptr<Actor> make_vmm(const World& world, uint64_t seed) {
  return std::make_unique<Vmm>(world, seed);
}

}  // namespace client
