// Finds functions by name; see hip_api.h.
#include "hip_api.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

// Of the linked client: the linker's own idea of where these are.
extern "C" {
[[gnu::weak]] int hipMalloc(void**, size_t);
[[gnu::weak]] int hipFree(void*);
[[gnu::weak]] int hipMemGetInfo(size_t*, size_t*);
[[gnu::weak]] int hipMallocManaged(void**, size_t, unsigned);
}

namespace client::hip {
namespace {

std::string chosen = "dlsym";

void* library(const char* name, int flags) {
  void* const opened = dlopen(name, RTLD_NOW | flags);
  if (opened == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::_Exit(3);
  }
  return opened;
}

void* linked(const std::string& name) {
  if (name == "hipMalloc") return reinterpret_cast<void*>(&hipMalloc);
  if (name == "hipFree") return reinterpret_cast<void*>(&hipFree);
  if (name == "hipMemGetInfo") return reinterpret_cast<void*>(&hipMemGetInfo);
  if (name == "hipMallocManaged") return reinterpret_cast<void*>(&hipMallocManaged);
  return nullptr;
}

void* find(const std::string& name) {
  if (name.rfind("hsa_", 0) == 0) {
    const char* given = std::getenv("HSA_LIBRARY");
    static void* const hsa =
        library(given != nullptr ? given : "libhsa-runtime64.so.1", RTLD_LOCAL);
    return dlsym(hsa, name.c_str());
  }
  const char* given = std::getenv("HIP_LIBRARY");
  static void* const hip = library(given != nullptr ? given : "libamdhip64.so.5",
                                   chosen == "default" ? RTLD_GLOBAL : RTLD_LOCAL);
  if (chosen == "default") return dlsym(RTLD_DEFAULT, name.c_str());
  if (chosen == "link") {
    if (void* const found = linked(name); found != nullptr) return found;
  }
  if (chosen == "proc") {
    using Getter = int (*)(const char*, void**, int, unsigned long, int*);
    const auto get = reinterpret_cast<Getter>(dlsym(hip, "hipGetProcAddress"));
    void* found = nullptr;
    int status = 0;
    if (get != nullptr && get(name.c_str(), &found, 602, 0, &status) == 0) return found;
    return nullptr;
  }
  return dlsym(hip, name.c_str());
}

}  // namespace

void choose_lookup(const std::string& lookup) {
  chosen = lookup;
}

void* function(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, void*> known;
  const std::lock_guard lock(mutex);
  const auto [entry, fresh] = known.try_emplace(name, nullptr);
  if (fresh) entry->second = find(name);
  return entry->second;
}

}  // namespace client::hip
