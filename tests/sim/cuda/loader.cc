// A libcuda as WSL2's is: it only loads the driver proper, which lies beside it under another name,
// looks every function up there by dlsym, and passes all calls on. cuGetProcAddress is passed on
// too, so its answers are the driver's own addresses and not the loader's.
// Written from HAMi-core PR 326. That it looks everything up when it is loaded, and the name of the
// driver beside it, are choices of ours: no WSL2 machine has judged this.
#include <dlfcn.h>

#include <string>

// Where each function's real address is kept. A name that has several lines gets one.
#define SIM_SYMBOL(base, first, exported, twin)                                              \
  extern "C" [[gnu::visibility("hidden")]] void* loader_##exported;                          \
  asm(".ifndef loader_" #exported                                                            \
      "\n.pushsection .bss\n.balign 8\n"                                                     \
      ".hidden loader_" #exported "\n.globl loader_" #exported                               \
      "\n"                                                                                   \
      "loader_" #exported                                                                    \
      ":\n.skip 8\n.popsection\n"                                                            \
      ".pushsection .text\n.globl " #exported "\n.type " #exported ", %function\n" #exported \
      ":\n" SIM_PASS_ON("loader_" #exported) ".size " #exported ", .-" #exported             \
                                             "\n.popsection\n.endif\n");

#if defined(__x86_64__)
#define SIM_PASS_ON(slot) "jmp *" slot "(%rip)\n"
#elif defined(__aarch64__)
#define SIM_PASS_ON(slot) "adrp x16, " slot "\nldr x16, [x16, :lo12:" slot "]\nbr x16\n"
#endif
#include "sim/cuda/symbols.inc"
#undef SIM_SYMBOL

namespace {

[[gnu::constructor]] void load() {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&load), &self) == 0) return;
  void* const driver = dlopen((std::string(self.dli_fname) + ".1").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return;
#define SIM_SYMBOL(base, first, exported, twin) loader_##exported = dlsym(driver, #exported);
#include "sim/cuda/symbols.inc"
#undef SIM_SYMBOL
}

}  // namespace
