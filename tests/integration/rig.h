// What every end-to-end test stands on: a simulated node of its own, a tenant of its own, and a
// look into the tenant's ledger to compare with the node's accounting.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fracgpu/ledger_layout.h"
#include "sim/node/node.h"
#include "tests/integration/program.h"

namespace fracgpu::test {

inline constexpr uint64_t kKiB = 1ull << 10;
inline constexpr uint64_t kMiB = 1ull << 20;
inline constexpr uint64_t kGiB = 1ull << 30;

// Read-only view of a tenant's ledger, written against the published layout alone.
class LedgerView {
 public:
  explicit LedgerView(const std::string& path);
  ~LedgerView();
  LedgerView(const LedgerView&) = delete;
  LedgerView& operator=(const LedgerView&) = delete;

  bool exists() const { return ledger_ != nullptr; }
  // Bytes, of the device whose key is `uuid`; 0 where the ledger has no such row.
  uint64_t held(const std::string& uuid, pid_t pid) const;
  uint64_t overhead(const std::string& uuid, pid_t pid) const;
  uint64_t total_held(const std::string& uuid) const;
  // Of that, what its exporters have freed or have died with.
  uint64_t orphaned(const std::string& uuid) const;
  uint64_t cap(const std::string& uuid) const;
  // What everybody has of the device, for a person to read.
  std::string describe(const std::string& uuid) const;

 private:
  int row(const std::string& uuid) const;
  // Of one process, or of all (0), none of which may be coming or going then.
  template <typename Visit>
  void for_each_cell(const std::string& uuid, pid_t pid, Visit visit) const;

  const layout::Ledger* ledger_ = nullptr;
};

inline bool sanitized() {
  return *TEST_PRELOAD_FIRST != '\0';
}
// The thread sanitizer's runtime ends programs that are not instrumented before their main().
inline bool thread_sanitized() {
  return std::string(TEST_PRELOAD_FIRST).find("tsan") != std::string::npos;
}

// Of the simulated node.
struct NvidiaDriver {
  const char* version;
  bool open_modules;
};

class Rig : public testing::Test {
 protected:
  Rig() : Rig("a100-40gb", 256) {}
  // A node of this profile whose contexts take `context_mib`.
  Rig(const std::string& profile, int context_mib);
  // The same with a driver of NVIDIA's that is chosen, and its file in /proc.
  Rig(const std::string& profile, int context_mib, const NvidiaDriver& driver);
  ~Rig() override;

  // The environment of a program of the tenant, without and with the library.
  Environment bare() const;
  Environment capped(const std::string& limit) const;

  // Runs the client's commands under the cap.
  Outcome client(const std::string& limit, const std::vector<std::string>& commands,
                 const Environment& extra = {}) const;
  std::unique_ptr<Program> start_client(const std::string& limit,
                                        const std::vector<std::string>& commands,
                                        const Environment& extra = {}) const;

  // The same in a PID namespace of its own, or what it is there under: `test` is skipped where none
  // can be made. The process's own PID is among the node's processes.
  static bool can_make_pid_namespace();
  std::unique_ptr<Program> start_in_pid_namespace(const std::string& limit,
                                                  const std::vector<std::string>& commands,
                                                  const Environment& extra = {}) const;

  // Where programs of random calls pin what they share.
  std::string board_path() const { return node_path_ + ".board"; }

  // A program with this on top belongs to another tenant.
  std::string other_tenant() const { return tenant_ + "-other"; }
  Environment abroad() const;

  std::string ledger_path(bool of_other = false) const {
    return layout::kFilePrefix + (of_other ? other_tenant() : tenant_);
  }
  LedgerView ledger(bool of_other = false) const { return LedgerView(ledger_path(of_other)); }
  std::string uuid(int device = 0) const { return node_->uuid(device); }
  // What the ledger calls the device.
  std::string key(int device = 0) const;

  // The ledger and the node's accounting agree for this process.
  void expect_books_agree(pid_t pid, const char* when, int device = 0);

  // Stops the process wherever it is. What the driver has given it so far is charged there,
  // whatever else it was about to do; that is not so while it makes a context.
  void expect_all_is_charged(Program& program);

  // Has the node write down who holds what when the tenant passes this height, for `evidence`.
  Environment watched(uint64_t bytes) const;
  // Who held what, by node and ledger, when the first process passed the height that is watched.
  std::string evidence() const;

  std::string tenant_;
  std::string node_path_;
  std::unique_ptr<sim::Node> node_;

 private:
  Rig(const std::string& profile, const sim::NodeOptions& options, bool shows_driver_file);

  bool shows_driver_file_;
};

// The same on the smallest node: one device of 1 GiB with contexts of 64 MiB.
class TinyRig : public Rig {
 protected:
  TinyRig() : Rig("tiny", 64) {}
};

std::vector<std::string> words(const std::string& text);

Environment operator+(Environment base, const Environment& extra);

}  // namespace fracgpu::test
