// Looks names up in every way there is and prints what it got, without addresses: with and without
// the library preloaded the output must be the same for all names that are not a vendor's.
#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

// The object that an address lies in, by its last path component.
const char* owner(void* address) {
  Dl_info info;
  if (address == nullptr) return "nothing";
  if (dladdr(address, &info) == 0) return "unknown";
  const char* slash = std::strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

void print(const char* what, const char* name, void* found) {
  const char* error = dlerror();
  std::printf("%s %s: %s%s\n", what, name, owner(found), error != nullptr ? ", dlerror set" : "");
}

}  // namespace

// Stands in front of libc's: RTLD_NEXT from here must find libc's own.
extern "C" int puts(const char* text) {
  const auto next = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_NEXT, "puts"));
  return next(text);
}

int main() {
  void* libm = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
  void* missing = dlopen("libno-such-library.so.9", RTLD_NOW);
  print("dlopen", "libm.so.6", libm != nullptr ? dlsym(libm, "cos") : nullptr);
  print("dlopen", "libno-such-library.so.9", missing);
  void* const program = dlopen(nullptr, RTLD_NOW);
  for (const char* name : {"cuMemAlloc_v2", "hsa_init", "hipMalloc", "nvmlInit_v2",
                           "rsmi_dev_memory_total_get", "amdsmi_init"}) {
    print("no driver, default", name, dlsym(RTLD_DEFAULT, name));
    print("no driver, next", name, dlsym(RTLD_NEXT, name));
    print("no driver, program", name, dlsym(program, name));
    print("no driver, version", name, dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5"));
  }
  for (const char* name : {"malloc", "cos", "cuNoSuchFunction", "curl_easy_init", "cu", "", "puts",
                           "no_such_name", "nvmlNoSuchFunction", "dladdr"}) {
    print("default", name, dlsym(RTLD_DEFAULT, name));
    print("next", name, dlsym(RTLD_NEXT, name));
    print("handle", name, dlsym(libm, name));
    print("dlvsym", name, dlvsym(libm, name, "GLIBC_2.2.5"));
  }
  // What failed before is told no more after a look-up that did not.
  if (void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const bool is_known = dlsym(driver, "cuMemFree_v2") != nullptr;
    dlsym(libm, "no_such_name");
    const bool is_there = is_known && dlsym(driver, "cuMemAlloc_v2") != nullptr;
    std::printf("driver: %d %s\n", is_there, dlerror() != nullptr ? "and an error" : "alone");
    print("driver, default", "cuNoSuchFunction", dlsym(RTLD_DEFAULT, "cuNoSuchFunction"));
    // The library may look for NVML at the first use of a device.
    const auto init = reinterpret_cast<int (*)(unsigned int)>(dlsym(driver, "cuInit"));
    const auto use = reinterpret_cast<int (*)(size_t*, int)>(dlsym(driver, "cuDeviceTotalMem_v2"));
    size_t bytes = 0;
    std::printf("driver, used: %d\n", init(0) == 0 && use(&bytes, 0) == 0);
    const char* const error = dlerror();
    std::printf("driver, error: %s\n", error != nullptr ? error : "none");
  }
  puts("done");
  return 0;
}
