// The machine's claim table: which launch holds how much of which GPU, and which launches wait. See
// fracgpu/claim_table_layout.h for the file.
//
// All decisions are made under the table's lock from the rows alone. So a launch that is killed at
// any instruction leaves at worst a row without a lock, and the next process that reads the table
// gives its share away. A read lock on its byte keeps a row. One open file description holds that
// lock, which `fracgpu run` shares with the whole launch tree by inheritance. The lock ends with
// the last process of the tree, even if `run` ends before. `run` itself stays until its last
// descendant is gone, so programs that close every descriptor lose nothing. If `run` is killed as
// well, the tenant's slots in its ledger still count.
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

// A launch's request.
struct ClaimRequest {
  std::string tenant;
  std::string command;
  std::string asked;  // caps and GPUs, in one canonical form
  int priority = 0;
  std::vector<std::string> gpus;  // keys
  uint32_t each = 0;              // eighths
  uint32_t count = 0;             // on so many of `gpus`; 0: `exact` has the amount for each
  std::vector<uint8_t> exact;
  // Alternatively an instance, on one of these GPUs in MIG mode.
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

// A launch as other processes see it.
struct Launch {
  bool waiting = false;
  uint32_t pid = 0;
  uint32_t uid = 0;
  int priority = 0;
  uint64_t since_unix_s = 0;
  std::string tenant, command, asked;
  std::vector<Share> shares;
  std::vector<std::string> awaited;  // if it waits: keys of the GPUs that could serve it
};

// The GPUs in MIG mode as their driver shows them now.
using MigView = std::function<std::vector<MigGpu>()>;

// An instance whose launch has ended. While this lives, no other process takes it.
struct Orphan {
  Descriptor life;
  uint32_t row = 0;
  std::string gpu;
  claim_table_layout::MigGrant instance{};
};

class ClaimTable {
 public:
  // Opens the machine's claim table, and makes it if there is none. FRACGPU_BOOK names another
  // table. Without a view of the driver, this object gives no launch an instance, and launches that
  // want one wait for a process with a view. Throws std::runtime_error if the table cannot be
  // opened or trusted, as all functions here do.
  ClaimTable() = default;
  explicit ClaimTable(MigView view) : view_(std::move(view)) {}
  // Opens another table, which must exist.
  explicit ClaimTable(const std::string& path) : file_(path) {}

  const std::string& path() const { return file_.path(); }

  // Whether there is a claim table at all.
  static bool exists() { return ClaimFile::exists(); }

  // Enters a launch. Serves it at once if it fits and no earlier launch waits for the same GPUs. A
  // launch with the tenant and the request of an existing claim joins that claim. A launch of that
  // tenant with another request is refused.
  Claim enter(const ClaimRequest& wanted);

  // Whether the launch has been served, and with what. Also serves all waiting launches now and
  // then, because no event reports a killed launch. A waiting launch must call this at least once a
  // second. Otherwise it is passed over until it calls again.
  bool served(const Claim& claim, std::vector<Share>& shares);

  // Gives up the place in the queue, or gives back the share of an ended launch, unless another
  // launch of the tenant has joined the claim. A MIG instance stays as an orphan until it is
  // destroyed.
  void leave(Claim claim);

  // Hold this while making or destroying instances of this GPU. Waits up to minutes.
  ClaimFile::Lock lock_instances(uint32_t gpu) const;
  // The instance that the launch was promised or has. Another launch of its tenant may have made
  // it.
  claim_table_layout::MigGrant instance_of(const Claim& claim);
  // Records that the instance was made.
  void note_made(const Claim& claim, uint32_t instance);
  // Makes the launch wait again, if its instance cannot be made at the promised place.
  void wait_again(const Claim& claim);

  // Returns the instances of ended launches, one in each call. None if no instance is left that no
  // other process handles.
  std::optional<Orphan> take_orphan();
  // Drops the orphan's row: the instance is gone, and its place may serve others.
  void drop(Orphan orphan);

  // The result of enter() now, without entering. False if the launch would have to wait.
  bool preview(const ClaimRequest& wanted, std::vector<Share>& shares);

  // Drops dead rows and serves waiting launches. Returns the number of rows dropped.
  int tidy();

  // The launch in this row, if it has been served.
  std::optional<Launch> launch_in(uint32_t row);

  // All live launches: first those that hold a share, then the waiting ones in the order of
  // service.
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
