// Which libraries may be opened with RTLD_DEEPBIND under a cap.
#pragma once

namespace fracgpu {

// Whether a library that `caller` opens by this name would bind past us if it were bound to its own
// dependencies first. It would if it imports a name that we export, such as dlsym, dlopen or
// cuMemAlloc_v2, or if it needs a library, not loaded yet, that does. Also true if that cannot be
// determined: no such file, a search path with tokens, no ELF file. Reads files; takes no heap.
[[gnu::cold]] bool would_bind_past_us(const char* name, const void* caller);

}  // namespace fracgpu
