// The entry-point getters of the simulated driver, old and new.
// The new one treats an unknown name as no error: null pointer, status 1. The old one has no status
// to say so with and returns NOT_FOUND, leaving the pointer alone; both as measured on the real 535
// driver.
#include "sim/cuda/driver.h"
#include "sim/cuda/symbols.h"

namespace {

constexpr uint64_t kKnownFlags = 3;

CUresult look_up(const char* name, int version, uint64_t flags, void** found, int* status) {
  if (name == nullptr || (flags & ~kKnownFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  *found = sim::find_symbol(name, static_cast<unsigned>(version),
                            (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0, status);
  return CUDA_SUCCESS;
}

}  // namespace

// All of these work before cuInit, and in forked children.
SIM_API CUresult cuGetProcAddress(const char* name, void** out, int version, uint64_t flags) {
  if (const int result = sim::ordered("cuGetProcAddress")) return result;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  void* found = nullptr;
  int status = 0;
  if (const CUresult result = look_up(name, version, flags, &found, &status)) return result;
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *out = found;
  return CUDA_SUCCESS;
}

SIM_API CUresult cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags,
                                     int* status) {
  if (const int result = sim::ordered("cuGetProcAddress_v2")) return result;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int outcome = 0;
  if (const CUresult result = look_up(name, version, flags, out, &outcome)) return result;
  if (status != nullptr) *status = outcome;
  return CUDA_SUCCESS;
}

// A program that exports this function is called here: the real runtime asks for these tables when
// it has resolved everything else, and gives up without them.
extern "C" [[gnu::weak, gnu::visibility("default")]] void fracgpu_sim_on_export_table();

SIM_API CUresult cuGetExportTable(const void** table, const CUuuid* id) {
  if (const int result = sim::ordered("cuGetExportTable")) return result;
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (fracgpu_sim_on_export_table != nullptr) fracgpu_sim_on_export_table();
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
