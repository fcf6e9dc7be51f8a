// Memory that is made, mapped and bound separately: which use keeps which memory, and how an
// address finds it.
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <random>

#include "shim/tracking/physical_table.h"

namespace fracgpu {
namespace {

class PhysicalLookupTest : public testing::Test {
 protected:
  // New memory of `units`, by its number.
  uint64_t make(uint64_t units) {
    const uint64_t handle = ++handles_;
    EXPECT_TRUE(table_->add(handle, units, 0));
    return table_->memory_of(handle);
  }

  uint64_t units() { return table_->sum(0).units; }

  const std::unique_ptr<PhysicalTable> table_ = std::make_unique<PhysicalTable>();
  uint64_t handles_ = 0;
};

TEST_F(PhysicalLookupTest, BindingsOfEveryDeviceAreToldApart) {
  const uint64_t object = make(0);
  std::map<uint64_t, int> keys;
  for (const int device : {0, 1, 15, 16, 17, 31, 32, 63, 64, 127}) {
    const uint64_t key = PhysicalTable::binding_key(object, device, 0);
    const auto [other, fresh] = keys.emplace(key, device);
    EXPECT_TRUE(fresh) << "devices " << other->second << " and " << device;
    EXPECT_FALSE(keys.contains(PhysicalTable::binding_key(object + 1, device, 0)));

    const uint64_t memory = make(1);
    EXPECT_EQ(table_->add_mapping(key, PhysicalTable::kBindingStep, memory).memory, 0u)
        << "took the place of another device's binding, on device " << device;
    EXPECT_EQ(table_->drop_reference(memory).memory, 0u) << "the binding still uses it";
  }
  EXPECT_EQ(units(), keys.size());
  for (const auto& [key, device] : keys) {
    uint64_t freed = 0;
    table_->drop_mappings(key, PhysicalTable::kBindingStep, table_->serial(),
                          [&](const PhysicalTable::Freed& gone) { freed += gone.units; });
    EXPECT_EQ(freed, 1u) << "device " << device;
  }
  EXPECT_EQ(units(), 0u);
}

// However large a mapping is beside how small others are: a thread holds a lock meanwhile.
TEST_F(PhysicalLookupTest, AnAddressIsFoundByFewProbes) {
  constexpr uint64_t kTiB = uint64_t{1} << 40, kStep = 2 << 20, kPage = 4096;
  constexpr uint64_t kBegin = uint64_t{0x7f} << 40;
  const uint64_t huge = make(1), small = make(1), odd = make(1);
  table_->add_mapping(kBegin, kTiB, huge);
  table_->add_mapping(kBegin + kTiB, kStep, small);
  table_->add_mapping(kBegin + kTiB + 2 * kStep, 3 * kPage, odd);

  const auto expect = [&](uint64_t address, uint64_t memory) {
    unsigned probes = 0;
    EXPECT_EQ(table_->memory_at(address, &probes), memory) << std::hex << address;
    EXPECT_LE(probes, 9u) << "three sizes of mappings, " << std::hex << address;
  };
  expect(kBegin, huge);
  for (uint64_t offset = kStep - 1; offset < kTiB; offset += kTiB / 64) {
    expect(kBegin + offset, huge);
  }
  expect(kBegin + kTiB - 1, huge);
  expect(kBegin + kTiB, small);
  expect(kBegin + kTiB + kStep - 1, small);
  expect(kBegin + kTiB + 2 * kStep, odd);
  expect(kBegin + kTiB + 2 * kStep + 3 * kPage - 1, odd);
  // Nothing is mapped there.
  for (const uint64_t address : {uint64_t{1}, kBegin - 1, kBegin + kTiB + kStep,
                                 kBegin + kTiB + 2 * kStep + 3 * kPage, ~uint64_t{0} >> 1}) {
    expect(address, 0);
  }

  table_->drop_mappings(kBegin, kTiB, table_->serial(), [](const PhysicalTable::Freed&) {});
  expect(kBegin + kTiB / 2, 0);
  expect(kBegin + kTiB, small);
}

// Mappings beside each other, of all sizes and in changing order, against a plain list.
TEST_F(PhysicalLookupTest, AnAddressLeadsToTheMappingItLiesIn) {
  constexpr uint64_t kGranule = 4096, kRoom = 512;  // granules
  constexpr uint64_t kBegin = uint64_t{0x7f} << 40;
  struct Range {
    uint64_t size, memory;
  };
  std::map<uint64_t, Range> ranges;  // by their first granule
  const auto memory_at = [&](uint64_t granule) {
    const auto after = ranges.upper_bound(granule);
    if (after == ranges.begin()) return uint64_t{0};
    const auto& [begin, range] = *std::prev(after);
    return granule < begin + range.size ? range.memory : 0;
  };
  std::minstd_rand random(7);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t begin = random() % kRoom, size = 1 + random() % 40;
    const auto next = ranges.lower_bound(begin);
    if (const auto known = ranges.find(begin); known != ranges.end()) {
      table_->drop_mappings(kBegin + begin * kGranule, known->second.size * kGranule,
                            table_->serial(), [](const PhysicalTable::Freed&) {});
      ranges.erase(known);
    } else if (memory_at(begin) == 0 && (next == ranges.end() || next->first >= begin + size)) {
      ranges[begin] = {size, make(1)};
      table_->add_mapping(kBegin + begin * kGranule, size * kGranule, ranges[begin].memory);
    }
    const uint64_t asked = random() % (kRoom + 40);
    ASSERT_EQ(table_->memory_at(kBegin + asked * kGranule + random() % kGranule), memory_at(asked))
        << "round " << round;
  }
}

}  // namespace
}  // namespace fracgpu
