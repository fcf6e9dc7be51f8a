// Modules, as programs load them and as libraries make them: one per library and context, when it
// is first used there. All of it wants the driver's lock held.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "sim/cuda/driver.h"

struct CUmod_st : sim::Reused<CUmod_st> {
  sim::Context* context = nullptr;
  uint64_t context_id = 0;
  uint64_t bytes = 0;
  bool of_library = false;
  std::map<std::string, uint64_t> globals;  // those asked for, by name: their addresses

  // A context that ended in between has taken its modules' memory with it.
  bool loaded() const { return context->alive && context->id == context_id; }
};

struct CUfunc_st {
  size_t local_bytes = 0;
};

namespace sim {

// What loading an image takes, or the image in a file.
uint64_t module_cost(const void* image);
uint64_t file_cost(const void* path);
CUresult load_module(Context* context, bool of_library, uint64_t bytes, CUmodule* out);
void unload_module(CUmodule module);
CUresult find_global(CUmodule module, const char* name, CUdeviceptr* address, size_t* bytes);
// None is ever run, so that the name alone tells one from another. "local 4096" has 4,096 bytes of
// local memory a thread, others have none.
CUfunction function_named(const std::string& name);
// Programs may launch what is no function: nothing is ever run. That has no local memory.
size_t local_bytes_of(CUfunction function);
extern std::atomic<bool> any_has_local_memory;
// A launch in the context, which takes the function's local memory by raising the stack limit.
CUresult take_local_memory(Context* context, CUfunction function);
CUresult set_limit(Context* context, int which, size_t value);

}  // namespace sim
