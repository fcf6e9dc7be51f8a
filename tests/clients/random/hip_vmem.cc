// HSA's virtual memory management, in all orders: memory is free when its last handle and its last
// mapping are gone.
#include <algorithm>
#include <vector>

#include "hip_actor.h"

namespace client::hip {
namespace {

class Vmem : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        create();
        break;
      case 3:
      case 4:
        map();
        break;
      case 5:
        unmap();
        break;
      case 6:
        release();
        break;
      default:
        retain();
    }
  }

  void clear() override {
    while (!mappings_.empty()) unmap();
    while (!handles_.empty()) release();
  }

 private:
  struct Handle {
    uint64_t handle;
    size_t bytes;
  };
  struct Mapping {
    void* address;
    size_t bytes;
  };

  void create() {
    constexpr size_t kPage = 4096;
    if (handles_.size() > 40) return;
    const size_t bytes = (size() + kPage - 1) / kPage * kPage;
    uint64_t handle = 0;
    const int result =
        call("hsa_amd_vmem_handle_create", device_pool(), bytes, 0, uint64_t{0}, &handle);
    if (good(result, "hsa_amd_vmem_handle_create", bytes)) handles_.push_back({handle, bytes});
  }

  void map() {
    if (handles_.empty() || mappings_.size() > 40) return;
    const Handle& handle = handles_[below(handles_.size())];
    void* address = nullptr;
    if (!good(
            call("hsa_amd_vmem_address_reserve", &address, handle.bytes, uint64_t{0}, uint64_t{0}),
            "hsa_amd_vmem_address_reserve")) {
      return;
    }
    if (good(call("hsa_amd_vmem_map", address, handle.bytes, size_t{0}, handle.handle, uint64_t{0}),
             "hsa_amd_vmem_map")) {
      mappings_.push_back({address, handle.bytes});
    }
  }

  void unmap() {
    if (mappings_.empty()) return;
    std::swap(mappings_[below(mappings_.size())], mappings_.back());
    const Mapping gone = mappings_.back();
    mappings_.pop_back();
    good(call("hsa_amd_vmem_unmap", gone.address, gone.bytes), "hsa_amd_vmem_unmap");
    good(call("hsa_amd_vmem_address_free", gone.address, gone.bytes), "hsa_amd_vmem_address_free");
  }

  void release() {
    if (handles_.empty()) return;
    std::swap(handles_[below(handles_.size())], handles_.back());
    good(call("hsa_amd_vmem_handle_release", handles_.back().handle),
         "hsa_amd_vmem_handle_release");
    handles_.pop_back();
  }

  void retain() {
    if (mappings_.empty()) return;
    const Mapping& mapping = mappings_[below(mappings_.size())];
    uint64_t handle = 0;
    if (good(call("hsa_amd_vmem_retain_alloc_handle", &handle, mapping.address),
             "hsa_amd_vmem_retain_alloc_handle")) {
      handles_.push_back({handle, mapping.bytes});
    }
  }

  std::vector<Handle> handles_;
  std::vector<Mapping> mappings_;
};

}  // namespace

std::unique_ptr<Actor> make_vmem(const World& world, uint64_t seed) {
  return std::make_unique<Vmem>(world, seed);
}

}  // namespace client::hip
