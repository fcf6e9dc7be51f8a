// The HIP and HSA runtimes as the test clients reach them: by name, looked up as the program
// chooses, in the version that HIP_LIBRARY names (libamdhip64.so.5 otherwise).
#pragma once

#include <string>

namespace client::hip {

// "dlsym" (on a handle of RTLD_LOCAL), "default" (RTLD_DEFAULT after RTLD_GLOBAL), "proc"
// (hipGetProcAddress, which 6.2 brought), or "link" (what the linker put in).
void choose_lookup(const std::string& lookup);

// A function of HIP or of HSA; null when the library lacks it.
void* function(const char* name);

// Calls it, or returns -1 when there is none. The arguments must have exactly the types of the
// prototype.
template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  void* const found = function(name);
  if (found == nullptr) return -1;
  return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
}

inline constexpr int kOutOfMemory = 2;

struct IpcHandle {
  unsigned char bytes[64];
};

// Opens other processes' memory.
inline int open_ipc(const IpcHandle& handle, void** pointer) {
  // Lazy access by peers, the only flag there is: 1 by now, and 0 in HIP 5.2.
  const int rc = call("hipIpcOpenMemHandle", pointer, handle, 1u);
  return rc != 1 ? rc : call("hipIpcOpenMemHandle", pointer, handle, 0u);
}

}  // namespace client::hip
