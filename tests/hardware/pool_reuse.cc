// Memory freed in stream order and allocated again while the GPU is still busy: a pool that holds
// what is asked for needs no room under the cap. With the library, under a cap.
#include "tests/hardware/cuda.h"
#include "tests/hardware/kernels.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {

void ask_pool_reuse(const Options& options) {
  const uint64_t cap = options.number("cap");
  question({"pool.loop_refused", "pool.loop_grown_bytes", "pool.spin_ms"}, [&] {
    begin_cuda();
    const CUmodule module = load_ptx(kSpin);
    CUstream stream = nullptr;
    cuda("cuStreamCreate", &stream, 1u);
    const uint64_t bytes = cap / 8 * 5 / (2 * kMiB) * (2 * kMiB) / 4 * 3;
    CUmemoryPool pool = nullptr;
    cuda("cuDeviceGetDefaultMemPool", &pool, CUdevice{0});
    double start = now_ms();
    launch(module, "spin", 50000000, stream);
    cuda("cuStreamSynchronize", stream);
    fact("pool.spin_ms", now_ms() - start);
    int refused = 0;
    unsigned long long first = 0, last = 0;
    void* const out = &last;
    for (int round = 0; round < 6; ++round) {
      CUdeviceptr address = 0;
      const int rc = try_cuda("cuMemAllocAsync", &address, size_t{bytes}, stream);
      if (rc != 0 && rc != kOutOfMemory) throw Unmeasured(cuda_failure("cuMemAllocAsync", rc));
      refused += rc != 0;
      if (rc != 0) continue;
      launch(module, "spin", 50000000, stream);
      cuda("cuMemFreeAsync", address, stream);
      cuda("cuMemPoolGetAttribute", pool, kPoolReserved, out);
      if (round == 0) first = last;
    }
    cuda("cuStreamSynchronize", stream);
    fact("pool.loop_refused", refused);
    fact("pool.loop_grown_bytes", last > first ? static_cast<double>(last - first) : 0);
  });
}

}  // namespace hardware
