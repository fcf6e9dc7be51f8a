// A user's request to `fracgpu run` or `fracgpu queue`: caps in amounts of memory, or claims of GPU
// shares, and the GPUs that may serve it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shim/config/limits.h"
#include "tools/claims/claim_table.h"
#include "tools/machine/gpus.h"

namespace fracgpu::tools {

class Command;

inline constexpr int kHighestPriority = 1'000'000;  // the lowest is its negative

// The options as written; empty if not given.
struct RequestText {
  std::string memory, fraction, count, gpus;
  std::string mig{};        // how MIG is used
  std::string partition{};  // see partition_mode.h
};

void add_request_options(Command command, RequestText& text);

// One of four kinds: caps without a claim; a claim on any of several GPUs; a claim on certain GPUs;
// or a MIG instance of its own. An instance may also serve a claim on any of several GPUs.
class Request {
 public:
  // Throws std::runtime_error with one line if the text is not understood or names no GPU here.
  // Chooses among the GPUs that the environment shows.
  Request(const RequestText& text, const std::vector<Gpu>& gpus);
  // The same among the GPUs without a reason in `hidden`; see hidden_by_environment.
  Request(const RequestText& text, const std::vector<Gpu>& gpus, std::vector<std::string> hidden);

  // Throws if neither the request nor the environment specifies an amount.
  void check_capped() const;

  // The request in one canonical form, to compare two launches.
  const std::string& asked() const { return asked_; }

  // The part of the request that goes into the claim table.
  ClaimRequest claim_request() const;

  // The shares that a claim gets if it can have only these GPUs and they are free. None if there
  // are too few. Empty for caps without a claim.
  std::optional<std::vector<Share>> shares_of(const std::vector<Gpu>& gpus) const;

  // Whether an instance that is made for it may serve it.
  bool may_be_instance() const { return wish_.kind != MigWish::Kind::none; }
  std::string label_of(const Share& share) const;  // of its GPU
  // The promised instance, as in "2g.20gb at slice 4".
  std::string instance_text(const Share& share) const;
  // For a GPU in MIG mode: the number of memory slices in instances that belong to none of these
  // launches.
  uint32_t slices_of_others(const std::string& gpu, const std::vector<Launch>& launches) const;
  // The driver's information that a claim table needs to serve the request, if GPUs are in MIG
  // mode.
  MigView view() const;
  // The most that the launch may use of the instance; none for all of it.
  std::optional<uint64_t> instance_cap() const;

  // The GPUs that could serve it.
  std::vector<Gpu> candidates() const;
  // The GPUs that the launch gets, given what the claim table granted.
  std::vector<Gpu> granted(const std::vector<Share>& shares) const;
  // Whether the launch sees only these GPUs.
  bool hides_others() const { return claims_ || restricted_; }

  // The cap on a GPU that the launch gets; none if only the environment sets it.
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
  std::vector<std::string> hidden_;  // the reason, by place; empty: visible
  std::vector<size_t> usable_;       // places in `all_`
  bool restricted_ = false;          // GPUs were named
  bool claims_ = false;
  uint32_t each_ = 0, count_ = 0;               // a claim on any GPU
  std::vector<uint8_t> exact_;                  // a claim on certain GPUs; by place
  std::optional<Amount> general_;               // a cap on all GPUs that are not named
  std::vector<std::optional<Amount>> amounts_;  // caps; by place
  Mig mig_ = Mig::automatic;
  std::string profile_;          // named by --mig
  MigWish wish_;                 // an instance, or none
  std::vector<MigGpu> divided_;  // the divided GPUs that may serve it
  std::string asked_;
};

// "0.5" for four eighths.
std::string fraction_text(uint32_t eighths);

}  // namespace fracgpu::tools
