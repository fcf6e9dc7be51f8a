// What becomes physical of allocations and pools of many sizes, and what the ledger has of it.
#include <unistd.h>

#include <algorithm>

#include "tests/hardware/cuda.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr uint64_t kSizes[] = {4 * kKiB,    16 * kKiB,       64 * kKiB,       256 * kKiB,
                               512 * kKiB,  1000 * kKiB,     1024 * kKiB,     1025 * kKiB,
                               1536 * kKiB, 2 * kMiB - kKiB, 2 * kMiB,        2 * kMiB + kKiB,
                               3 * kMiB,    4 * kMiB,        4 * kMiB + kKiB, 5 * kMiB};
constexpr uint64_t kPools[] = {1, 2, 8, 31, 32, 33, 64, 100, 500, 1000};  // MiB
constexpr size_t kEach = 8;

std::string readable(uint64_t bytes) {
  return bytes >= kMiB && bytes % kMiB == 0 ? std::to_string(bytes / kMiB) + " MiB"
                                            : std::to_string(bytes / kKiB) + " KiB";
}

uint64_t counted() {
  uint64_t bytes = 0;
  if (!nvml::bytes_of(getpid(), &bytes)) throw Unmeasured("NVML's list does not name this process");
  return bytes;
}

void allocate(uint64_t bytes, std::vector<CUdeviceptr>* held, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    CUdeviceptr address = 0;
    cuda("cuMemAlloc_v2", &address, size_t{bytes});
    held->push_back(address);
  }
}

void release(std::vector<CUdeviceptr>* held) {
  for (const CUdeviceptr address : *held) cuda("cuMemFree_v2", address);
  held->clear();
}

// A pool of its own with one allocation.
struct OnePool {
  explicit OnePool(uint64_t bytes) {
    const CUmemPoolProps properties = pool_memory();
    const CUmemPoolProps* wanted = &properties;
    const CUstream stream = nullptr;
    cuda("cuMemPoolCreate", &pool, wanted);
    rc = try_cuda("cuMemAllocFromPoolAsync", &address, size_t{bytes}, pool, stream);
    cuda("cuCtxSynchronize");
  }
  uint64_t reserved() const {
    unsigned long long bytes = 0;
    void* const out = &bytes;
    cuda("cuMemPoolGetAttribute", pool, kPoolReserved, out);
    return bytes;
  }
  void destroy() {
    const CUstream stream = nullptr;
    if (rc == 0) cuda("cuMemFreeAsync", address, stream);
    cuda("cuCtxSynchronize");
    cuda("cuMemPoolDestroy", pool);
  }
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  int rc = 0;
};

void plain() {
  question({"sweep.page_bytes", "sweep.alloc_table"}, [] {
    begin_cuda();
    std::string table;
    uint64_t smallest = UINT64_MAX;
    for (const uint64_t size : kSizes) {
      std::vector<CUdeviceptr> held;
      const uint64_t before = counted();
      uint64_t last = before;
      for (size_t i = 0; i < kEach; ++i) {
        allocate(size, &held, 1);
        const uint64_t now = counted();
        if (now > last) smallest = std::min(smallest, now - last);
        last = now;
      }
      table += (table.empty() ? "" : "; ") + std::to_string(kEach) + " x " + readable(size) +
               " take " + readable(last - before);
      release(&held);
    }
    fact("sweep.alloc_table", table);
    if (smallest == UINT64_MAX) throw Unmeasured("NVML's count never grew");
    fact("sweep.page_bytes", static_cast<double>(smallest));
  });
  question({"sweep.pool_chunk_bytes", "sweep.pool_table"}, [] {
    std::string table;
    for (const uint64_t mib : kPools) {
      if (mib * kMiB * 2 > cuda_memory().free) break;
      OnePool one(mib * kMiB);
      if (one.rc != 0) throw Unmeasured(cuda_failure("cuMemAllocFromPoolAsync", one.rc));
      if (mib == 1) fact("sweep.pool_chunk_bytes", static_cast<double>(one.reserved()));
      table += (table.empty() ? "" : "; ") + std::to_string(mib) + " MiB take " +
               readable(one.reserved());
      one.destroy();
    }
    fact("sweep.pool_table", table);
  });
}

// The greatest differences between the driver's count and the ledger's, over all sizes.
class Differences {
 public:
  explicit Differences(std::string key) : key_(std::move(key)) {}
  void look(Books& books) {
    const Books::Page page = books.look();
    if (!page.driver_knows) throw Unmeasured("NVML's list does not name this process");
    under_ = std::max(under_, static_cast<double>(page.driver) - static_cast<double>(page.ledger));
    over_ = std::max(over_, static_cast<double>(page.ledger) - static_cast<double>(page.driver));
  }
  void tell() const {
    fact(key_ + "_undercharged_bytes", under_);
    fact(key_ + "_overcharged_bytes", over_);
  }

 private:
  std::string key_;
  double under_ = 0, over_ = 0;
};

void charged(uint64_t cap) {
  question({"sweep.alloc_undercharged_bytes", "sweep.alloc_overcharged_bytes"}, [] {
    Books books;
    Differences differences("sweep.alloc");
    begin_cuda();
    for (const uint64_t size : kSizes) {
      std::vector<CUdeviceptr> held;
      allocate(size, &held, kEach);
      differences.look(books);
      release(&held);
      differences.look(books);
    }
    differences.tell();
  });
  question({"sweep.pool_undercharged_bytes", "sweep.pool_overcharged_bytes"}, [&] {
    Books books;
    Differences differences("sweep.pool");
    for (const uint64_t mib : kPools) {
      if (mib * kMiB > cap / 3) break;
      OnePool one(mib * kMiB);
      if (one.rc != 0) throw Unmeasured(cuda_failure("cuMemAllocFromPoolAsync", one.rc));
      differences.look(books);
      one.destroy();
    }
    differences.tell();
  });
}

}  // namespace

void ask_sweep(const Options& options) {
  options.text("with", "plain") == "library" ? charged(options.number("cap")) : plain();
}

}  // namespace hardware
