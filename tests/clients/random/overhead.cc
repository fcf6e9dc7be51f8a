// Modules, limits, and contexts that come and go with what was allocated in them.
#include <vector>

#include "actor.h"

namespace client {
namespace {

class Overhead : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    switch (below(6)) {
      case 0:
        load();
        break;
      case 1:
        if (!modules_.empty()) unload();
        break;
      case 2:
        set_heap(below(chance(50) ? 32 : 1200) + 1);
        break;
      case 3:
        if (chance(30)) visit_context();
        break;
      default: {
        CUdeviceptr address = 0;
        if (good(call("cuMemAlloc_v2", &address, size_t{size()}), "cuMemAlloc")) {
          good(call("cuMemFree_v2", address), "cuMemFree");
        }
      }
    }
  }

  void clear() override {
    while (!modules_.empty()) unload();
    set_heap(8);
  }

 private:
  void set_heap(uint64_t mib) {
    good(call("cuCtxSetLimit", kLimitHeap, size_t{mib << 20}), "cuCtxSetLimit");
  }

  void load() {
    if (modules_.size() > 10) return unload();
    CUmodule module = nullptr;
    static const char kImage[] = ".version 7.0\n.target sm_50\n.address_size 64\n";
    const void* image = kImage;
    if (good(call("cuModuleLoadData", &module, image), "cuModuleLoadData")) {
      modules_.push_back(module);
    }
  }

  void unload() {
    good(call("cuModuleUnload", modules_.back()), "cuModuleUnload");
    modules_.pop_back();
  }

  // Leaves allocations behind that only the end of the context frees.
  void visit_context() {
    CUcontext context = nullptr;
    if (!good(call("cuCtxCreate_v2", &context, 0u, 0), "cuCtxCreate")) return;
    for (uint64_t n = below(4); n > 0; --n) {
      CUdeviceptr address = 0;
      if (!good(call("cuMemAlloc_v2", &address, size_t{size()}), "cuMemAlloc")) continue;
      CUipcMemHandle handle;
      if (chance(50)) good(call("cuIpcGetMemHandle", &handle, address), "cuIpcGetMemHandle");
    }
    good(call("cuCtxDestroy_v2", context), "cuCtxDestroy");
    good(call("cuCtxSetCurrent", world_.context), "cuCtxSetCurrent");
  }

  std::vector<CUmodule> modules_;
};

}  // namespace

std::unique_ptr<Actor> make_overhead(const World& world, uint64_t seed) {
  return std::make_unique<Overhead>(world, seed);
}

}  // namespace client
