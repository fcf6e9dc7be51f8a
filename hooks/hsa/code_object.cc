// The runtime's loader gets one piece of memory for a code object directly from the kernel. It
// reaches from address 0 of the file to the end of its last loadable segment (public source of
// ROCr, 5.2 to 7: LoadSegmentsV2 of its loader).
#include "hooks/hsa/code_object.h"

#include "shim/base/elf_image.h"

namespace fracgpu::hsa {

uint64_t code_object_bytes(const ByteSource& image) {
  constexpr uint16_t kAmdGpu = 224;
  const auto header = read_elf_header(image, kAmdGpu);
  if (!header || header->e_phentsize != sizeof(Elf64_Phdr)) return 0;
  uint64_t end = 0;
  const bool whole =
      image.for_each<Elf64_Phdr>(header->e_phoff, header->e_phnum, [&](const Elf64_Phdr& segment) {
        if (segment.p_type != PT_LOAD) return;
        if (__builtin_add_overflow(segment.p_vaddr, segment.p_memsz, &end)) end = 0;
      });
  return whole ? end : 0;
}

}  // namespace fracgpu::hsa
