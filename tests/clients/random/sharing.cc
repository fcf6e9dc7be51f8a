// CUDA's ways of sharing memory: IPC handles, descriptors of VMM handles, and pools. What is freed
// may still be open elsewhere, and costs its exporter as long as it is.
#include "board.h"
#include "tests/clients/share.h"

namespace client {
namespace {

struct CudaWays {
  using Memory = Shared;
  static constexpr uint64_t kWays = 3;
  static constexpr bool kOutlivesFree = true;

  static int make(uint64_t way, Memory* memory, std::string* token) {
    return export_memory(static_cast<Way>(way), memory, token);
  }
  // A pool grows by chunks.
  static bool takes_more(uint64_t way) { return static_cast<Way>(way) == Way::pool; }
  static int import(const std::string& token, Memory* memory, bool mapped) {
    return import_memory(token, memory, mapped);
  }
  static int let_go(const Memory& memory, bool) {
    const int rc = client::let_go(memory);
    return rc != 0 || memory.pool == nullptr ? rc : call("cuMemPoolDestroy", memory.pool);
  }
};

}  // namespace

std::unique_ptr<Actor> make_sharing(const World& world, uint64_t seed) {
  return std::make_unique<Sharing<CudaWays>>(world, seed);
}

}  // namespace client
