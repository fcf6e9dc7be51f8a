// The real CUDA runtime, as far as it goes: it resolves the driver's functions, then asks for the
// driver's private tables, which the simulated driver does not forge, and stops. At that moment its
// table of functions is in its memory, and there this program looks which function of each name it
// took: the driver's own or an interposer's.
//
//   cudart_probe LIBCUDART NAME ...
// prints for each name "NAME driver=COUNT other=COUNT", the numbers of words in the runtime's
// memory that hold the address of libcuda's own function, and of the one that dlsym answers with
// where that is another.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace {

// The function as libcuda itself exports it, read from its symbol table: dlsym may be interposed.
uintptr_t own_export(const char* name) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (driver == nullptr || dlinfo(driver, RTLD_DI_LINKMAP, &map) != 0) return 0;
  const ElfW(Sym)* symbols = nullptr;
  const char* strings = nullptr;
  const uint32_t* gnu_hash = nullptr;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    if (entry->d_tag == DT_SYMTAB) {
      symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_STRTAB) {
      strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
    } else if (entry->d_tag == DT_GNU_HASH) {
      gnu_hash = reinterpret_cast<const uint32_t*>(entry->d_un.d_ptr);
    }
  }
  if (symbols == nullptr || strings == nullptr || gnu_hash == nullptr) return 0;
  // Every chain in turn; a set lowest bit ends one.
  const uint32_t buckets = gnu_hash[0], first = gnu_hash[1], bloom = gnu_hash[2];
  const uint32_t* const heads = gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
  const uint32_t* const chains = heads + buckets;
  for (uint32_t bucket = 0; bucket < buckets; ++bucket) {
    for (uint32_t i = heads[bucket]; i >= first; ++i) {
      if (std::strcmp(strings + symbols[i].st_name, name) == 0) {
        return map->l_addr + symbols[i].st_value;
      }
      if ((chains[i - first] & 1) != 0) break;
    }
  }
  return 0;
}

// Writable memory of the runtime and what it allocated. Stacks are left out: they hold leftovers of
// look-ups.
std::vector<std::pair<uintptr_t, uintptr_t>> writable_ranges() {
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  std::FILE* maps = std::fopen("/proc/self/maps", "r");
  if (maps == nullptr) return ranges;
  char line[4096];
  std::string file;  // whose data a nameless mapping right behind it is
  uintptr_t previous_end = 0;
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    uintptr_t begin = 0, end = 0;
    char access[5] = "";
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) != 3) continue;
    const std::string text = line;
    const bool named = text.find('/') != text.npos || text.find('[') != text.npos;
    if (named || begin != previous_end) file = named ? text : "";
    previous_end = end;
    const bool wanted =
        file.empty() || file.find("libcudart") != file.npos || file.find("[heap]") != file.npos;
    if (std::strncmp(access, "rw", 2) == 0 && wanted) ranges.emplace_back(begin, end);
  }
  std::fclose(maps);
  return ranges;
}

unsigned count_words(const std::vector<std::pair<uintptr_t, uintptr_t>>& ranges, uintptr_t wanted) {
  unsigned count = 0;
  for (const auto& [begin, end] : ranges) {
    for (auto* word = reinterpret_cast<const volatile uintptr_t*>(begin);
         reinterpret_cast<uintptr_t>(word) < end; ++word) {
      if (*word == wanted) ++count;
    }
  }
  return count;
}

std::vector<const char*> names;
bool counted = false;

}  // namespace

extern "C" [[gnu::visibility("default")]] void fracgpu_sim_on_export_table() {
  if (counted) return;
  counted = true;
  const auto ranges = writable_ranges();
  for (const char* name : names) {
    const uintptr_t driver = own_export(name);
    const auto seen = reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, name));
    const unsigned others = seen != 0 && seen != driver ? count_words(ranges, seen) : 0;
    std::printf("%s driver=%u other=%u\n", name, count_words(ranges, driver), others);
  }
}

int main(int argc, char** argv) {
  void* runtime = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (runtime == nullptr) {
    std::fprintf(stderr, "usage: cudart_probe LIBCUDART NAME ...: %s\n", dlerror());
    return 2;
  }
  names.assign(argv + 2, argv + argc);
  const auto free = reinterpret_cast<int (*)(void*)>(dlsym(runtime, "cudaFree"));
  std::printf("init rc=%d\n", free(nullptr));
  return 0;
}
