// The table of functions.inc as an array, for the doors and the entry-point getters.
#include "hooks/cuda/driver.h"

namespace fracgpu::cuda {
namespace {

const Function functions[] = {
#define FRACGPU_HOOKED(name, parameters) {#name, reinterpret_cast<void*>(&name), &slot::name},
#define FRACGPU_CALLED(name, parameters) {#name, nullptr, &slot::name},
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
};

constexpr auto by_name = order_of(std::to_array<std::string_view>({
#define FRACGPU_HOOKED(name, parameters) #name,
#define FRACGPU_CALLED(name, parameters) #name,
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
}));

}  // namespace

constinit VendorLibrary driver_library("cu", "libcuda.so.1", functions, by_name);

}  // namespace fracgpu::cuda
