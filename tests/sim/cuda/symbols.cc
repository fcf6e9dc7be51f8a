// The table of exported functions and the choice among the ABIs of one name.
// Only addresses are needed, so every function is declared here without its parameters, away from
// its definition. The real 535 driver behaves like this: a per-thread look-up never falls back to
// the ordinary variant.
#include "sim/cuda/symbols.h"

#include <cstring>

#include "sim/cuda/abi.h"
#include "sim/cuda/version.h"

#define SIM_SYMBOL(base, first, exported, twin) extern "C" void exported();
#include "sim/cuda/symbols.inc"
#undef SIM_SYMBOL

namespace sim {
namespace {

struct Symbol {
  const char* base;
  unsigned first;  // the CUDA version that brought this ABI
  void (*address)();
  bool per_thread;
};

constexpr Symbol kSymbols[] = {
#define SIM_SYMBOL(base, first, exported, twin) {#base, first, exported, twin},
#include "sim/cuda/symbols.inc"
#undef SIM_SYMBOL
};

}  // namespace

void* find_symbol(const char* base, unsigned version, bool per_thread, int* status) {
  const auto newest = static_cast<unsigned>(driver_version());
  if (version > newest) version = newest;
  bool exists = false;
  bool twins = false;
  for (const Symbol& symbol : kSymbols) {
    if (std::strcmp(symbol.base, base) != 0) continue;
    exists = true;
    twins = twins || symbol.per_thread;
  }
  const Symbol* best = nullptr;
  for (const Symbol& symbol : kSymbols) {
    if (symbol.first > version || symbol.per_thread != (per_thread && twins)) continue;
    if (std::strcmp(symbol.base, base) != 0) continue;
    if (best == nullptr || symbol.first > best->first) best = &symbol;
  }
  *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
            : exists        ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return best != nullptr ? reinterpret_cast<void*>(best->address) : nullptr;
}

}  // namespace sim
