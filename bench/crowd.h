// Benchmarks of N processes that make the same calls at once, on one device and as one tenant.
// The processes are this program again, started with one of the arguments below.
#pragma once

namespace bench {

inline constexpr char kOneAllocation[] = "--one-allocation";
inline constexpr char kWorker[] = "--worker";

// The body of a worker: `shared` is the descriptor of the memory it shares with its starter,
// `index` its number there.
int run_worker(int shared, int index);

}  // namespace bench
