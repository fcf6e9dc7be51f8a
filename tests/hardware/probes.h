// The probes, each in a file of its own, which hardware_probe runs by name.
#pragma once

#include "tests/hardware/probe.h"

namespace hardware {

// Without the library.
void ask_identity(const Options& options);
void ask_process_list(const Options& options);
void ask_private_namespace(const Options& options);
void ask_sharing(const Options& options);
void ask_death(const Options& options);
void ask_amd(const Options& options);

// With or without it: --with plain or --with library.
void ask_entry_points(const Options& options);
void ask_contexts(const Options& options);
void ask_sweep(const Options& options);
void ask_capture(const Options& options);
void ask_times(const Options& options);

// With it, under --cap bytes.
void ask_pool_reuse(const Options& options);
void ask_graphs(const Options& options);
void ask_amd_books(const Options& options);
void fill(const Options& options);
void fill_amd(const Options& options);

struct Filled {
  uint64_t bytes = 0;  // granted in all
  int rc = 0;          // the last result: 0 when nothing was refused
};
// Takes big pieces, then small ones, until each is refused or more than `most` is granted.
Filled fill_until_refused(uint64_t most, const std::function<int(uint64_t)>& take);
// Under watch: waits until it has looked once more.
void let_watch_look();

// Runs a command with the library and watches from outside: see watch.cc.
int watch(const Options& options);

}  // namespace hardware
