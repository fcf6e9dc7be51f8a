// Changes which function a loaded object calls under a name that it imports.
//
// The object's table of imported addresses is written, in this process's memory; its code and its
// file stay as they are.
#pragma once

#include <atomic>

#include "shim/base/elf.h"

namespace fracgpu::elf {

// From now on the object calls `with` where it calls the function `name` of another object. What it
// called before, or would have been bound to, is in `before` by then. False, and nothing changes,
// if the object imports no such function or calls `with` already.
bool replace_import(const Loaded& object, const char* name, void* with, std::atomic<void*>& before);

}  // namespace fracgpu::elf
