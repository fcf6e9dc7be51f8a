// The root-owned file whose limits the environment can lower and never raise.
#pragma once

#include "shim/base/text.h"
#include "shim/config/limits.h"

namespace fracgpu {

inline constexpr char kCeilingFile[] = "/etc/fracgpu/limit.conf";

// Whether anything is at `path`, which cannot be said where its folder may not be searched: then
// yes. A link that leads nowhere is something. Costs a system call where the folder is not there.
[[gnu::cold]] bool ceiling_is_there(const char* path);

// Reads the ceiling at `path`; `ceiling` stays empty where there is none. False with `error` set
// when the file is malformed, unreadable or cannot be trusted. Links are followed within the folder
// that `path` names, as Kubernetes makes them for a ConfigMap, and no others.
bool read_ceiling(const char* path, Limits& ceiling, Message& error);

}  // namespace fracgpu
