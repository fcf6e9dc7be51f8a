// The header of a device's code, which both vendors keep in ELF files of 64 bits.
#pragma once

#include <elf.h>
#include <string.h>

#include <optional>

#include "shim/base/byte_source.h"

namespace fracgpu {

// Empty if the bytes are no such file for that machine.
inline std::optional<Elf64_Ehdr> read_elf_header(const ByteSource& image, uint16_t machine) {
  const auto header = image.read<Elf64_Ehdr>(0);
  const bool sound = header && memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
                     header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_machine == machine;
  return sound ? header : std::nullopt;
}

}  // namespace fracgpu
