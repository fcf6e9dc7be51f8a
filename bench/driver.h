// The driver calls that the benchmarks make, reached as the CUDA runtime reaches them: dlopen of
// libcuda.so.1, dlsym of cuGetProcAddress_v2, and every other function through that one. With the
// library preloaded these are its hooks, without it the driver's own functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bench {

struct Driver {
  void* library;
  int (*get_proc_address)(const char*, void**, int, uint64_t, int*);
  int (*init)(unsigned);
  int (*device_get)(int*, int);
  int (*device_total)(size_t*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*allocate)(unsigned long long*, size_t);
  int (*free)(unsigned long long);
  int (*memory_info)(size_t*, size_t*);
  int (*load_module)(void**, const void*);
  int (*get_function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*create_stream)(void**, unsigned);
  int (*allocate_async)(unsigned long long*, size_t, void*);
  int (*free_async)(unsigned long long, void*);
  int (*begin_capture)(void*, int);
  int (*end_capture)(void*, void**);
  int (*instantiate)(void**, void*, unsigned long long);
  int (*launch_graph)(void*, void*);

  // The driver with the first device's primary context current on the calling thread, made at the
  // first call. Ends the program with a message when there is no usable driver.
  static const Driver& get();
};

}  // namespace bench
