// example_job: what the walks of tools/RECORDING.md look at. Trains for some steps: weights that
// stay, activations that come and go, an index that is large for a moment, and batches that
// somebody forgets to release. Ends with 1 where an allocation fails.
#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <vector>

namespace {

using Pointer = unsigned long long;
constexpr size_t kMiB = 1u << 20;

struct Driver {
  int (*init)(unsigned);
  int (*create_context)(void**, unsigned, int);
  int (*allocate)(Pointer*, size_t);
  int (*free)(Pointer);
  int (*allocate_async)(Pointer*, size_t, void*);
  int (*free_async)(Pointer, void*);
} driver;

bool failed = false;

// As frameworks do: what a program calls is far from what calls the driver.
[[gnu::noinline]] Pointer ask_driver(size_t bytes) {
  Pointer pointer = 0;
  if (driver.allocate(&pointer, bytes) != 0) {
    if (!failed) std::fprintf(stderr, "out of memory\n");
    failed = true;
  }
  return pointer;
}

[[gnu::noinline]] Pointer take_segment(size_t bytes) {
  const Pointer pointer = ask_driver(bytes);
  asm volatile("");
  return pointer;
}

[[gnu::noinline]] Pointer find_block(size_t bytes) {
  const Pointer pointer = take_segment(bytes);
  asm volatile("");
  return pointer;
}

[[gnu::noinline]] Pointer new_storage(size_t bytes) {
  const Pointer pointer = find_block(bytes);
  asm volatile("");
  return pointer;
}

[[gnu::noinline]] Pointer device_memory(size_t bytes) {
  const Pointer pointer = new_storage(bytes);
  asm volatile("");
  return pointer;
}

std::vector<Pointer> remembered;

}  // namespace

// Names that a report shows.
extern "C" {

[[gnu::noinline]] Pointer load_weights() {
  const Pointer weights = device_memory(300 * kMiB);
  asm volatile("");
  return weights;
}

[[gnu::noinline]] void remember_batch() {
  remembered.push_back(device_memory(8 * kMiB));  // and never releases it
}

[[gnu::noinline]] void build_index() {
  const Pointer index = device_memory(512 * kMiB);
  if (index != 0) driver.free(index);
}

[[gnu::noinline]] void train_step() {
  Pointer activations = 0;
  if (driver.allocate_async(&activations, 96 * kMiB, nullptr) != 0) {
    failed = true;
    return;
  }
  remember_batch();
  driver.free_async(activations, nullptr);
}

[[gnu::noinline]] int train() {
  load_weights();
  build_index();
  for (int step = 0; step < 20 && !failed; ++step) train_step();
  return failed ? 1 : 0;
}
}

int main() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return 2;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
  };
  find(driver.init, "cuInit");
  find(driver.create_context, "cuCtxCreate_v2");
  find(driver.allocate, "cuMemAlloc_v2");
  find(driver.free, "cuMemFree_v2");
  find(driver.allocate_async, "cuMemAllocAsync");
  find(driver.free_async, "cuMemFreeAsync");
  void* context = nullptr;
  driver.init(0);
  return driver.create_context(&context, 0, 0) == 0 ? train() : 1;
}
