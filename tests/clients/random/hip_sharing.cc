// Sharing memory by HIP's IPC handles and by descriptors of HSA's virtual memory. The kernel counts
// nothing for who freed what others have open, so that nothing is freed before.
#include "board.h"
#include "hip_actor.h"
#include "tests/clients/token.h"

namespace client::hip {
namespace {

struct HipWays {
  struct Memory {
    size_t bytes = 0;
    void* address = nullptr;
    uint64_t handle = 0;  // of HSA's virtual memory; 0: HIP's
    int fd = -1;
  };
  static constexpr uint64_t kWays = 2;
  static constexpr bool kOutlivesFree = false;

  static int make(uint64_t way, Memory* memory, std::string* token) {
    return way == 0 ? make_ipc(memory, token) : make_descriptor(memory, token);
  }

  static bool takes_more(uint64_t) { return false; }

  static int make_ipc(Memory* memory, std::string* token) {
    if (const int rc = call("hipMalloc", &memory->address, memory->bytes)) return rc;
    IpcHandle handle = {};
    const int rc = call("hipIpcGetMemHandle", &handle, memory->address);
    *token = hex(handle.bytes);
    return rc;
  }

  static int make_descriptor(Memory* memory, std::string* token) {
    int rc = call("hsa_amd_vmem_handle_create", device_pool(), memory->bytes, 0, uint64_t{0},
                  &memory->handle);
    if (rc != 0) return rc;
    rc = call("hsa_amd_vmem_export_shareable_handle", &memory->fd, memory->handle, uint64_t{0});
    *token = place_of(memory->fd);
    return rc;
  }

  static int import(const std::string& token, Memory* memory, bool mapped) {
    if (token.find(':') == token.npos) {
      IpcHandle handle;
      read_hex(token, handle.bytes);
      return open_ipc(handle, &memory->address);
    }
    const int fd = take_descriptor(token);
    int rc = call("hsa_amd_vmem_import_shareable_handle", fd, &memory->handle);
    close(fd);
    if (rc != 0 || !mapped) return rc;
    rc = call("hsa_amd_vmem_address_reserve", &memory->address, memory->bytes, uint64_t{0},
              uint64_t{0});
    return rc != 0 ? rc
                   : call("hsa_amd_vmem_map", memory->address, memory->bytes, size_t{0},
                          memory->handle, uint64_t{0});
  }

  static int let_go(const Memory& memory, bool imported) {
    if (memory.fd >= 0) close(memory.fd);
    if (memory.handle == 0) {
      return call(imported ? "hipIpcCloseMemHandle" : "hipFree", memory.address);
    }
    if (memory.address != nullptr) {
      if (const int rc = call("hsa_amd_vmem_unmap", memory.address, memory.bytes)) return rc;
      call("hsa_amd_vmem_address_free", memory.address, memory.bytes);
    }
    return call("hsa_amd_vmem_handle_release", memory.handle);
  }
};

}  // namespace

std::unique_ptr<Actor> make_sharing(const World& world, uint64_t seed) {
  return std::make_unique<Sharing<HipWays>>(world, seed);
}

}  // namespace client::hip
