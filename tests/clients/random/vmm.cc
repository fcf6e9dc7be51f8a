// Virtual memory management, in every order that NCCL, PyTorch and others use: released while
// mapped, unmapped while referenced, several maps in one unmap, references taken by address, bound
// to multicast objects, mapped to sparse arrays.
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
    switch (below(10)) {
      case 8:
        bind();
        break;
      case 9:
        map_to_array();
        break;
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
    while (!multicasts_.empty()) drop_multicast();
    while (!arrays_.empty()) drop_array();
  }

 private:
  struct Handle {
    CUmemGenericAllocationHandle value;
    size_t bytes;
  };
  struct Multicast {
    CUmemGenericAllocationHandle value;
    size_t bytes;
    bool bound;
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

  // A multicast object keeps what is bound to it, after the handle's release too.
  void bind() {
    if (handles_.empty() || multicasts_.size() > 6) {
      if (!multicasts_.empty()) drop_multicast();
      return;
    }
    const Handle& memory = handles_[below(handles_.size())];
    struct {
      unsigned devices;
      size_t bytes;
      unsigned long long handle_types, flags;
    } properties = {1, memory.bytes, 0, 0};
    Multicast object = {.value = 0, .bytes = memory.bytes, .bound = false};
    const void* wanted = &properties;
    if (!good(call("cuMulticastCreate", &object.value, wanted), "cuMulticastCreate")) return;
    good(call("cuMulticastAddDevice", object.value, 0), "cuMulticastAddDevice");
    object.bound = chance(50) ? bind_handle(object, memory) : bind_address(object, memory);
    multicasts_.push_back(object);
  }

  bool bind_handle(const Multicast& object, const Handle& memory) {
    const int result = chance(50) ? call("cuMulticastBindMem", object.value, size_t{0},
                                         memory.value, size_t{0}, memory.bytes, 0ull)
                                  : call("cuMulticastBindMem_v2", object.value, 0, size_t{0},
                                         memory.value, size_t{0}, memory.bytes, 0ull);
    return good(result, "cuMulticastBindMem");
  }

  bool bind_address(const Multicast& object, const Handle& memory) {
    Range range = {.address = 0, .bytes = memory.bytes};
    if (!good(call("cuMemAddressReserve", &range.address, range.bytes, size_t{0}, CUdeviceptr{0},
                   0ull),
              "cuMemAddressReserve")) {
      return false;
    }
    good(call("cuMemMap", range.address, range.bytes, size_t{0}, memory.value, 0ull), "cuMemMap");
    ranges_.push_back(range);
    const int result = chance(50) ? call("cuMulticastBindAddr", object.value, size_t{0},
                                         range.address, range.bytes, 0ull)
                                  : call("cuMulticastBindAddr_v2", object.value, 0, size_t{0},
                                         range.address, range.bytes, 0ull);
    return good(result, "cuMulticastBindAddr");
  }

  void drop_multicast() {
    const Multicast object = multicasts_.back();
    multicasts_.pop_back();
    if (object.bound && chance(50)) {
      good(call("cuMulticastUnbind", object.value, 0, size_t{0}, object.bytes),
           "cuMulticastUnbind");
    }
    good(call("cuMemRelease", object.value), "cuMemRelease of a multicast object");
  }

  // Memory mapped to tiles of a sparse array stays until it is unmapped or the array is gone.
  void map_to_array() {
    if (handles_.empty() || arrays_.size() > 6) {
      if (!arrays_.empty()) drop_array();
      return;
    }
    CUDA_ARRAY3D_DESCRIPTOR form = {};
    form.Width = form.Height = 512;  // two by two tiles of one-byte elements
    form.Format = 0x01;              // CU_AD_FORMAT_UNSIGNED_INT8
    form.NumChannels = 1;
    form.Flags = kArraySparse;
    const CUDA_ARRAY3D_DESCRIPTOR* wanted = &form;
    CUarray array = nullptr;
    if (!good(call("cuArray3DCreate_v2", &array, wanted), "create a sparse array")) return;
    arrays_.push_back(array);
    for (uint64_t n = below(3) + 1; n > 0; --n) {
      const unsigned x = static_cast<unsigned>(below(2)) * 256;
      map_tile(array, x, kOperationMap, handles_[below(handles_.size())].value);
      if (chance(30)) map_tile(array, x, kOperationUnmap, 0);
    }
  }

  void map_tile(CUarray array, unsigned x, int operation, CUmemGenericAllocationHandle memory) {
    CUarrayMapInfo info = {};
    info.resourceType = 0;  // CU_RESOURCE_TYPE_ARRAY
    info.resource.array = array;
    info.subresource.sparseLevel.offsetX = x;
    info.subresource.sparseLevel.extentWidth = 256;
    info.subresource.sparseLevel.extentHeight = 256;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memOperationType = operation;
    info.memHandle.memHandle = memory;
    info.deviceBitMask = 1;
    const CUstream stream = nullptr;
    good(call("cuMemMapArrayAsync", &info, 1u, stream), "cuMemMapArrayAsync");
  }

  void drop_array() {
    good(call("cuArrayDestroy", arrays_.back()), "cuArrayDestroy");
    arrays_.pop_back();
  }

  void release() {
    if (handles_.empty()) return;
    std::swap(handles_[below(handles_.size())], handles_.back());
    good(call("cuMemRelease", handles_.back().value), "cuMemRelease");
    handles_.pop_back();
  }

  std::vector<Handle> handles_;
  std::vector<Range> ranges_;
  std::vector<Multicast> multicasts_;
  std::vector<CUarray> arrays_;
};

}  // namespace

std::unique_ptr<Actor> make_vmm(const World& world, uint64_t seed) {
  return std::make_unique<Vmm>(world, seed);
}

}  // namespace client
