// Code objects as programs load them: readers, executables, what of them lies on a device, symbols.
// A loaded code object takes device memory from address 0 of the file to the end of its last
// loadable segment, in 4 KiB steps, straight from the kernel as the runtime's own (LoadSegmentsV2
// of the real loader, 5.2 to 7).
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/hsa/elf.h"
#include "sim/hsa/runtime.h"

namespace sim {

struct Reader {
  std::vector<uint8_t> own;  // of a file
  const uint8_t* data = nullptr;
  size_t bytes = 0;
};

struct Executable;

struct LoadedCode {
  Executable* executable = nullptr;
  Agent* agent = nullptr;
  const uint8_t* storage = nullptr;
  size_t storage_bytes = 0;
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t lowest = 0;  // the address in the file that lies at base
};

struct Symbol {
  Agent* agent = nullptr;
  bool kernel = false;
  bool constant = false;
  std::string name;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

struct Executable {
  bool frozen = false;
  std::list<LoadedCode> loaded;
  std::list<Symbol> symbols;
};

// The runtime's lock is held.
class CodeTable {
 public:
  hsa_status_t load(Executable* executable, Agent* agent, const Reader& reader, LoadedCode** out);
  void unload(Executable* executable);
  LoadedCode* around(uint64_t address);

  // By handle, which is the object's address.
  std::map<uint64_t, std::unique_ptr<Reader>> readers;
  std::map<uint64_t, std::unique_ptr<Executable>> executables;
  Executable* executable(uint64_t handle);
};

CodeTable& code();
void unload_all_code();
const hsa_ven_amd_loader_1_03_pfn_t& loader_table();

}  // namespace sim
