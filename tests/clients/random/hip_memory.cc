// hipMalloc and its relatives, HIP's pools and arrays, streams, modules, and HSA's pools
// themselves.
#include <algorithm>
#include <functional>
#include <vector>

#include "hip_actor.h"
#include "tests/clients/code_image.h"

namespace client::hip {
namespace {

constexpr uint64_t kBlock = 2u << 20;

uint64_t blocks(uint64_t bytes) {
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

// Some live objects; a move makes one or frees one.
class Holder : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    if (!held_.empty() && chance(held_.size() < 40 ? 40 : 60)) {
      std::swap(held_[below(held_.size())], held_.back());
      free_last();
    } else {
      make();
    }
  }

  void clear() override {
    while (!held_.empty()) free_last();
  }

 protected:
  virtual void make() = 0;

  struct Held {
    void* object;
    const char* freed_by;
  };
  std::vector<Held> held_;

 private:
  void free_last() {
    good(call(held_.back().freed_by, held_.back().object), held_.back().freed_by);
    held_.pop_back();
  }
};

class Linear : public Holder {
  using Holder::Holder;

  void make() override {
    void* pointer = nullptr;
    size_t pitch = 0;
    const size_t bytes = size();
    int result = 0;
    switch (below(4)) {
      case 0:
        result = call("hipExtMallocWithFlags", &pointer, bytes, 1u);
        break;
      case 1: {
        const size_t width = below(20000) + 1;
        result = call("hipMallocPitch", &pointer, &pitch, width, bytes / width + 1);
        // How rows are padded is HIP's business.
        if (good(result, "hipMallocPitch")) held_.push_back({pointer, "hipFree"});
        return;
      }
      default:
        result = call("hipMalloc", &pointer, bytes);
    }
    if (good(result, "hipMalloc", blocks(bytes))) held_.push_back({pointer, "hipFree"});
  }
};

class Arrays : public Holder {
  using Holder::Holder;

  void make() override {
    const int format[5] = {32, 0, 0, 0, 2};  // one float
    void* array = nullptr;
    const size_t width = below(2000) + 1, height = below(500) + 1;
    const int result =
        call("hipMallocArray", &array, static_cast<const void*>(format), width, height, 0u);
    if (good(result, "hipMallocArray")) held_.push_back({array, "hipFreeArray"});
  }
};

class Streams : public Holder {
  using Holder::Holder;

  void make() override {
    void* stream = nullptr;
    if (held_.size() > 6) return;
    if (good(call("hipStreamCreate", &stream), "hipStreamCreate")) {
      held_.push_back({stream, "hipStreamDestroy"});
    }
  }
};

class Modules : public Holder {
  using Holder::Holder;

  void make() override {
    // HIP 6 and 5 return these errors if ROCr is out of memory.
    constexpr int kNoBinaryForGpu = 209, kSharedObjectInitFailed = 303;
    if (held_.size() > 8) return;
    const std::string image = amd_code_object(size());
    void* module = nullptr;
    const int result = call("hipModuleLoadData", &module, static_cast<const void*>(image.data()));
    const bool is_full = result == kNoBinaryForGpu || result == kSharedObjectInitFailed;
    if (good(is_full ? kOutOfMemory : result, "hipModuleLoadData")) {
      held_.push_back({module, "hipModuleUnload"});
    }
  }
};

// HSA's own calls, as libraries make them that do without HIP.
class Hsa : public Holder {
  using Holder::Holder;

  void make() override {
    void* pointer = nullptr;
    const size_t bytes = size();
    const bool executable = chance(30);
    const int result =
        call("hsa_amd_memory_pool_allocate", device_pool(), bytes, executable ? 4u : 0u, &pointer);
    if (good(result, "hsa_amd_memory_pool_allocate", blocks(bytes))) {
      held_.push_back({pointer, chance(50) ? "hsa_amd_memory_pool_free" : "hsa_memory_free"});
    }
  }
};

class Pools : public Actor {
 public:
  Pools(const World& world, uint64_t seed) : Actor(world, seed) {
    // HIP 5.2 crashes in asynchronous allocations on the null stream.
    call("hipStreamCreate", &stream_);
  }

  void move() override {
    if (chance(5)) {
      void* pool = nullptr;
      if (call("hipDeviceGetDefaultMemPool", &pool, 0) == 0) {
        good(call("hipMemPoolTrimTo", pool, size_t{0}), "hipMemPoolTrimTo");
      }
    } else if (chance(10)) {
      good(call("hipStreamSynchronize", stream_), "hipStreamSynchronize");
    } else if (!held_.empty() && chance(held_.size() < 40 ? 40 : 60)) {
      std::swap(held_[below(held_.size())], held_.back());
      free_last();
    } else {
      void* pointer = nullptr;
      const int result = call("hipMallocAsync", &pointer, size_t{size()}, stream_);
      // HIP 5.2 says success and gives no pointer when it is out of memory.
      if (good(pointer == nullptr && result == 0 ? kOutOfMemory : result, "hipMallocAsync")) {
        held_.push_back(pointer);
      }
    }
  }

  void clear() override {
    while (!held_.empty()) free_last();
    call("hipStreamSynchronize", stream_);
  }

 private:
  void free_last() {
    good(call("hipFreeAsync", held_.back(), stream_), "hipFreeAsync");
    held_.pop_back();
  }

  void* stream_ = nullptr;
  std::vector<void*> held_;
};

}  // namespace

std::unique_ptr<Actor> make_linear(const World& world, uint64_t seed) {
  return std::make_unique<Linear>(world, seed);
}
std::unique_ptr<Actor> make_pools(const World& world, uint64_t seed) {
  return std::make_unique<Pools>(world, seed);
}
std::unique_ptr<Actor> make_arrays(const World& world, uint64_t seed) {
  return std::make_unique<Arrays>(world, seed);
}
std::unique_ptr<Actor> make_streams(const World& world, uint64_t seed) {
  return std::make_unique<Streams>(world, seed);
}
std::unique_ptr<Actor> make_modules(const World& world, uint64_t seed) {
  return std::make_unique<Modules>(world, seed);
}
std::unique_ptr<Actor> make_hsa(const World& world, uint64_t seed) {
  return std::make_unique<Hsa>(world, seed);
}

}  // namespace client::hip
