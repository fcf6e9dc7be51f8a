// random_calls (or random_hip) SEED THREADS PHASES MOVES MAX_MIB FAMILY...
//
// RANDOM_CALLS_ALONE says that no other process is in the tenant. Prints "up" with its PID and
// waits for a line. In each phase every thread makes MOVES random moves in each family; then all
// stand still, the program prints "quiet done=N refused=N free=BYTES managed=BYTES bad=TEXT" and
// waits for a line: "look" makes the library read the driver's report (by a request that cannot be
// granted) and answers "looked", anything else lets it go on. After the last phase everything is
// freed, and it stands still once more.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actor_base.h"

namespace client {
namespace {

using Actors = std::vector<std::unique_ptr<Actor>>;

template <typename Work>
void on_threads(std::vector<Actors>& threads, const World& world, Work work) {
  std::vector<std::thread> running;
  for (Actors& actors : threads) {
    running.emplace_back([&] {
      api.begin_thread(world);
      work(actors);
    });
  }
  for (std::thread& thread : running) thread.join();
}

void stand_still(const std::vector<Actors>& threads) {
  unsigned long long done = 0, refused = 0, managed = 0;
  std::string bad;
  for (const Actors& actors : threads) {
    for (const auto& actor : actors) {
      done += actor->tally().done;
      refused += actor->tally().refused;
      managed += actor->tally().managed;
      if (bad.empty()) bad = actor->tally().bad;
    }
  }
  api.settle();
  const auto free = static_cast<unsigned long long>(api.free_bytes());
  std::printf("quiet done=%llu refused=%llu free=%llu managed=%llu bad=%s\n", done, refused, free,
              managed, bad.c_str());
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line) && line == "look") {
    api.ask_too_much();
    std::printf("looked\n");
    std::fflush(stdout);
  }
}

}  // namespace

int run_actors(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: %s SEED THREADS PHASES MOVES MAX_MIB FAMILY...\n", api.name);
    return 2;
  }
  const uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  const int thread_count = std::atoi(argv[2]), phases = std::atoi(argv[3]);
  const int moves = std::atoi(argv[4]);
  World world;
  world.alone = thread_count == 1 && std::getenv("RANDOM_CALLS_ALONE") != nullptr;
  world.max_bytes = std::strtoull(argv[5], nullptr, 10) << 20;
  if (!api.begin(world)) {
    std::fprintf(stderr, "no context\n");
    return 3;
  }
  std::vector<Actors> threads(static_cast<size_t>(thread_count));
  for (size_t t = 0; t < threads.size(); ++t) {
    for (int family = 6; family < argc; ++family) {
      auto actor = make_actor(argv[family], world, seed * 1000 + t * 10 + unsigned(family));
      if (actor == nullptr) {
        std::fprintf(stderr, "unknown family '%s'\n", argv[family]);
        return 2;
      }
      threads[t].push_back(std::move(actor));
    }
  }
  // Nobody fills the cap before all have their contexts.
  std::printf("up pid=%d\n", getpid());
  std::fflush(stdout);
  std::string line;
  std::getline(std::cin, line);
  for (int phase = 0; phase < phases; ++phase) {
    on_threads(threads, world, [&](Actors& actors) {
      for (int i = 0; i < moves; ++i) {
        for (auto& actor : actors) actor->move();
      }
    });
    stand_still(threads);
  }
  on_threads(threads, world, [](Actors& actors) {
    for (auto& actor : actors) actor->clear();
  });
  stand_still(threads);
  return 0;
}

}  // namespace client

int main(int argc, char** argv) {
  return client::run_actors(argc, argv);
}
