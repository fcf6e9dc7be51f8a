// Memory that goes across processes: the exporter pays, the importer never does, and what outlives
// its exporter is still counted against the tenant.
#include <chrono>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr uint64_t kShared = 600 * kMiB;

class Sharing : public Rig, public testing::WithParamInterface<const char*> {
 protected:
  // A cap with room for three contexts of 256 MiB and the shared memory, and 168 MiB more.
  static constexpr char kLimit[] = "1536MiB";

  std::unique_ptr<Program> start(const std::vector<std::string>& arguments) {
    std::vector<std::string> args = {TEST_SHARE_CLIENT};
    args.insert(args.end(), arguments.begin(), arguments.end());
    return std::make_unique<Program>(args, capped(kLimit));
  }
  void export_memory() {
    exporter_ = start({GetParam(), std::to_string(kShared)});
    const std::string line = exporter_->read_line();
    ASSERT_EQ(line.rfind("token ", 0), 0u) << line << exporter_->finish().err;
    token_ = line.substr(6);
  }
  std::unique_ptr<Program> import_memory() {
    auto importer = start({"import", token_, std::to_string(kShared)});
    EXPECT_EQ(importer->read_line(), "open rc=0");
    return importer;
  }
  static int ask(Program& program, const std::string& command) {
    program.go_on_with(command);
    return static_cast<int>(field(program.read_line(), "rc="));
  }
  static bool is_pool() { return std::string(GetParam()) == "export-pool"; }
  void expect_totals_agree(const char* when) {
    EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_)) << when;
  }

  std::unique_ptr<Program> exporter_;
  std::string token_;
};

TEST_P(Sharing, TheImporterPaysNothingAndFreesNothing) {
  export_memory();
  auto importer = import_memory();
  expect_books_agree(exporter_->pid(), "exporter");
  expect_books_agree(importer->pid(), "importer");
  EXPECT_EQ(ledger().held(uuid(), importer->pid()), 256 * kMiB);
  if (!is_pool()) {
    EXPECT_NE(ask(*importer, "freeptr"), 0) << "such an import is not freed by cuMemFree";
  }
  EXPECT_EQ(ledger().held(uuid(), importer->pid()), 256 * kMiB);
  EXPECT_EQ(ask(*importer, "free"), 0);
  EXPECT_EQ(ledger().held(uuid(), importer->pid()), 256 * kMiB);
  expect_totals_agree("closed");
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 1536 * kMiB);
}

TEST_P(Sharing, WhatOutlivesItsExporterIsStillCounted) {
  export_memory();
  auto importer = import_memory();
  exporter_->kill(SIGKILL);
  exporter_->finish();
  // 1536 - two contexts - 600 shared: 424 MiB are left.
  auto third = start({"export", std::to_string(2 * kMiB)});
  third->read_line();
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(500 * kMiB)), 2) << "the dead one's memory lives";
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(420 * kMiB)), 0)
      << "refused what would have fitted";
  expect_totals_agree("orphaned");
  EXPECT_EQ(ask(*importer, "free"), 0);
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(600 * kMiB)), 0) << "nobody holds it any more";
  expect_totals_agree("gone");
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 1536 * kMiB);
}

TEST_P(Sharing, WhatTheExporterFreesStaysUntilTheImporterDoes) {
  export_memory();
  auto importer = import_memory();
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_EQ(node_->used_by_pid(0, exporter_->pid()), 256 * kMiB + kShared);
  EXPECT_EQ(ask(*exporter_, "look"), 2);
  expect_totals_agree("the importer holds it");
  importer->kill(SIGKILL);
  importer->finish();
  // The truth is read again before a refusal, but not at every one. Looking also finds the dead.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  do {
    ask(*exporter_, "look");
  } while (ledger().total_held(uuid()) != node_->tenant_used(0, tenant_) &&
           std::chrono::steady_clock::now() < end);
  expect_totals_agree("nobody holds it");
}

TEST_P(Sharing, WhatItsExporterFreedBeforeItsDeathIsStillCounted) {
  export_memory();
  auto importer = import_memory();
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_EQ(ask(*exporter_, "look"), 2);
  exporter_->kill(SIGKILL);
  exporter_->finish();
  auto third = start({"export", std::to_string(2 * kMiB)});
  third->read_line();
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(500 * kMiB)), 2) << "the importer holds it";
  expect_totals_agree("orphaned");
  EXPECT_EQ(ask(*importer, "free"), 0);
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(600 * kMiB)), 0) << "nobody holds it any more";
  expect_totals_agree("gone");
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 1536 * kMiB);
}

INSTANTIATE_TEST_SUITE_P(
    By, Sharing, testing::Values("export", "export-vmm", "export-pool"), [](const auto& info) {
      const std::string how = info.param;
      return std::string(how == "export" ? "Ipc" : how == "export-vmm" ? "Descriptor" : "Pool");
    });

}  // namespace
}  // namespace fracgpu::test
