// Memory that is made, mapped and bound separately: which use keeps which memory.
#include "shim/tracking/physical_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

namespace fracgpu {
namespace {

class PhysicalTableTest : public testing::Test {
 protected:
  // New memory of `units`, by its number.
  uint64_t make(uint64_t units) {
    const uint64_t handle = ++handles_;
    EXPECT_TRUE(table_->add(handle, units, 0));
    return table_->memory_of(handle);
  }

  uint64_t units() {
    uint64_t units = 0, changes = 0;
    table_->sum(0, units, changes);
    return units;
  }

  const std::unique_ptr<PhysicalTable> table_ = std::make_unique<PhysicalTable>();
  uint64_t handles_ = 0;
};

TEST_F(PhysicalTableTest, BindingsOfEveryDeviceAreToldApart) {
  const uint64_t object = make(0);
  std::map<uint64_t, int> keys;
  for (const int device : {0, 1, 15, 16, 17, 31, 32, 63}) {
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

}  // namespace
}  // namespace fracgpu
