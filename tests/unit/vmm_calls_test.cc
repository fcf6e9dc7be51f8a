// Handles that the driver gives out again before the call that released them has returned.
#include "shim/charge/vmm_calls.h"

#include <gtest/gtest.h>

#include "tests/unit/process_of_its_own.h"

namespace fracgpu {
namespace {

constexpr uint64_t kHandle = 0x7000;

// Imports memory of `units`, of which the driver makes this handle.
void import(Process& process, int device_index, const char (&exported)[8], uint64_t units) {
  ImportCall call(process, exported, sizeof exported);
  call.imported(kHandle, device_index, units);
}

TEST(VmmCallsTest, WhatIsImportedUnderAHandleThatIsBeingReleasedIsNotWhatItWas) {
  in_a_process_of_its_own([](Process& process, int device_index) {
    import(process, device_index, "earlier", 10);
    release_physical(process, kHandle, [&] {
      import(process, device_index, "later..", 300);
      return 0;
    });
    if (process.imports.imported(device_index) != 300) return 1;
    release_physical(process, kHandle, [] { return 0; });
    return process.imports.imported(device_index) == 0 ? 0 : 2;
  });
}

TEST(VmmCallsTest, WhatIsOpenedTwiceIsOneUntilItIsClosedTwice) {
  in_a_process_of_its_own([](Process& process, int device_index) {
    import(process, device_index, "earlier", 10);
    import(process, device_index, "earlier", 10);
    release_physical(process, kHandle, [] { return 1; });  // refused
    for (const uint64_t left : {10, 0}) {
      release_physical(process, kHandle, [] { return 0; });
      if (process.imports.imported(device_index) != left) return 1;
    }
    return 0;
  });
}

}  // namespace
}  // namespace fracgpu
