// Random sequences of driver calls, family by family: what the property tests run.
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

#include "hooks/cuda/abi.h"

namespace client {

using namespace fracgpu::cuda;

// The driver's exported function of this name, by dlsym; ends the program when there is none.
void* driver_function(const char* name);

// Calls it. The arguments must have exactly the types of the driver's prototype.
template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  return reinterpret_cast<int (*)(Arguments...)>(driver_function(name))(arguments...);
}

// What all actors of a program share.
struct World {
  CUcontext context = nullptr;
  uint64_t max_bytes = 0;  // of one request
  bool alone = false;      // nobody else uses the tenant: a refusal can be judged
};

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
    std::string bad;  // the first unexpected result
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

// "linear", "vmm", "pools", "arrays", "graphs" or "implicit"; null for another name.
std::unique_ptr<Actor> make_actor(const std::string& family, const World& world, uint64_t seed);

std::unique_ptr<Actor> make_linear(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_vmm(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_pools(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_arrays(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_graphs(const World& world, uint64_t seed);
std::unique_ptr<Actor> make_implicit(const World& world, uint64_t seed);

}  // namespace client
