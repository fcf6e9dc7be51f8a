// Changes which function a loaded object calls under a name that it imports.
//
// It writes the object's table of imported addresses in this process's memory. The object's code
// and its file do not change.
#pragma once

#include <atomic>

#include "shim/base/elf.h"

namespace fracgpu::elf {

// From now on the object calls `with` instead of the function `name` of another object. `before` is
// set first, to the function that the object called before or would have been bound to. False, with
// nothing changed, if the object imports no such function or already calls `with`.
bool replace_import(const Loaded& object, const char* name, void* with, std::atomic<void*>& before);

// Whether the object imports the function and calls another one than `with` under the name.
bool calls_another(const Loaded& object, const char* name, const void* with);

// Replaces the `ioctl` of a library whose requests to its kernel driver are charged. If it imports
// one that cannot be replaced, a line says once that the library has no cap. `has_warned`: whether
// it was printed.
bool watch_requests(const Loaded& library, void* ioctl, std::atomic<void*>& before,
                    std::atomic<bool>& has_warned);

}  // namespace fracgpu::elf
