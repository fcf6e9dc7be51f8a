// Looks up symbols in the objects that the process has loaded, without the dynamic linker's own
// API.
//
// `dlsym` cannot be used to find the real `dlsym` once it is interposed, and it would change what
// the application next reads from `dlerror`. Walking the loaded objects' symbol tables does
// neither. Allocates nothing and may be called before constructors have run.
#pragma once

#include <cstdint>
#include <string_view>

namespace fracgpu::elf {

// The address of a function or variable that the loaded object `soname` defines (its DT_SONAME,
// such as "libc.so.6"), whatever its symbol version. Null if the object is not loaded or has no
// such symbol.
void* find_symbol(std::string_view soname, const char* name);

// What a look-up needs of an object, read once from its dynamic section. Null: the object lacks it.
struct SymbolTables {
  uintptr_t base = 0;       // what the object's own addresses are counted from
  std::string_view soname;  // empty: it has none
  const char* strings = nullptr;
  const void* symbols = nullptr;  // ElfW(Sym)
  const uint32_t* gnu_hash = nullptr;
  const uint32_t* sysv_hash = nullptr;
};

// A loaded object. Its texts are valid as long as it stays loaded.
struct Loaded : SymbolTables {
  const void* dynamic = nullptr;  // its dynamic section; null: no object
  uintptr_t begin = 0, end = 0;   // its first address, and the one behind its last
  const char* path = "";          // empty for the main program

  bool contains(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return at >= begin && at < end;
  }
};

// The name of a file without its folders.
constexpr std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// The number of objects that were ever loaded; costs no walk over them.
uint64_t objects_loaded();

// The first loaded object, in the order of loading, for which wanted(object) is true. If there is
// none, one without a dynamic section. `wanted` is called under the dynamic linker's lock.
Loaded find_object(bool (*wanted)(const Loaded& object, void* context), void* context);
template <typename Wanted>
Loaded find_object(Wanted wanted) {
  return find_object(
      [](const Loaded& object, void* given) { return (*static_cast<Wanted*>(given))(object); },
      &wanted);
}

// The object's build id, as the linker wrote it; empty if it has none. Valid as long as the object
// stays loaded.
std::string_view build_id_of(const Loaded& object);

// The address that the object itself defines under a name; null if it defines none.
void* find_symbol(const Loaded& object, const char* name);

// The place of an address: the object's file name (empty for the main program) and the offset in
// it, in the form of addr2line.
struct Place {
  std::string_view object = "?";
  uint64_t offset = 0;
};
Place place_of(const void* address);

// The exported function that contains an address: its name and start. False if none is known.
bool symbol_at(const void* address, const char*& name, void*& start);

}  // namespace fracgpu::elf
