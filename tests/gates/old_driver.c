// The least that can be called a CUDA driver, in plain C without a C library: one device of 4 GiB
// that never runs out. It is there to be capped on a glibc for which nothing else is built.
#include <stddef.h>

typedef unsigned long long Pointer;

int cuInit(unsigned flags) {
  return flags != 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = (size_t)4 << 30;
  return device != 0;
}
int cuDeviceGetUuid(char uuid[16], int device) {
  for (int i = 0; i < 16; ++i) uuid[i] = (char)(0xa0 + i);
  return device != 0;
}
int cuCtxGetCurrent(void** context) {
  *context = (void*)0x1000;
  return 0;
}
int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}
int cuMemAlloc_v2(Pointer* pointer, size_t bytes) {
  static Pointer next = 0x7f0000000000;
  *pointer = next;
  next += bytes;
  return 0;
}
int cuMemFree_v2(Pointer pointer) {
  return pointer == 0;
}
int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = (size_t)4 << 30;
  return 0;
}
