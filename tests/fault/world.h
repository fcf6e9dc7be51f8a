// A tenant's world around one operation: who else holds what, and what must be true of the ledger
// when the process that ran the operation is dead, or stands still, at any of its instructions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tests/fault/stepped.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu::fault {

inline constexpr uint64_t kCap = 131072;  // units: 64 MiB, so that a lease's spare is 2048 units
inline constexpr uint64_t kLowCap = 10000;
inline constexpr uint64_t kHighCap = 200000;
inline constexpr char kKey[] = "GPU-test";
inline constexpr char kRefusedApi[] = "cuMemAlloc";

// Every World lies alike on its page: which way the C library's string functions take depends on
// the low bits of addresses, and the children of one operation must all take the same way.
class alignas(4096) World {
 public:
  // Joins the tenant with the survivor, which reserves `survivor_holds`.
  void settle(uint64_t survivor_holds);

  // So many others join and stay, holding nothing.
  void crowd(uint32_t slots);

  // The survivor gave back what it held above this.
  void set_holding(uint64_t units) { holds_ = units; }

  // A process that joins with so many slots, does `body` with each and dies without a word.
  void die(int slots, const std::function<void(Ledger&, int)>& body);

  // For the victim, in its own process.
  bool victim_joins();
  void leave() { victim_.reset(); }
  Ledger& victim() { return *victim_; }
  Ledger& survivor() { return *survivor_; }
  const char* name() const { return tenant_.name(); }
  int device() const { return device_; }
  const ProcessIdentity& identity() const { return identity_; }

  // While the victim stands still: the survivor gets all that nobody holds, within bounded time.
  // Returns what is wrong, or an empty text.
  std::string judge_standstill(uint64_t& longest_ns);

  // While all stand still outside of operations: what is wrong with their leases, or an empty text.
  std::string judge_leases() const;

  // After the victim's death: `orphaned` units of the dead are still in use by the survivor.
  std::string judge_death(uint64_t orphaned);

 private:
  struct Claims {
    uint64_t living = 0;   // the sum of the larger of held and lease
    bool unspent = false;  // somebody of them has lease left
    uint64_t dead = 0;     // held
  };
  Claims claims() const;
  std::string judge_books(bool reaped, uint64_t orphaned) const;
  std::string judge_records() const;
  bool join(Ledger& ledger, int& device);

  ScratchTenant tenant_;
  ProcessIdentity identity_ = ProcessIdentity::of_self();
  std::optional<Ledger> victim_{std::in_place};
  std::optional<Ledger> survivor_;
  std::vector<std::unique_ptr<Ledger>> crowd_;
  uint64_t holds_ = 0;  // by the survivor
  int device_ = 0;
};

// An operation of the ledger that may be interrupted anywhere.
struct Operation {
  const char* name;
  std::function<void(World&)> before = {};   // others' part
  std::function<void(World&)> prepare = {};  // the victim's part, before the first instruction
  std::function<void(World&)> run = {};
  uint64_t orphaned = 0;  // see judge_death
};

const std::vector<Operation>& operations();

// Those of them after which the victim holds kGranted, some of it granted just now.
std::vector<Operation> grants();
inline constexpr uint64_t kGranted = 11000;

inline void PrintTo(const Operation& operation, std::ostream* out) {
  *out << operation.name;
}

// The operation's name as GoogleTest wants it.
std::string test_name(const Operation& operation);

// A new world for one interruption, and the victim in it, about to run the operation.
struct Interruption {
  explicit Interruption(const Operation& operation);
  World world;
  std::unique_ptr<Stepped> child;
};

// Whether every point is taken, and not only the first passes over each instruction.
bool is_campaign();

// The places of a trace at which to interrupt: how many instructions are done. All of them when
// there are few, in a campaign when there are fewer than 10,000; else those of the first passes
// over each instruction (50 in a campaign), which leaves out further turns of loops, and all before
// and after a system call.
std::vector<size_t> points_of(const Trace& trace, unsigned passes);

}  // namespace fracgpu::fault
