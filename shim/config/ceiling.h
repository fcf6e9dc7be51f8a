// The root-owned file whose limits the environment can lower and never raise.
#pragma once

#include "shim/base/text.h"
#include "shim/config/limits.h"

namespace fracgpu {

inline constexpr char kCeilingFile[] = "/etc/fracgpu/limit.conf";

// Reads the ceiling at `path`; `ceiling` stays empty where there is none. False with `error` set
// when the file is malformed, unreadable or cannot be trusted; see trusted_file.h.
bool read_ceiling(const char* path, Limits& ceiling, Message& error);

}  // namespace fracgpu
