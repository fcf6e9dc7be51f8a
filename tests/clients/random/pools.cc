// Stream-ordered allocation from the default pools and from pools of the program's own, of device
// memory, of managed memory and of the host's.
#include <unistd.h>

#include <iterator>
#include <vector>

#include "actor.h"

namespace client {
namespace {

class Pools : public Actor {
 public:
  Pools(const World& world, uint64_t seed) : Actor(world, seed) {
    good(call("cuStreamCreate", &stream_, 1u), "cuStreamCreate");
  }

  void move() override {
    switch (below(13)) {
      case 0:
        make_pool();
        break;
      case 1:
        if (chance(30)) destroy_pool();
        break;
      case 2:
        trim();
        break;
      case 3:
        good(call("cuStreamSynchronize", stream_), "cuStreamSynchronize");
        break;
      case 4:
        free_linear_in_stream();
        break;
      case 12:
        import_own();
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        allocate();
        break;
      default:
        free_one();
    }
  }

  void clear() override {
    while (!imports_.empty()) drop_import();
    while (!held_.empty()) free_one();
    while (!pools_.empty()) destroy_pool();
    good(call("cuStreamSynchronize", stream_), "cuStreamSynchronize");
    for (const Kind& kind : kKinds) {
      good(call("cuMemPoolTrimTo", default_pool(kind), size_t{0}), "cuMemPoolTrimTo");
    }
  }

 private:
  struct Kind {
    int type;  // CU_MEM_ALLOCATION_TYPE_…: 1 pinned, 2 managed
    CUmemLocation location;
    bool shareable;
  };
  static constexpr Kind kKinds[] = {
      {1, {kLocationDevice, 0}, true},
      {1, {6, 1 << 8}, true},  // CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN: domain 1 of device 0
      {1, {2, 0}, false},      // CU_MEM_LOCATION_TYPE_HOST
      {2, {kLocationDevice, 0}, false},
      {2, {2, 0}, false},
      {2, {0, 0}, false},  // CU_MEM_LOCATION_TYPE_NONE
  };
  struct Own {
    CUmemoryPool handle = nullptr;
    bool shareable = false;
  };

  const Kind& any_kind() { return chance(50) ? kKinds[0] : kKinds[below(std::size(kKinds))]; }

  CUmemoryPool default_pool(const Kind& kind) {
    CUmemoryPool pool = nullptr;
    CUmemLocation location = kind.location;
    const char* const call_of = chance(50) ? "cuMemGetDefaultMemPool" : "cuMemGetMemPool";
    if (&kind == kKinds && chance(50)) {
      good(call("cuDeviceGetDefaultMemPool", &pool, 0), "cuDeviceGetDefaultMemPool");
    } else {
      good(call(call_of, &pool, &location, kind.type), call_of);
    }
    return pool;
  }

  void make_pool() {
    if (pools_.size() > 3) return;
    const Kind& kind = any_kind();
    CUmemPoolProps properties = {};
    properties.allocType = kind.type;
    properties.handleTypes = kind.shareable ? 1 : 0;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    properties.location = kind.location;
    CUmemoryPool pool = nullptr;
    const CUmemPoolProps* wanted = &properties;
    if (!good(call("cuMemPoolCreate", &pool, wanted), "cuMemPoolCreate")) return;
    pools_.push_back({pool, kind.shareable});
    uint64_t threshold = chance(50) ? ~uint64_t{0} : size();
    void* value = &threshold;
    good(call("cuMemPoolSetAttribute", pool, 4, value),
         "cuMemPoolSetAttribute");  // RELEASE_THRESHOLD
  }

  void destroy_pool() {
    if (pools_.empty()) return;
    good(call("cuMemPoolDestroy", pools_.back().handle), "cuMemPoolDestroy");
    pools_.pop_back();
  }

  void trim() {
    good(call("cuMemPoolTrimTo", any_pool(), size_t{chance(50) ? 0 : size()}), "cuMemPoolTrimTo");
  }

  CUmemoryPool any_pool() {
    return !pools_.empty() && chance(70) ? pools_[below(pools_.size())].handle
                                         : default_pool(any_kind());
  }

  void allocate() {
    if (held_.size() > 60) return free_one();
    CUdeviceptr address = 0;
    int result = 0;
    if (chance(60)) {
      result = call(chance(50) ? "cuMemAllocFromPoolAsync" : "cuMemAllocFromPoolAsync_ptsz",
                    &address, size_t{size()}, any_pool(), stream_);
    } else {
      result = call(chance(50) ? "cuMemAllocAsync" : "cuMemAllocAsync_ptsz", &address,
                    size_t{size()}, stream_);
    }
    if (good(result, "cuMemAllocAsync")) held_.push_back(address);
  }

  // Memory of a pool is there as long as it is imported; an import itself costs nothing, whatever
  // becomes of it.
  void import_own() {
    if (pools_.empty()) return;
    const Own& own = pools_[below(pools_.size())];
    if (!own.shareable) return;
    const CUmemoryPool pool = own.handle;
    const size_t bytes = size();
    Import import;
    CUdeviceptr address = 0;
    if (!good(call("cuMemAllocFromPoolAsync", &address, bytes, pool, stream_),
              "cuMemAllocFromPool")) {
      return;
    }
    held_.push_back(address);
    int fd = -1;
    void* out = &fd;
    CUmemPoolPtrExportData data;
    if (!good(call("cuMemPoolExportToShareableHandle", out, pool, 1, 0ull), "export of a pool")) {
      return;
    }
    void* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd));
    const bool taken =
        good(call("cuMemPoolImportFromShareableHandle", &import.pool, os_handle, 1, 0ull),
             "import of a pool");
    close(fd);
    if (!taken) return;
    if (good(call("cuMemPoolExportPointer", &data, address), "cuMemPoolExportPointer") &&
        good(call("cuMemPoolImportPointer", &import.address, import.pool, &data),
             "cuMemPoolImportPointer")) {
      imports_.push_back(import);
    }
    while (imports_.size() > 4) drop_import();
  }

  void drop_import() {
    std::swap(imports_[below(imports_.size())], imports_.back());
    const Import import = imports_.back();
    imports_.pop_back();
    if (chance(50)) {
      good(call("cuMemFree_v2", import.address), "cuMemFree of an import");
    } else {
      good(call("cuMemFreeAsync", import.address, stream_), "cuMemFreeAsync of an import");
    }
    good(call("cuMemPoolDestroy", import.pool), "cuMemPoolDestroy of an import");
  }

  void free_one() {
    if (held_.empty()) return;
    std::swap(held_[below(held_.size())], held_.back());
    const CUdeviceptr address = held_.back();
    held_.pop_back();
    if (chance(20)) {
      good(call("cuMemFree_v2", address), "cuMemFree of a pool's memory");
    } else {
      good(call("cuMemFreeAsync", address, stream_), "cuMemFreeAsync");
    }
  }

  void free_linear_in_stream() {
    CUdeviceptr address = 0;
    if (!good(call("cuMemAlloc_v2", &address, size_t{size()}), "cuMemAlloc")) return;
    good(call("cuMemFreeAsync", address, stream_), "cuMemFreeAsync of cuMemAlloc's memory");
  }

  struct Import {
    CUmemoryPool pool = nullptr;
    CUdeviceptr address = 0;
  };

  CUstream stream_ = nullptr;
  std::vector<Import> imports_;
  std::vector<Own> pools_;
  std::vector<CUdeviceptr> held_;
};

}  // namespace

std::unique_ptr<Actor> make_pools(const World& world, uint64_t seed) {
  return std::make_unique<Pools>(world, seed);
}

}  // namespace client
