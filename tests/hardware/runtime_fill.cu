// Fills the GPU by CUDA's runtime until it is refused, under the library and a cap: runtime_fill KEY CAP. Built by
// tests/hardware.sh where nvcc is installed, with the runtime shared and linked in, and with NVRTC, whose modules are
// then what is filled with.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#ifdef WITH_NVRTC
#include <cuda.h>
#include <nvrtc.h>
#endif

static const size_t kChunk = 64u << 20;
__device__ int symbol;

static void fact(const std::string& key, const char* value) {
  std::printf("{\"key\":\"%s\",\"value\":%s}\n", key.c_str(), value);
  std::fflush(stdout);
}

// The runtime's result; NVRTC's modules are loaded by the driver, whose number for no memory is the same.
static int take() {
#ifdef WITH_NVRTC
  static std::string ptx;
  if (ptx.empty()) {
    nvrtcProgram program = nullptr;
    const char* text = "extern \"C\" { __device__ char room[64 << 20]; __global__ void touch() { room[0] = 1; } }";
    size_t size = 0;
    if (nvrtcCreateProgram(&program, text, "room.cu", 0, nullptr, nullptr) != NVRTC_SUCCESS ||
        nvrtcCompileProgram(program, 0, nullptr) != NVRTC_SUCCESS || nvrtcGetPTXSize(program, &size) != NVRTC_SUCCESS)
      return -1;
    ptx.resize(size);
    if (nvrtcGetPTX(program, &ptx[0]) != NVRTC_SUCCESS) return -1;
  }
  CUmodule module = nullptr;
  CUdeviceptr address = 0;
  size_t bytes = 0;
  const int rc = cuModuleLoadData(&module, ptx.c_str());
  return rc != 0 ? rc : cuModuleGetGlobal(&address, &bytes, module, "room");
#else
  void* memory = nullptr;
  return cudaMalloc(&memory, kChunk);
#endif
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string key = argv[1];
  const size_t most = std::strtoull(argv[2], nullptr, 10) + (256u << 20);
  int value = 0;
  if (cudaFree(nullptr) != cudaSuccess) return 1;
  for (int i = 0; i < 10000; ++i) {
    if (cudaMemcpyToSymbol(symbol, &i, sizeof i) != cudaSuccess) return 1;
  }
  size_t granted = 0;
  int rc = 0;
  while (granted <= most && (rc = take()) == 0) granted += kChunk;
  fact(key + ".granted_bytes", std::to_string(granted).c_str());
  std::puts("look");
  std::fflush(stdout);
  std::getchar();
  cudaGetLastError();
  const bool works = cudaMemcpyFromSymbol(&value, symbol, sizeof value) == cudaSuccess && value == 9999;
  fact(key + ".refused_cleanly", rc == 2 && works ? "true" : "false");
  return 0;
}
