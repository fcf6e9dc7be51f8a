// The kernels of the probes, as PTX without its first lines (see load_ptx), which the driver's own
// compiler turns into code.
#pragma once

#include <string>

namespace hardware {

// Of a target that every driver from CUDA 11 on takes.
inline constexpr const char* kFirstPtxLines = ".version 6.3\n.target sm_75\n.address_size 64\n";

// Waits for this many nanoseconds by the GPU's clock.
inline constexpr const char* kSpin = R"(
.visible .entry spin(.param .u64 nanoseconds) {
  .reg .u64 %r<4>;
  .reg .pred %p;
  ld.param.u64 %r0, [nanoseconds];
  mov.u64 %r1, %globaltimer;
again:
  mov.u64 %r2, %globaltimer;
  sub.u64 %r3, %r2, %r1;
  setp.lt.u64 %p, %r3, %r0;
  @%p bra again;
  ret;
}
)";

// Uses 16 KiB of local memory in each thread, at places that the compiler cannot foresee. The
// parameter is 0 in every launch; were it not, what was read would be stored where it says.
inline constexpr const char* kLocalMemory = R"(
.visible .entry local_memory(.param .u64 where) {
  .local .align 16 .b8 room[16384];
  .reg .u64 %r<6>;
  .reg .u32 %n<4>;
  .reg .pred %p;
  ld.param.u64 %r0, [where];
  mov.u64 %r1, room;
  mov.u64 %r4, %clock64;
  and.b64 %r2, %r4, 16380;
  add.u64 %r3, %r1, %r2;
  mov.u32 %n0, %tid.x;
  st.local.u32 [%r3], %n0;
  and.b64 %r5, %r0, 16380;
  add.u64 %r5, %r1, %r5;
  ld.local.u32 %n1, [%r5];
  setp.eq.u64 %p, %r0, 0;
  @%p bra done;
  st.global.u32 [%r0], %n1;
done:
  ret;
}
)";

// A module with a global variable of this size.
inline std::string global_of(unsigned long long bytes) {
  return ".visible .global .align 16 .b8 room[" + std::to_string(bytes) + "];\n" + kSpin;
}

}  // namespace hardware
