// The code that runs when the library is loaded, and when the program exits: next to nothing, since
// every program loads the library.
//
// Only a process of a capped launch tree does something. The first process names the tree and
// exports the name, because its children must find it in their environment. Each process remembers
// what its stderr is, before the program can open something else in its place.
//
// The functions here are declared cold: the linker puts such functions next to each other and near
// the loader's own tables, so that few pages of the library are touched.
// (tests/containers/start_cost.py)
#include "shim/base/stderr.h"
#include "shim/config/cap_configured.h"
#include "shim/config/identity.h"
#include "shim/process/process.h"

namespace {

[[gnu::constructor, gnu::cold]] void start() {
  if (!fracgpu::look_for_cap()) return;
  fracgpu::export_launch_tree();
  fracgpu::remember_stderr();
}

// At exit, after the program's own handlers have run. Programs without a cap touch nothing more.
[[gnu::destructor, gnu::cold]] void end() {
  if (fracgpu::cap_is_configured()) fracgpu::Process::leave();
}

}  // namespace
