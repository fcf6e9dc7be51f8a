// The root-owned file with limits that the environment can lower but not raise.
#pragma once

#include "shim/base/text.h"
#include "shim/config/limits.h"

namespace fracgpu {

inline constexpr char kCeilingFile[] = "/etc/fracgpu/limit.conf";

// Reads the ceiling at `path`; `ceiling` stays empty if there is none. False with `error` set if
// the file is malformed, unreadable or cannot be trusted; see trusted_file.h.
bool read_ceiling(const char* path, Limits& ceiling, Message& error);

}  // namespace fracgpu
