// The ways in which the client looks the driver's functions up.
// "cudart" resolves as the CUDA runtime does: one dlsym, a probe with an empty name, then names
// with versions. The others are the ways seen in ctypes, plugins and tools: dlsym on a handle,
// dlvsym, RTLD_DEFAULT, RTLD_NEXT, and a library opened with RTLD_DEEPBIND that is linked with the
// driver.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "driver_api.h"

namespace client {
namespace {

bool fail(std::string* error, const std::string& text) {
  *error = text;
  return false;
}

template <typename Function>
void put(Function** member, void* address) {
  std::memcpy(member, &address, sizeof address);
}

bool open_cudart(void* library, const LookupOptions& options, DriverApi* api, std::string* error) {
  using Getter = int (*)(const char*, void**, int, uint64_t, int*);
  Getter get = nullptr;
  void* address = dlsym(library, "cuGetProcAddress_v2");
  if (address == nullptr) return fail(error, "no cuGetProcAddress_v2");
  std::memcpy(&get, &address, sizeof address);
  // The runtime asks for nothing first, and expects no crash and no pointer.
  void* probe = nullptr;
  int status = 0;
  get("", &probe, 0, 0, &status);
  // A later runtime asks the getter for itself, and uses what it is given.
  void* again = nullptr;
  if (get("cuGetProcAddress", &again, 12000, 0, &status) == 0 && again != nullptr)
    std::memcpy(&get, &again, sizeof again);
  const uint64_t flags = options.per_thread ? 2 : 0;
#define CLIENT_FIND(member, base, symbol, version)                                             \
  {                                                                                            \
    void* found = nullptr;                                                                     \
    const int result = get(base, &found, version, flags, &status);                             \
    if (result != 0 || found == nullptr) return fail(error, std::string(base) + " not found"); \
    put(&api->member, found);                                                                  \
  }
  CLIENT_API(CLIENT_FIND)
#undef CLIENT_FIND
  return true;
}

template <typename Find>
bool open_by_symbol(Find find, DriverApi* api, std::string* error) {
#define CLIENT_FIND(member, base, symbol, version)                                \
  {                                                                               \
    void* found = find(symbol);                                                   \
    if (found == nullptr) return fail(error, std::string(symbol) + " not found"); \
    put(&api->member, found);                                                     \
  }
  CLIENT_API(CLIENT_FIND)
#undef CLIENT_FIND
  return true;
}

}  // namespace

bool look_up(const LookupOptions& options, DriverApi* api, std::string* error) {
  const std::string& lookup = options.lookup;
#ifdef CLIENT_LINKED
  if (lookup == "link") {
    linked_api(api);
    return true;
  }
#endif
  if (lookup == "next") {
    // Meaningful only when the driver is linked or preloaded after the program.
    return open_by_symbol([](const char* name) { return dlsym(RTLD_NEXT, name); }, api, error);
  }
  if (lookup == "deepbind") {
    void* library = dlopen(CLIENT_DEEPBIND_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == nullptr) return fail(error, dlerror());
    void* entry = dlsym(library, "client_deepbind_api");
    if (entry == nullptr) return fail(error, "no client_deepbind_api");
    void (*fill)(DriverApi*) = nullptr;
    std::memcpy(&fill, &entry, sizeof entry);
    fill(api);
    return true;
  }
  const bool global = lookup == "default";
  const char* given = std::getenv("CUDA_LIBRARY");
  void* library = dlopen(given != nullptr ? given : "libcuda.so.1",
                         RTLD_NOW | (global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library == nullptr) return fail(error, dlerror());
  if (lookup == "cudart") return open_cudart(library, options, api, error);
  if (lookup == "dlsym")
    return open_by_symbol([=](const char* name) { return dlsym(library, name); }, api, error);
  if (lookup == "default")
    return open_by_symbol([](const char* name) { return dlsym(RTLD_DEFAULT, name); }, api, error);
  if (lookup == "dlvsym") {
    // The vendor's library has no versions of its own and dlvsym finds nothing in it (nor does it
    // here); programs that try a version first then ask without one. Whoever answers dlvsym is
    // believed.
    const auto find = [=](const char* name) {
      void* versioned = dlvsym(library, name, "ANY_1.0");
      return versioned != nullptr ? versioned : dlsym(library, name);
    };
    return open_by_symbol(find, api, error);
  }
  return fail(error, "unknown look-up '" + lookup + "'");
}

}  // namespace client
