// The machine's claim table: which launch has how much of which GPU, and who waits. See
// fracgpu/claim_table_layout.h for the file.
//
// Everything is decided under the table's lock from the rows alone, so a launch that is killed at
// any instruction leaves at worst a row whose lock is gone, and the next who looks gives its share
// away. What keeps a row is a read lock on its byte, held by one open file description that
// `fracgpu run` shares with the whole launch tree by inheritance: it ends with the last of them,
// whatever becomes of `run`. `run` itself stays until its last descendant is gone, so that programs
// that close every descriptor lose nothing. Should `run` be killed as well, the tenant's slots in
// its ledger still count.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "fracgpu/claim_table_layout.h"
#include "tools/claims/claim_file.h"
#include "tools/claims/placement.h"
#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

// What a launch asks for.
struct ClaimRequest {
  std::string tenant;
  std::string command;
  std::string asked;  // caps and GPUs, in one form
  int priority = 0;
  std::vector<std::string> gpus;  // keys
  uint32_t each = 0;              // eighths
  uint32_t count = 0;             // on so many of `gpus`; 0: `exact` says how much on each
  std::vector<uint8_t> exact;
  // Or an instance instead, on one of these GPUs in MIG mode.
  MigWish mig{};
  std::vector<std::string> mig_gpus{};
};

// A share of one GPU: so many eighths, or a MIG instance.
struct Share {
  std::string key;
  uint32_t eighths = 0;
  std::optional<claim_table_layout::MigGrant> instance{};
};

inline SliceMask mask_of(const claim_table_layout::MigGrant& instance) {
  return ((SliceMask{1} << instance.slices) - 1) << instance.start;
}

// A launch's place in the table, kept as long as this descriptor or an inherited copy is open.
struct Claim {
  Descriptor life;  // close-on-exec
  uint32_t row = 0;
};

// A launch as others see it.
struct Launch {
  bool waiting = false;
  uint32_t pid = 0;
  uint32_t uid = 0;
  int priority = 0;
  uint64_t since_unix_s = 0;
  std::string tenant, command, asked;
  std::vector<Share> shares;
  std::vector<std::string> awaited;  // of one that waits: keys of the GPUs that could serve it
};

// The GPUs in MIG mode as their driver shows them now.
using MigView = std::function<std::vector<MigGpu>()>;

// An instance whose launch has ended, kept from others while this lives.
struct Orphan {
  Descriptor life;
  uint32_t row = 0;
  std::string gpu;
  claim_table_layout::MigGrant instance{};
};

class ClaimTable {
 public:
  // Opens the machine's claim table, making it when there is none; FRACGPU_BOOK names another one.
  // Without a view of the driver's nobody is given an instance by this object, and those who want
  // one go on waiting for somebody who has.
  // Throws std::runtime_error, as everything here does, when it cannot be had or trusted.
  ClaimTable() = default;
  explicit ClaimTable(MigView view) : view_(std::move(view)) {}
  // Another one, which is there.
  explicit ClaimTable(const std::string& path) : file_(path) {}

  const std::string& path() const { return file_.path(); }

  // Whether there is a claim table at all.
  static bool exists() { return ClaimFile::exists(); }

  // Enters a launch, and serves it at once where it fits and nobody before it waits for the same.
  // One of a tenant that is there already and asks for the same joins its claim; one that asks
  // for something else is refused.
  Claim enter(const ClaimRequest& wanted);

  // Whether the launch has been served, and with what. Serves all who wait now and then, because
  // nobody tells when a launch was killed. To be called at least once a second by who waits: who
  // does not is passed over until it does again.
  bool served(const Claim& claim, std::vector<Share>& shares);

  // Gives up the place, or gives back the share of a launch that has ended, unless another launch
  // of the tenant has joined it. A MIG instance stays an orphan until it is destroyed.
  void leave(Claim claim);

  // Held while instances of this GPU are made or destroyed. Waits for minutes.
  ClaimFile::Lock lock_instances(uint32_t gpu) const;
  // The instance that a launch was promised or has, as others of its tenant may have made it.
  claim_table_layout::MigGrant instance_of(const Claim& claim);
  // Notes that it was made.
  void note_made(const Claim& claim, uint32_t instance);
  // Where it cannot be made there: the launch waits again.
  void wait_again(const Claim& claim);

  // One after the other the instances of launches that have ended, until there is none that nobody
  // else is looking after.
  std::optional<Orphan> take_orphan();
  // It is gone; its place may serve others.
  void drop(Orphan orphan);

  // What enter() would give now, without entering. False where it would have to wait.
  bool preview(const ClaimRequest& wanted, std::vector<Share>& shares);

  // Drops the rows of the dead and serves those who wait. The number of rows dropped.
  int tidy();

  // The launch that has this row, if it has been served.
  std::optional<Launch> launch_in(uint32_t row);

  // The living, those that have something first, then by the order in which they are served.
  std::vector<Launch> launches();

 private:
  using Lock = ClaimFile::Lock;
  using Row = claim_table_layout::Claim;
  struct Served {
    uint32_t row;
    Placed placed;
  };

  bool is_alive(const Lock& lock, uint32_t row) const;
  static bool is_awake(const Row& claim);
  int drop_dead(const Lock& lock);
  Shares free_eighths() const;
  std::vector<DividedGpu> divided_gpus() const;
  uint32_t row_of(const std::string& key) const;
  void look_at_driver() {
    if (view_) mig_gpus_ = view_();
  }
  std::vector<uint32_t> waiting_in_order(bool asleep_too) const;
  std::vector<Served> plan() const;
  void serve_waiting(const Lock& lock);
  uint32_t gpu_row(const std::string& key, uint64_t taken);
  void fill_request(const ClaimRequest& wanted, Row& row);
  static void grant(const Placed& placed, Row& row);
  std::vector<Share> shares_of(const Row& row) const;
  Launch launch_of(const Row& claim) const;

  MigView view_{};
  std::vector<MigGpu> mig_gpus_{};  // as last seen
  ClaimFile file_;
  claim_table_layout::ClaimTable& table_ = file_.table();
};

}  // namespace fracgpu::tools
