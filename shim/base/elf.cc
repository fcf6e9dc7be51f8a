// Walks the loaded objects with the C library's own dl_iterate_phdr; see elf.h.
//
// That function is found by hand: programs interpose it too (sanitizers, fakechroot), and their
// versions may look up the real one by dlsym, which is ours.
//
// Both kinds of hash table are read. Some of NVIDIA's libraries have only the older one, DT_HASH:
// libnvidia-ml of R470 to R550 and libcuda of R470. An object with neither is not searched: ELF
// does not record the length of its symbol table.
#include "shim/base/elf.h"

#include <elf.h>
#include <link.h>
#include <string.h>

#include <algorithm>
#include <atomic>

namespace fracgpu::elf {
namespace {

// The tables of one object, and the look-ups in them.
class Object : public SymbolTables {
 public:
  explicit Object(const dl_phdr_info& info) : Object(info.dlpi_addr, dynamic_of(info)) {}
  Object(ElfW(Addr) address, const ElfW(Dyn) * dynamic) {
    base = address;
    if (dynamic == nullptr) return;
    ElfW(Word) name = 0;
    for (; dynamic->d_tag != DT_NULL; ++dynamic) {
      switch (dynamic->d_tag) {
        case DT_STRTAB:
          strings = at<const char*>(dynamic->d_un.d_ptr);
          break;
        case DT_SYMTAB:
          symbols = at<const ElfW(Sym)*>(dynamic->d_un.d_ptr);
          break;
        case DT_GNU_HASH:
          gnu_hash = at<const uint32_t*>(dynamic->d_un.d_ptr);
          break;
        case DT_HASH:
          sysv_hash = at<const uint32_t*>(dynamic->d_un.d_ptr);
          break;
        case DT_SONAME:
          name = static_cast<ElfW(Word)>(dynamic->d_un.d_val);
          break;
        default:
          break;
      }
    }
    if (strings != nullptr && name != 0) soname = strings + name;
  }

  explicit Object(const SymbolTables& tables) : SymbolTables(tables) {}

  static const ElfW(Dyn) * dynamic_of(const dl_phdr_info& info) {
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      if (info.dlpi_phdr[i].p_type == PT_DYNAMIC) {
        dynamic = reinterpret_cast<const ElfW(Dyn)*>(info.dlpi_addr + info.dlpi_phdr[i].p_vaddr);
      }
    }
    return dynamic;
  }

  void* find(const char* name) const {
    void* found = nullptr;
    const auto defines = [&](uint32_t i) {
      if (!is_definition(symbol_number(i)) || strcmp(strings + symbol_number(i).st_name, name) != 0)
        return false;
      found = reinterpret_cast<void*>(base + symbol_number(i).st_value);
      return true;
    };
    if (strings == nullptr || symbols == nullptr) return nullptr;
    if (gnu_hash != nullptr) {
      for_each_in_gnu_bucket(gnu_hash_of(name), defines);
    } else if (sysv_hash != nullptr) {
      for_each_in_sysv_bucket(sysv_hash_of(name), defines);
    }
    return found;
  }

  // The exported function that contains `address`, or null.
  const ElfW(Sym) * function_at(ElfW(Addr) address, const char*& name) const {
    const ElfW(Sym)* found = nullptr;
    const auto covers = [&](uint32_t i) {
      const ElfW(Sym)& symbol = symbol_number(i);
      if (!is_definition(symbol) || address - base - symbol.st_value >= symbol.st_size)
        return false;
      name = strings + symbol.st_name;
      found = &symbol;
      return true;
    };
    if (strings == nullptr || symbols == nullptr) return nullptr;
    if (gnu_hash != nullptr) {
      const GnuTable table(gnu_hash);
      for (uint32_t bucket = 0; bucket < table.bucket_count && found == nullptr; ++bucket)
        table.for_each(bucket, [&](uint32_t i, uint32_t) { return covers(i); });
    } else if (sysv_hash != nullptr) {
      const uint32_t symbol_count = sysv_hash[1];  // a chain entry for each symbol
      for (uint32_t i = 0; i < symbol_count && !covers(i); ++i) {
      }
    }
    return found;
  }

 private:
  const ElfW(Sym) & symbol_number(uint32_t i) const {
    return static_cast<const ElfW(Sym)*>(symbols)[i];
  }

  // glibc relocates these pointers in place for most objects, but not for the vDSO.
  template <typename Pointer>
  Pointer at(ElfW(Addr) value) const {
    return reinterpret_cast<Pointer>(value < base ? value + base : value);
  }

  // DT_GNU_HASH: bucket count, first symbol, Bloom filter, buckets, and a chain of hashes, the last
  // of a bucket marked by its lowest bit.
  struct GnuTable {
    explicit GnuTable(const uint32_t* table)
        : bucket_count(table[0]),
          first(table[1]),
          buckets(table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t))),
          chain(buckets + bucket_count) {}

    // Calls visit(symbol index, hash) for a bucket's symbols until it returns true.
    template <typename Visit>
    void for_each(uint32_t bucket, Visit visit) const {
      uint32_t i = buckets[bucket];
      if (i < first) return;
      do {
        if (visit(i, chain[i - first])) return;
      } while ((chain[i++ - first] & 1) == 0);
    }

    uint32_t bucket_count, first;
    const uint32_t* buckets;
    const uint32_t* chain;
  };

  template <typename Visit>
  void for_each_in_gnu_bucket(uint32_t wanted, Visit visit) const {
    const GnuTable table(gnu_hash);
    if (table.bucket_count == 0) return;
    table.for_each(wanted % table.bucket_count, [&](uint32_t i, uint32_t hash) {
      return (hash | 1) == (wanted | 1) && visit(i);
    });
  }

  // DT_HASH: bucket count, symbol count, buckets, and the next symbol for each symbol; 0 ends a
  // bucket.
  template <typename Visit>
  void for_each_in_sysv_bucket(uint32_t wanted, Visit visit) const {
    const uint32_t bucket_count = sysv_hash[0], symbol_count = sysv_hash[1];
    const uint32_t* const buckets = sysv_hash + 2;
    const uint32_t* const next = buckets + bucket_count;
    if (bucket_count == 0) return;
    for (uint32_t i = buckets[wanted % bucket_count]; i != STN_UNDEF && i < symbol_count;
         i = next[i]) {
      if (visit(i)) return;
    }
  }

  static uint32_t gnu_hash_of(const char* name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
    return hash;
  }

  static uint32_t sysv_hash_of(const char* name) {
    uint32_t hash = 0;
    for (; *name != '\0'; ++name) {
      hash = (hash << 4) + static_cast<unsigned char>(*name);
      const uint32_t high = hash & 0xf0000000;
      hash = (hash ^ high >> 24) & ~high;
    }
    return hash;
  }

  static bool is_definition(const ElfW(Sym) & symbol) {
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
           (type == STT_FUNC || type == STT_OBJECT || type == STT_NOTYPE);
  }
};

using Iterate = decltype(&dl_iterate_phdr);

// Weak, because the loader need not be glibc's: musl's has no such name.
#pragma weak _r_debug

// The C library is loaded at the start and never unloaded, and so is all that comes before it in
// the loader's list. So the list can be read that far without the loader's lock. With musl, no
// library is known to interpose the function.
Iterate find_iterate() {
  const r_debug* const loader = &_r_debug;
  for (const link_map* map = loader == nullptr ? nullptr : loader->r_map; map != nullptr;
       map = map->l_next) {
    const Object object(map->l_addr, map->l_ld);
    if (object.soname != "libc.so.6") continue;
    return reinterpret_cast<Iterate>(object.find("dl_iterate_phdr"));
  }
  return &dl_iterate_phdr;
}

template <typename Visit>
void for_each_object(Visit visit) {
  static constinit std::atomic<Iterate> found{nullptr};
  Iterate iterate = found.load(std::memory_order_relaxed);
  if (iterate == nullptr) {
    iterate = find_iterate();
    found.store(iterate, std::memory_order_relaxed);
  }
  iterate([](dl_phdr_info* info, size_t,
             void* data) { return (*static_cast<Visit*>(data))(*info) ? 1 : 0; },
          &visit);
}

}  // namespace

void* find_symbol(std::string_view soname, const char* name) {
  void* found = nullptr;
  for_each_object([&](const dl_phdr_info& info) {
    const Object object(info);
    if (object.soname == soname) found = object.find(name);
    return found != nullptr;
  });
  return found;
}

uint64_t objects_loaded() {
  uint64_t count = 0;
  for_each_object([&](const dl_phdr_info& info) {
    count = info.dlpi_adds;
    return true;
  });
  return count;
}

Loaded find_object(bool (*wanted)(const Loaded& object, void* context), void* context) {
  Loaded found;
  for_each_object([&](const dl_phdr_info& info) {
    Loaded object;
    object.dynamic = Object::dynamic_of(info);
    if (object.dynamic == nullptr) return false;
    static_cast<SymbolTables&>(object) = Object(info);
    object.begin = UINTPTR_MAX;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type != PT_LOAD) continue;
      const uintptr_t start = info.dlpi_addr + segment.p_vaddr;
      object.begin = std::min(object.begin, start);
      object.end = std::max(object.end, start + segment.p_memsz);
    }
    if (info.dlpi_name != nullptr) object.path = info.dlpi_name;
    if (!wanted(object, context)) return false;
    found = object;
    return true;
  });
  return found;
}

std::string_view build_id_of(const Loaded& object) {
  std::string_view id;
  for_each_object([&](const dl_phdr_info& info) {
    if (Object::dynamic_of(info) != object.dynamic) return false;
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      if (segment.p_type != PT_NOTE) continue;
      const auto* note = reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr);
      const char* const end = note + segment.p_memsz;
      while (static_cast<size_t>(end - note) > sizeof(ElfW(Nhdr))) {
        const auto& header = *reinterpret_cast<const ElfW(Nhdr)*>(note);
        const auto padded = [](size_t size) { return (size + 3) & ~size_t{3}; };
        const char* const name = note + sizeof header;
        const char* const text = name + padded(header.n_namesz);
        if (text > end || header.n_descsz > static_cast<size_t>(end - text)) break;
        if (header.n_type == NT_GNU_BUILD_ID &&
            std::string_view(name, header.n_namesz) == std::string_view("GNU\0", 4)) {
          id = {text, header.n_descsz};
          return true;
        }
        note = text + padded(header.n_descsz);
      }
    }
    return true;
  });
  return id;
}

void* find_symbol(const Loaded& object, const char* name) {
  return Object(object).find(name);
}

Place place_of(const void* address) {
  Place place;
  const auto wanted = reinterpret_cast<ElfW(Addr)>(address);
  for_each_object([&](const dl_phdr_info& info) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = info.dlpi_phdr[i];
      const ElfW(Addr) start = info.dlpi_addr + segment.p_vaddr;
      if (segment.p_type != PT_LOAD || wanted < start || wanted >= start + segment.p_memsz)
        continue;
      place.object = info.dlpi_name;
      place.offset = wanted - info.dlpi_addr;
      return true;
    }
    return false;
  });
  return place;
}

bool symbol_at(const void* address, const char*& name, void*& start) {
  const auto wanted = reinterpret_cast<ElfW(Addr)>(address);
  bool found = false;
  for_each_object([&](const dl_phdr_info& info) {
    const Object object(info);
    const ElfW(Sym)* symbol = object.function_at(wanted, name);
    if (symbol == nullptr) return false;
    start = reinterpret_cast<void*>(info.dlpi_addr + symbol->st_value);
    found = true;
    return true;
  });
  return found;
}

}  // namespace fracgpu::elf
