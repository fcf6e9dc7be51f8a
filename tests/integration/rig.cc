// Makes and removes nodes and tenants for the tests; see rig.h.
#include "tests/integration/rig.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <sstream>

namespace fracgpu::test {
namespace {

constexpr char kEvidence[] = ".seen";

// Tests run beside each other, each with a machine of its own, and their GPUs have the same names:
// a launch of one would sweep away the ledgers of another whose processes it takes to be gone.
class OwnSharedMemory : public testing::Environment {
 public:
  void SetUp() override {
    if (unshare(CLONE_NEWNS) != 0) return;  // not root
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
  }
};
[[maybe_unused]] const auto* const own_shared_memory =
    testing::AddGlobalTestEnvironment(new OwnSharedMemory);

}  // namespace

LedgerView::LedgerView(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  // A copy may have been left half made.
  struct stat about {};
  if (fstat(fd, &about) != 0 || about.st_size < static_cast<off_t>(sizeof(layout::Ledger))) {
    close(fd);
    return;
  }
  void* bytes = mmap(nullptr, sizeof(layout::Ledger), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (bytes != MAP_FAILED) ledger_ = static_cast<const layout::Ledger*>(bytes);
}

LedgerView::~LedgerView() {
  if (ledger_ != nullptr) munmap(const_cast<layout::Ledger*>(ledger_), sizeof(layout::Ledger));
}

int LedgerView::row(const std::string& uuid) const {
  for (uint32_t i = 0; ledger_ != nullptr && i < layout::kMaxDevices; ++i) {
    const layout::Device& device = ledger_->devices[i];
    if (device.cap.load() != 0 && uuid == device.key) return static_cast<int>(i);
  }
  return -1;
}

template <typename Visit>
void LedgerView::for_each_cell(const std::string& uuid, pid_t pid, Visit visit) const {
  const int device = row(uuid);
  // The others' pages have no memory, and to look there would give them some.
  const uint64_t backed = device >= 0 ? ledger_->slots_backed.load() / 3 : 0;
  for (uint32_t slot = 0; slot < backed; ++slot) {
    if (pid != 0 && ledger_->slots[slot].pid != static_cast<uint32_t>(pid)) continue;
    const bool live = (ledger_->live[slot / 64].load() >> (slot % 64) & 1) != 0;
    const bool unclaimed = (ledger_->unclaimed[slot / 64].load() >> (slot % 64) & 1) != 0;
    EXPECT_NE(live, unclaimed) << "slot " << slot << " is claimed by one bitmap alone";
    if (!live) continue;
    // What a process has freed and others have imported is charged to the tenant.
    if (pid != 0 && ledger_->slots[slot].orphaned.load() != 0) continue;
    visit(ledger_->slots[slot], ledger_->cells[device][slot]);
  }
}

uint64_t LedgerView::held(const std::string& uuid, pid_t pid) const {
  uint64_t units = 0;
  for_each_cell(uuid, pid, [&](const layout::Slot&, const layout::Cell& cell) {
    units += layout::held_now(cell, std::memory_order_seq_cst);
  });
  return units * layout::kUnit;
}

uint64_t LedgerView::overhead(const std::string& uuid, pid_t pid) const {
  uint64_t units = 0;
  for_each_cell(uuid, pid, [&](const layout::Slot&, const layout::Cell& cell) {
    units += cell.overhead.load();
  });
  return units * layout::kUnit;
}

uint64_t LedgerView::total_held(const std::string& uuid) const {
  uint64_t units = 0;
  for_each_cell(uuid, 0, [&](const layout::Slot&, const layout::Cell& cell) {
    units += layout::held_now(cell, std::memory_order_seq_cst);
  });
  return units * layout::kUnit;
}

uint64_t LedgerView::orphaned(const std::string& uuid) const {
  uint64_t units = 0;
  for_each_cell(uuid, 0, [&](const layout::Slot& slot, const layout::Cell& cell) {
    if (slot.orphaned.load() != 0) units += layout::held_now(cell, std::memory_order_seq_cst);
  });
  return units * layout::kUnit;
}

uint64_t LedgerView::cap(const std::string& uuid) const {
  const int device = row(uuid);
  return device < 0 ? 0 : ledger_->devices[device].cap.load() / 3 * layout::kUnit;
}

std::string LedgerView::describe(const std::string& uuid) const {
  std::ostringstream text;
  for_each_cell(uuid, 0, [&](const layout::Slot& slot, const layout::Cell& cell) {
    const uint64_t word = cell.held_and_lease.load();
    text << "slot of pid " << slot.pid << ": held " << layout::held_of(word) * layout::kUnit
         << ", lease " << layout::lease_of(word) * layout::kUnit << ", overhead "
         << uint64_t{cell.overhead.load()} * layout::kUnit << " bytes\n";
  });
  return text.str();
}

Rig::Rig(const std::string& profile, int context_mib)
    : Rig(profile, sim::NodeOptions{.context_mib = context_mib}, false) {}

Rig::Rig(const std::string& profile, int context_mib, const NvidiaDriver& driver)
    : Rig(profile,
          sim::NodeOptions{.context_mib = context_mib,
                           .driver = driver.version,
                           .open_modules = driver.open_modules},
          true) {}

Rig::Rig(const std::string& profile, const sim::NodeOptions& options, bool shows_driver_file)
    : shows_driver_file_(shows_driver_file) {
  static std::atomic<int> count{0};
  tenant_ = "test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
  node_path_ = "/dev/shm/simnode-" + tenant_;
  sim::Node::remove(node_path_);
  unlink(ledger_path().c_str());
  std::string error;
  EXPECT_TRUE(sim::Node::create(node_path_, profile, options, &error)) << error;
  node_ = sim::Node::open(node_path_, &error);
  EXPECT_NE(node_, nullptr) << error;
}

Rig::~Rig() {
  node_.reset();
  sim::Node::remove(node_path_);
  unlink(ledger_path().c_str());
  unlink(ledger_path(true).c_str());
  unlink(board_path().c_str());
  unlink((ledger_path() + kEvidence).c_str());
  unlink((ledger_path() + kEvidence + ".rows").c_str());
}

Environment Rig::abroad() const {
  return {{"FRACGPU_TENANT", other_tenant()}, {sim::kTenantVariable, other_tenant()}};
}

Environment Rig::watched(uint64_t bytes) const {
  return {{sim::kWatchVariable,
           std::to_string(bytes) + ":" + ledger_path() + ":" + ledger_path() + kEvidence}};
}

std::string Rig::evidence() const {
  std::ostringstream text;
  text << std::ifstream(ledger_path() + kEvidence + ".rows").rdbuf();
  return text.str() + LedgerView(ledger_path() + kEvidence).describe(key());
}

Environment Rig::bare() const {
  Environment environment = {
      {"LD_LIBRARY_PATH", TEST_SIM_DIR},
      {sim::kNodeVariable, node_path_},
      {sim::kTenantVariable, tenant_},
      {"ASAN_OPTIONS", "detect_leaks=0"},
  };
  // Programs that are not instrumented load the instrumented simulator.
  if (*TEST_PRELOAD_FIRST != '\0') environment["LD_PRELOAD"] = TEST_PRELOAD_FIRST;
  for (const char* name : {"PATH", "HOME", "TSAN_OPTIONS"}) {
    if (const char* value = getenv(name); value != nullptr) environment[name] = value;
  }
  return environment;
}

Environment Rig::capped(const std::string& limit) const {
  const std::string preload = std::string(TEST_PRELOAD_FIRST) + TEST_SHIM;
  const bool kernel_files = shows_driver_file_ || node_->device_count(sim::Vendor::kAmd) > 0;
  return bare() +
         Environment{
             // The kernel's side of AMD's devices is in sysfs; NVIDIA's has a file in /proc.
             {"LD_PRELOAD", preload + (kernel_files ? ":" TEST_SIM_DIR "/libsimkfd.so" : "")},
             {"FRACGPU_MEMORY_LIMIT", limit},
             {"FRACGPU_TENANT", tenant_},
         };
}

std::unique_ptr<Program> Rig::start_client(const std::string& limit,
                                           const std::vector<std::string>& commands,
                                           const Environment& extra) const {
  std::vector<std::string> args = {TEST_CLIENT};
  args.insert(args.end(), commands.begin(), commands.end());
  return std::make_unique<Program>(args, capped(limit) + extra);
}

Outcome Rig::client(const std::string& limit, const std::vector<std::string>& commands,
                    const Environment& extra) const {
  return start_client(limit, commands, extra)->finish();
}

bool Rig::can_make_pid_namespace() {
  return run({"unshare", "--pid", "--fork", "true"}, {{"PATH", getenv("PATH")}}).status == 0;
}

std::unique_ptr<Program> Rig::start_in_pid_namespace(const std::string& limit,
                                                     const std::vector<std::string>& commands,
                                                     const Environment& extra) const {
  std::vector<std::string> args = {"unshare", "--pid", "--fork", TEST_CLIENT};
  args.insert(args.end(), commands.begin(), commands.end());
  return std::make_unique<Program>(args, capped(limit) + extra);
}

std::string Rig::key(int device) const {
  const sim::DeviceRow& row = node_->device(device);
  return row.vendor == sim::Vendor::kAmd ? "AMD-" + std::to_string(row.kfd_gpu_id) : uuid(device);
}

void Rig::expect_all_is_charged(Program& program) {
  if (!program.stop()) return;
  // Not by the node's own count, for which it buries the dead: the process may hold a lock of it.
  uint64_t taken = 0;
  for (const sim::ProcessRow& row : node_->file()->process) {
    if (!in_use(row) || row.pid != program.pid()) continue;
    taken += row.device[0].context_bytes.load() + row.device[0].allocation_bytes.load();
  }
  EXPECT_GE(ledger().held(key(), program.pid()), taken);
}

void Rig::expect_books_agree(pid_t pid, const char* when, int device) {
  const LedgerView view = ledger();
  EXPECT_EQ(view.held(key(device), pid), node_->used_by_pid(device, pid)) << when;
  EXPECT_EQ(view.overhead(key(device), pid), node_->context_bytes(device, pid)) << when;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

Environment operator+(Environment base, const Environment& extra) {
  for (const auto& [name, value] : extra) base[name] = value;
  return base;
}

}  // namespace fracgpu::test
