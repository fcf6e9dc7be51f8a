// What a user asks of `fracgpu run` and `fracgpu queue`: amounts of memory to be capped to, or
// shares of GPUs to be claimed, and the GPUs that may serve it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shim/config/limits.h"
#include "tools/claims/claim_table.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

class Command;

inline constexpr int kHighestPriority = 1'000'000;  // and its negative the lowest

// As written; empty where it was not.
struct RequestText {
  std::string memory, fraction, count, gpus;
  std::string mig{};        // how MIG is used
  std::string partition{};  // see partition_mode.h
};

void add_request_options(Command command, RequestText& text);

// One of four kinds: caps without a claim, a claim that may go to any of several GPUs, a claim on
// certain GPUs, or a MIG instance of its own, which a claim on any may be served by as well.
class Request {
 public:
  // Throws std::runtime_error with one line for what is not understood or names no GPU here.
  // Chooses among the GPUs that the environment shows.
  Request(const RequestText& text, const std::vector<Gpu>& gpus);
  // The same among those for which `hidden` has no reason; see hidden_by_environment.
  Request(const RequestText& text, const std::vector<Gpu>& gpus, std::vector<std::string> hidden);

  // Throws where neither it nor the environment says how much it may have.
  void check_capped() const;

  // The same in one form, to tell whether two launches ask for the same.
  const std::string& asked() const { return asked_; }

  // What of it goes into the claim table.
  ClaimRequest claim_request() const;

  // What a claim gets if these GPUs are all it can have, and they are free; none where they are too
  // few. Empty for caps without a claim.
  std::optional<std::vector<Share>> shares_of(const std::vector<Gpu>& gpus) const;

  // Whether it may be served by an instance that is made for it.
  bool may_be_instance() const { return wish_.kind != MigWish::Kind::none; }
  std::string label_of(const Share& share) const;  // of its GPU
  // "2g.20gb at slice 4" for what the claim table promised.
  std::string instance_text(const Share& share) const;
  // Of a GPU in MIG mode, what is taken by instances that none of these launches has.
  uint32_t slices_of_others(const std::string& gpu, const std::vector<Launch>& launches) const;
  // What a claim table needs to serve it: the driver's word, where GPUs are in MIG mode.
  MigView view() const;
  // The most that it may use of that instance; none where that is all of it.
  std::optional<uint64_t> instance_cap() const;

  // The GPUs that could serve it.
  std::vector<Gpu> candidates() const;
  // The GPUs that the launch gets, given what the claim table granted.
  std::vector<Gpu> granted(const std::vector<Share>& shares) const;
  // Whether it sees these only.
  bool hides_others() const { return claims_ || restricted_; }

  // The cap on a GPU that the launch gets; none where the environment alone says.
  std::optional<Amount> cap_on(const Gpu& gpu, const std::vector<Share>& shares) const;

  // FRACGPU_MEMORY_LIMIT for it; empty to leave the variable as it is.
  std::string limit(const std::vector<Share>& shares) const;

 private:
  enum class Mig { automatic, never, only, existing, profile };

  void read_mig(const std::string& text);
  void choose_instances(bool whole);
  void want_instance(MigWish wish);
  std::vector<size_t> divided_places() const;
  void check_usable(const char* option, size_t place) const;
  void check_any_usable() const;
  void read_memory(const std::string& text);
  void read_fraction(const std::string& text);
  void read_count(const std::string& text);

  std::vector<Gpu> all_;
  std::vector<std::string> hidden_;  // why, by place; empty: visible
  std::vector<size_t> usable_;       // places in `all_`
  bool restricted_ = false;          // GPUs were named
  bool claims_ = false;
  uint32_t each_ = 0, count_ = 0;               // a claim on any
  std::vector<uint8_t> exact_;                  // a claim on certain ones; by place
  std::optional<Amount> general_;               // a cap on all that are not named
  std::vector<std::optional<Amount>> amounts_;  // caps; by place
  Mig mig_ = Mig::automatic;
  std::string profile_;          // that --mig names
  MigWish wish_;                 // an instance, or none
  std::vector<MigGpu> divided_;  // that may serve it
  std::string asked_;
};

// "0.5" for four eighths.
std::string fraction_text(uint32_t eighths);

}  // namespace fracgpu::tools
