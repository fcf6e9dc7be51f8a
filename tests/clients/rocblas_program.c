// rocblas_program FILL: after an allocation of FILL MiB, multiplies matrices by AMD's rocBLAS on
// the HIP runtime that the environment's HIP_LIBRARY names. Prints what each call returned.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { kN = 1024, kNoTranspose = 111 };

static void* library(const char* name) {
  void* const found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (found == NULL) fprintf(stderr, "%s\n", dlerror());
  return found;
}

int main(int count, char** words) {
  void* const hip = library(getenv("HIP_LIBRARY"));
  void* const blas = hip != NULL ? library("librocblas.so.4") : NULL;
  if (blas == NULL || count != 2) return 2;
  int (*const allocate)(void**, size_t) = (int (*)(void**, size_t))dlsym(hip, "hipMalloc");
  int (*const synchronize)(void) = (int (*)(void))dlsym(hip, "hipDeviceSynchronize");
  int (*const create)(void**) = (int (*)(void**))dlsym(blas, "rocblas_create_handle");
  typedef int Multiply(void*, int, int, int, int, int, const float*, const float*, int,
                       const float*, int, const float*, float*, int);
  Multiply* const multiply = (Multiply*)dlsym(blas, "rocblas_sgemm");

  void *fill = NULL, *handle = NULL, *matrices[3] = {NULL};
  const size_t mib = strtoul(words[1], NULL, 10);
  if (mib != 0) printf("fill rc=%d\n", allocate(&fill, mib << 20));
  printf("create rc=%d\n", create(&handle));
  for (int i = 0; i < 3; ++i)
    printf("matrix rc=%d\n", allocate(&matrices[i], sizeof(float) * kN * kN));
  const float one = 1, zero = 0;
  for (int i = 0; i < 3 && handle != NULL; ++i) {
    printf("multiply rc=%d\n", multiply(handle, kNoTranspose, kNoTranspose, kN, kN, kN, &one,
                                        matrices[0], kN, matrices[1], kN, &zero, matrices[2], kN));
  }
  printf("synchronize rc=%d\n", synchronize());
  fflush(stdout);
  _Exit(0);
}
