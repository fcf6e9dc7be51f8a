// Memory that goes across processes: the exporter pays, the importer never does, and what outlives
// its exporter is still counted against the tenant.
#include <chrono>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

constexpr uint64_t kShared = 576 * kMiB;  // whole steps of a pool

// How memory is exported, and whether its importer belongs to another tenant.
struct Way {
  const char* name;
  const char* mode;
  bool abroad;
};

class SharingTest : public Rig, public testing::WithParamInterface<Way> {
 protected:
  // Room for the shared memory, for each context of 256 MiB (two processes and the importer, which
  // has one of the tenant's own or not), and for 192 MiB more.
  static uint64_t cap() { return (GetParam().abroad ? 1280 : 1536) * kMiB; }

  std::unique_ptr<Program> start(const std::vector<std::string>& arguments,
                                 const Environment& extra = {}) {
    std::vector<std::string> args = {TEST_SHARE_CLIENT};
    args.insert(args.end(), arguments.begin(), arguments.end());
    return std::make_unique<Program>(args, capped(std::to_string(cap() / kMiB) + "MiB") + extra);
  }
  void export_memory() {
    exporter_ = start({GetParam().mode, std::to_string(kShared)});
    const std::string line = exporter_->read_line();
    ASSERT_EQ(line.rfind("token ", 0), 0u) << line << exporter_->finish().err;
    token_ = line.substr(6);
  }
  std::unique_ptr<Program> import_memory(const char* mode = "import") {
    auto importer = start({mode, token_, std::to_string(kShared)},
                          GetParam().abroad ? abroad() : Environment{});
    EXPECT_EQ(importer->read_line(), "open rc=0");
    return importer;
  }
  LedgerView importing_ledger() const { return ledger(GetParam().abroad); }
  static int ask(Program& program, const std::string& command) {
    program.go_on_with(command);
    return static_cast<int>(field(program.read_line(), "rc="));
  }
  // The driver's report is read again before a refusal, but not at every one. Looking also finds
  // the dead.
  template <typename Done>
  void look_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    do {
      ask(*exporter_, "look");
    } while (!done() && std::chrono::steady_clock::now() < end);
  }
  // What was exported counts until the importer lets go of it. Of these amounts in MiB a third
  // process is refused the first, gets the second, and gets the last one afterwards.
  void expect_counted_until_freed(Program& importer, uint64_t too_much, uint64_t rest,
                                  uint64_t later) {
    auto third = start({"export", std::to_string(2 * kMiB)});
    ASSERT_EQ(third->read_line().rfind("token ", 0), 0u) << third->finish().err;
    EXPECT_EQ(ask(*third, "alloc " + std::to_string(too_much * kMiB)), 2)
        << "the importer holds it";
    EXPECT_EQ(ask(*third, "alloc " + std::to_string(rest * kMiB)), 0)
        << "refused what would have fitted";
    expect_totals_agree("orphaned");
    EXPECT_EQ(ask(importer, "free"), 0);
    EXPECT_EQ(ask(*third, "alloc " + std::to_string(later * kMiB)), 0)
        << "nobody holds it any more";
    expect_totals_agree("gone");
    EXPECT_LE(node_->tenant_high_water(0, tenant_), cap());
  }
  // The exporter is dead, so that the cap less the contexts and what is shared leaves 448 MiB.
  void expect_counted_until_freed_after_death(Program& importer) {
    expect_counted_until_freed(importer, 500, 420, 600);
  }
  static bool is_pool() { return std::string(GetParam().mode) == "export-pool"; }
  void expect_totals_agree(const char* when) {
    EXPECT_EQ(ledger().total_held(uuid()), node_->tenant_used(0, tenant_)) << when;
  }

  std::unique_ptr<Program> exporter_;
  std::string token_;
};

TEST_P(SharingTest, TheImporterPaysNothingAndFreesNothing) {
  export_memory();
  auto importer = import_memory();
  expect_books_agree(exporter_->pid(), "exporter");
  EXPECT_EQ(node_->used_by_pid(0, importer->pid()), 256 * kMiB);
  EXPECT_EQ(importing_ledger().held(uuid(), importer->pid()), 256 * kMiB);
  if (!is_pool()) {
    EXPECT_NE(ask(*importer, "freeptr"), 0) << "such an import is not freed by cuMemFree";
  }
  EXPECT_EQ(importing_ledger().held(uuid(), importer->pid()), 256 * kMiB);
  EXPECT_EQ(ask(*importer, "free"), 0);
  EXPECT_EQ(importing_ledger().held(uuid(), importer->pid()), 256 * kMiB);
  expect_totals_agree("closed");
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_LE(node_->tenant_high_water(0, tenant_), cap());
}

TEST_P(SharingTest, WhatOutlivesItsExporterIsStillCounted) {
  export_memory();
  auto importer = import_memory();
  exporter_->kill(SIGKILL);
  exporter_->finish();
  expect_counted_until_freed_after_death(*importer);
}

// A handle that is mapped nowhere holds its memory as well.
TEST_P(SharingTest, WhatIsNotMappedYetIsStillCounted) {
  if (std::string(GetParam().mode) != "export-vmm") return;  // the others have nothing like it
  export_memory();
  auto importer = import_memory("import-handle");
  exporter_->kill(SIGKILL);
  exporter_->finish();
  expect_counted_until_freed_after_death(*importer);
}

// The tenant lives as long as somebody uses its memory, and no longer.
TEST_P(SharingTest, WhoHoldsNothingIsNoForeignImporterAnyMore) {
  if (!GetParam().abroad) return;
  const Environment other_cap = {{"FRACGPU_MEMORY_LIMIT", "900MiB"}};
  const std::vector<std::string> anything = {"export", std::to_string(2 * kMiB)};
  export_memory();
  auto importer = import_memory();
  exporter_->kill(SIGKILL);
  exporter_->finish();
  start(anything, other_cap)->finish();
  EXPECT_EQ(ledger().cap(uuid()), cap()) << "a process of another tenant uses its memory";
  EXPECT_EQ(ask(*importer, "free"), 0);
  start(anything, other_cap)->finish();
  EXPECT_EQ(ledger().cap(uuid()), 900 * kMiB) << "nobody is left who knows the old cap";
}

TEST_P(SharingTest, WhatTheExporterFreesStaysUntilTheImporterDoes) {
  export_memory();
  auto importer = import_memory();
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_EQ(node_->used_by_pid(0, exporter_->pid()), 256 * kMiB);
  expect_totals_agree("freed");
  EXPECT_EQ(ask(*exporter_, "look"), 2);
  expect_totals_agree("the importer holds it");
  importer->kill(SIGKILL);
  importer->finish();
  look_until([&] { return ledger().total_held(uuid()) == node_->tenant_used(0, tenant_); });
  expect_totals_agree("nobody holds it");
}

// The exporter does nothing more, and the importer is not charged for what the driver counts for
// it.
TEST_P(SharingTest, WhatAnIdleExporterFreedIsFreeAfterTheImporter) {
  export_memory();
  auto importer = import_memory();
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_EQ(ask(*importer, "look"), 2);
  if (!GetParam().abroad) {
    EXPECT_EQ(ledger().held(uuid(), importer->pid()), 256 * kMiB);
  }
  expect_counted_until_freed(*importer, 200, 180, 560);
}

TEST_P(SharingTest, WhatItsExporterFreedBeforeItsDeathIsStillCounted) {
  export_memory();
  auto importer = import_memory();
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_EQ(ask(*exporter_, "look"), 2);
  exporter_->kill(SIGKILL);
  exporter_->finish();
  expect_counted_until_freed_after_death(*importer);
}

// The importer has as much of another exporter. Of pools only sums are known.
TEST_P(SharingTest, WhatNobodyHasImportedIsFreeAtOnce) {
  if (is_pool()) return;
  export_memory();
  auto importer = import_memory();
  auto other = start({GetParam().mode, std::to_string(16 * kMiB)});
  ASSERT_EQ(other->read_line().rfind("token ", 0), 0u) << other->finish().err;
  EXPECT_EQ(ask(*other, "free"), 0);
  expect_totals_agree("freed");
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  expect_totals_agree("the importer has this one");
  other->kill(SIGKILL);
  other->finish();
  look_until([&] { return ledger().total_held(uuid()) == node_->tenant_used(0, tenant_); });
  expect_totals_agree("the other one is dead");
}

// Linear memory, which the driver gives back when the stream gets there.
class SharingFreeInOrderTest : public SharingTest {};

TEST_P(SharingFreeInOrderTest, StaysUntilTheImporterLetsGo) {
  export_memory();
  auto importer = import_memory();
  EXPECT_EQ(ask(*exporter_, "free-in-order"), 0);
  look_until([&] { return ledger().held(uuid(), exporter_->pid()) == 256 * kMiB; });
  expect_totals_agree("the exporter's report has none of it");
  expect_counted_until_freed(*importer, 200, 180, 560);
}

INSTANTIATE_TEST_SUITE_P(By, SharingFreeInOrderTest,
                         testing::Values(Way{"Ipc", "export", false},
                                         Way{"IpcAbroad", "export", true}),
                         [](const auto& info) { return std::string(info.param.name); });

// CUDA has no importer of these.
class DmaBufTest : public SharingTest {};

TEST_P(DmaBufTest, HoldsWhatTheExporterHasFreed) {
  export_memory();
  EXPECT_EQ(ask(*exporter_, "free"), 0);
  EXPECT_EQ(ask(*exporter_, "look"), 2);
  expect_totals_agree("the dma-buf holds it");
  auto third = start({"export", std::to_string(2 * kMiB)});
  ASSERT_EQ(third->read_line().rfind("token ", 0), 0u) << third->finish().err;
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(500 * kMiB)), 2);
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(440 * kMiB)), 0);
  EXPECT_EQ(ask(*exporter_, "close"), 0);
  EXPECT_EQ(ask(*exporter_, "look"), 2);
  EXPECT_EQ(ask(*third, "alloc " + std::to_string(560 * kMiB)), 0);
  expect_totals_agree("nobody holds it");
  EXPECT_LE(node_->tenant_high_water(0, tenant_), cap());
}

INSTANTIATE_TEST_SUITE_P(Of, DmaBufTest,
                         testing::Values(Way{"LinearMemory", "export-range", false},
                                         Way{"MappedMemory", "export-mapped-range", false}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(
    By, SharingTest,
    testing::Values(Way{"Ipc", "export", false}, Way{"IpcOfAnInnerAddress", "export-within", false},
                    Way{"Descriptor", "export-vmm", false}, Way{"Pool", "export-pool", false},
                    Way{"IpcAbroad", "export", true}, Way{"DescriptorAbroad", "export-vmm", true},
                    Way{"PoolAbroad", "export-pool", true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fracgpu::test
