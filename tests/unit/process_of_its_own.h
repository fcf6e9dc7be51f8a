// A Process for one test, with a ledger of its own, one device of 100 MiB and no vendor.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "shim/process/process.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {

// Runs `body(process, device_index)` in a child, which has a Process of its own and is killed if it
// does not come to an end. What it returns is 0 if all is well.
inline void in_a_process_of_its_own(const std::function<int(Process&, int)>& body) {
  const ScratchTenant tenant;
  constexpr unsigned kTimeLimit_s = 20;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kTimeLimit_s);
    setenv("FRACGPU_TENANT", tenant.name(), 1);
    setenv("FRACGPU_MEMORY_LIMIT", "100MiB", 1);
    setenv("FRACGPU_LOG", "off", 1);
    Process* const process = Process::self();
    const int device_index =
        process != nullptr ? process->index_of_device(0, "GPU-test", 1u << 30) : -1;
    _exit(device_index >= 0 ? body(*process, device_index) : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace fracgpu
