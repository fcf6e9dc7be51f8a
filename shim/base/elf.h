// Looks symbols up in the objects the process has loaded, without the dynamic linker's own API.
//
// `dlsym` cannot be used to find the real `dlsym` once it is interposed, and it would change what
// the application next reads from `dlerror`. Walking the loaded objects' symbol tables does
// neither. Allocates nothing and may be called before constructors have run.
#pragma once

#include <cstdint>
#include <string_view>

namespace fracgpu::elf {

// The address of a function or variable that the loaded object `soname` defines (its DT_SONAME,
// "libc.so.6"), whatever its symbol version; null when the object is not loaded or has no such
// symbol.
void* find_symbol(std::string_view soname, const char* name);

bool is_loaded(std::string_view soname);

// The addresses that the loaded object `soname` lies at, from the first to behind the last.
struct Range {
  uintptr_t begin = 0, end = 0;
};
Range range_of(std::string_view soname);

// The DT_SONAME of the first loaded object that is called `name`, or, when `name` ends in ".so",
// `name` with any version behind it; empty when there is none. Valid as long as it stays loaded.
std::string_view loaded_soname(std::string_view name);

// Where an address lies: the object's file name (empty for the main program) and the offset in it,
// as addr2line wants it.
struct Place {
  std::string_view object = "?";
  uint64_t offset = 0;
};
Place place_of(const void* address);

// The exported function that an address lies in: its name and start. False when none is known.
bool symbol_at(const void* address, const char*& name, void*& start);

}  // namespace fracgpu::elf
