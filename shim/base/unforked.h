// Sections of code in which no thread of the process forks.
//
// A child has whatever its parent has open at that moment. The lock of an open file description
// lasts as long as any process has the description. A child with such a description would hold the
// tenant's lock, or keep a dead parent's slot alive, as long as it lives. So fork() waits for such
// sections, which take microseconds, and threads that are about to enter one wait for fork().
//
// A child of raw clone() runs no handler, and may have what a section has open. A child of vfork()
// has it until its exec, which closes it.
#pragma once

#include <cstdint>

#include "shim/base/fork_page.h"

namespace fracgpu {

// Any thread may have several, one within another. Neither side waits longer than a second: a
// thread in a section may be stopped.
class Unforked {
 public:
  Unforked() { enter(); }
  ~Unforked() { leave(); }
  Unforked(const Unforked&) = delete;
  Unforked& operator=(const Unforked&) = delete;

  // Whether a thread waits to fork. A thread that waits in a section for something else must then
  // interrupt its section. It first gives up what no child may get.
  static bool is_awaited();
  void interrupt() {
    leave();
    enter();
  }

 private:
  void enter();
  void leave();

  ForkPage* page_ = nullptr;  // null: forks cannot be detected
  uint32_t generation_ = 0;
};

}  // namespace fracgpu
