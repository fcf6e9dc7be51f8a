// Random sequences of calls, family by family: what the property tests run.
//
// An actor is one thread's share of one family: a few live objects and the moves that change them.
// The sequence follows from the seed. A call may succeed or be out of memory; every other result is
// an error of the program, the library or the simulated driver, and is reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

namespace client {

// What all actors of a program share.
struct World {
  void* context = nullptr;  // CUDA's current one
  uint64_t max_bytes = 0;   // of one request
  bool alone = false;       // nobody else uses the tenant: a refusal can be judged
};

// The API that is exercised, as far as the actors and the program have to know it.
struct Api {
  const char* name;
  bool (*begin)(World& world);
  void (*begin_thread)(const World& world);
  void (*settle)();          // waits for all work
  uint64_t (*free_bytes)();  // as the program is told
  bool (*out_of_memory)(int result);
  void (*ask_too_much)();  // a request that cannot be granted makes the library read the driver's
                           // report
};
extern const Api api;

class Actor {
 public:
  Actor(const World& world, uint64_t seed) : world_(world), random_(seed) {}
  virtual ~Actor() = default;

  // One random move.
  virtual void move() = 0;
  // Frees everything; the last move.
  virtual void clear() = 0;

  struct Tally {
    unsigned long long done = 0, refused = 0;
    unsigned long long managed = 0;  // bytes held of managed memory
    std::string bad;                 // the first unexpected result
  };
  const Tally& tally() const { return tally_; }

 protected:
  // Counts the result; true on success. A refusal is wrong when `needed` bytes were free.
  bool good(int result, const char* what, uint64_t needed = ~uint64_t{0});

  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }
  bool chance(unsigned percent) { return random_() % 100 < percent; }
  // Spread over powers of two, so that small, page-sized and large requests all occur.
  uint64_t size();

  const World& world_;
  std::mt19937_64 random_;
  Tally tally_;
};

// Null for a name that is no family of the API.
std::unique_ptr<Actor> make_actor(const std::string& family, const World& world, uint64_t seed);

// SEED THREADS PHASES MOVES MAX_MIB FAMILY...; see random_calls.cc.
int run_actors(int argc, char** argv);

}  // namespace client
