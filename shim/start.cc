// What happens when the library is loaded: next to nothing, since it is loaded into everything.
//
// Only a process of a capped launch tree does something: the first one names the tree and exports
// the name, because its children must find it in their environment.
#include "shim/identity.h"
#include "shim/process.h"

namespace {

[[gnu::constructor]] void start() {
  if (fracgpu::cap_is_configured()) fracgpu::export_launch_tree();
}

}  // namespace
