// Sections of code in which no thread of the process forks.
//
// A child has whatever its parent has open at that moment. The lock of an open file description
// lasts as long as anybody has the description: a child that got one would hold the tenant's lock
// or keep a dead parent's slot alive, for as long as the child lives. So fork() waits for such
// sections, which take microseconds, and who is about to enter one waits for fork().
//
// A child of raw clone() runs no handler, and may have what a section has open; one of vfork() has
// it until its exec, which closes it.
#pragma once

#include <cstdint>

#include "shim/base/fork_page.h"

namespace fracgpu {

// Any thread may have some, one within another. Neither side waits longer than a second: what is
// in a section may be stopped.
class Unforked {
 public:
  Unforked() { enter(); }
  ~Unforked() { leave(); }
  Unforked(const Unforked&) = delete;
  Unforked& operator=(const Unforked&) = delete;

  // Whether a thread waits to fork. Who waits for something in a section, too, interrupts it then:
  // first gives up what no child may get.
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
