// Records of refusals: what is written is read, the last ones stay, and what is not whole is left
// out, whoever wrote it.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

using layout::kMaxRefusals;
using layout::Reason;
using layout::RefusalRecord;

constexpr uint64_t kCap = 1000 * layout::kUnit;

struct Tenant {
  Tenant() { join(ledger); }
  void join(Ledger& member) {
    Message error;
    EXPECT_TRUE(member.join(scratch.name(), ProcessIdentity::of_self(), nullptr, error));
    device = member.device("GPU-test", kCap, kCap, error);
    EXPECT_GE(device, 0) << error.view();
  }
  std::vector<RefusalRecord> records() const {
    std::vector<RefusalRecord> found;
    RefusalRecord record;
    for (const auto& place : ledger.map()->refused) {
      if (layout::read_refusal(place, record)) found.push_back(record);
    }
    return found;
  }
  uint64_t count(int row, Reason reason) const {
    return ledger.map()->refusals[row][static_cast<int>(reason)].load();
  }

  ScratchTenant scratch;
  Ledger ledger;
  int device = -1;
};

TEST(RefusalRecordTest, SaysWhoAskedForWhatAndWhoHeldTheMost) {
  Tenant tenant;
  Ledger other;
  tenant.join(other);
  Refusal refusal;
  ASSERT_TRUE(tenant.ledger.reserve(tenant.device, 600, refusal));
  ASSERT_TRUE(other.reserve(tenant.device, 300, refusal));
  ASSERT_FALSE(other.reserve(tenant.device, 101, refusal));
  EXPECT_TRUE(tenant.records().empty()) << "whether it is refused is the caller's to say";
  const auto before = static_cast<uint64_t>(time(nullptr));
  other.record(tenant.device, "cuMemAlloc", refusal);

  ASSERT_EQ(tenant.records().size(), 1u);
  const RefusalRecord record = tenant.records()[0];
  EXPECT_EQ(record.number, 1u);
  EXPECT_GE(record.unix_ms / 1000, before);
  EXPECT_LE(record.unix_ms / 1000, before + 60);
  EXPECT_EQ(record.asked, 101u);
  EXPECT_EQ(record.own, 300u);
  EXPECT_EQ(record.held, 900u);
  EXPECT_EQ(record.cap, 1000u);
  EXPECT_EQ(record.largest, 600u);
  EXPECT_EQ(record.reason, Reason::cap);
  const ProcessIdentity self = ProcessIdentity::of_self();
  EXPECT_EQ(record.pid, self.pid);
  EXPECT_EQ(record.host_pid, self.host_pid);
  EXPECT_EQ(record.uid, self.uid);
  EXPECT_EQ(record.start_time, self.start_time);
  EXPECT_EQ(record.pid_namespace, self.pid_namespace);
  EXPECT_STREQ(record.command, self.command);
  EXPECT_STREQ(record.largest_command, self.command);
  EXPECT_STREQ(record.api, "cuMemAlloc");
  EXPECT_STREQ(record.key, "GPU-test");
  EXPECT_EQ(tenant.count(tenant.device, Reason::cap), 1u);
}

TEST(RefusalRecordTest, TheLast64Stay) {
  Tenant tenant;
  for (uint64_t i = 1; i <= 150; ++i) tenant.ledger.record(tenant.device, "a", {.asked = i});
  const auto records = tenant.records();
  ASSERT_EQ(records.size(), size_t{kMaxRefusals});
  for (const RefusalRecord& record : records) {
    EXPECT_GT(record.number, 150 - kMaxRefusals);
    EXPECT_EQ(record.asked, record.number);
  }
  EXPECT_EQ(tenant.count(tenant.device, Reason::cap), 150u);
}

TEST(RefusalRecordTest, OfADeviceThatIsNotKnownAndWithALongName) {
  Tenant tenant;
  const std::string name(200, 'x');
  tenant.ledger.record(-1, name.c_str(), {.reason = Reason::ledger});
  ASSERT_EQ(tenant.records().size(), 1u);
  EXPECT_EQ(tenant.records()[0].api, name.substr(0, 39));
  EXPECT_STREQ(tenant.records()[0].key, "");
  EXPECT_EQ(tenant.count(layout::kMaxDevices, Reason::ledger), 1u);
}

// Who comes later learns why those before it were refused; counters belong to the devices' rows.
TEST(RefusalRecordTest, OutlivesItsProcesses) {
  Tenant tenant;
  {
    Ledger dead;
    tenant.join(dead);
    dead.record(tenant.device, "first", {});
  }
  tenant.ledger.~Ledger();
  new (&tenant.ledger) Ledger;
  tenant.join(tenant.ledger);
  tenant.ledger.record(tenant.device, "second", {});
  const auto records = tenant.records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_STREQ(records[0].api, "first");
  EXPECT_STREQ(records[1].api, "second");
  EXPECT_EQ(records[1].number, 2u);
  EXPECT_EQ(tenant.count(tenant.device, Reason::cap), 1u);
}

TEST(RefusalRecordTest, AnyFlippedBitIsSeen) {
  Tenant tenant;
  tenant.ledger.record(tenant.device, "cuMemAlloc", {.asked = 5});
  auto& place = const_cast<layout::RefusalPlace&>(tenant.ledger.map()->refused[0]);
  for (size_t bit = 0; bit < sizeof place * 8; ++bit) {
    place.words[bit / 64].fetch_xor(uint64_t{1} << bit % 64);
    ASSERT_TRUE(tenant.records().empty()) << "bit " << bit;
    place.words[bit / 64].fetch_xor(uint64_t{1} << bit % 64);
  }
  EXPECT_EQ(tenant.records().size(), 1u);
}

// Words of one record among those of another, as two writers at one place leave them.
TEST(RefusalRecordTest, AMixtureOfTwoIsNone) {
  Tenant tenant;
  tenant.ledger.record(tenant.device, "cuMemAlloc", {.asked = 5});
  tenant.ledger.record(-1, "cuMemCreate", {.asked = 6});
  auto& first = const_cast<layout::RefusalPlace&>(tenant.ledger.map()->refused[0]);
  const auto& second = tenant.ledger.map()->refused[1];
  for (size_t words = 1; words <= offsetof(RefusalRecord, key) / 8; ++words) {
    first.words[words - 1].store(second.words[words - 1].load());
    ASSERT_EQ(tenant.records().size(), 1u) << words;
  }
}

}  // namespace
}  // namespace fracgpu
