// Whose memory an import is, with several tenants in one process.
#include "shim/sharing/imports.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "shim/sharing/descriptor_mark.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

constexpr char kKey[] = "GPU-test";
constexpr uint64_t kCap = 1 << 20;

// A tenant with one process, which has a device_index of the device.
struct Member {
  Member() {
    Message error;
    EXPECT_TRUE(ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error))
        << error.view();
    device_index = ledger.device(kKey, kCap, kCap, error);
  }
  // What everybody has imported of this tenant's.
  uint64_t imported() const {
    uint64_t units = 0;
    const auto& cells = ledger.map()->cells[device_index];
    layout::for_each_live(*ledger.map(), [&](uint32_t slot) {
      units += layout::imported_of(cells[slot].exported_and_imported.load());
    });
    return units;
  }
  bool has_imported(uint32_t number) const {
    bool any = false;
    layout::for_each_live(*ledger.map(), [&](uint32_t slot) {
      any = any || layout::has_imported(ledger.map()->slots[slot], number);
    });
    return any;
  }
  int foreign_importers() const {
    int number = 0;
    layout::for_each_live(*ledger.map(), [&](uint32_t slot) {
      number += ledger.map()->slots[slot].foreign_importer != 0 ? 1 : 0;
    });
    return number;
  }
  std::string hand_out(const std::string& handle) {
    ledger.note_handle(layout::hash_of_handle(handle.data(), handle.size()));
    return handle;
  }

  ScratchTenant tenant;
  Ledger ledger;
  int device_index = -1;
};

class ImportsTest : public testing::Test {
 protected:
  uint8_t exporter_of(const std::string& handle) {
    uint64_t units = 0;
    const ImportSource source =
        imports_.begin_call(own_.ledger, handle.data(), handle.size(), units);
    imports_.end_call(own_.ledger, source, true);
    return source.exporter;
  }
  void add(uint8_t exporter, uint64_t units) {
    imports_.add(own_.ledger, {.exporter = exporter}, own_.device_index, units);
  }
  void leave(uint8_t exporter, uint64_t units) {
    imports_.leave(own_.ledger, {.exporter = exporter}, own_.device_index, units);
  }

  Member own_;
  Imports imports_;
};

TEST_F(ImportsTest, OfTheOwnTenantAndOfNobodyKnown) {
  EXPECT_EQ(exporter_of(own_.hand_out("own")), Imports::kOwn);
  EXPECT_EQ(exporter_of("nobody's"), Imports::kUnknown);
  add(Imports::kOwn, 5);
  EXPECT_EQ(own_.imported(), 5u);
  leave(Imports::kOwn, 5);
  EXPECT_EQ(own_.imported(), 0u);
}

TEST_F(ImportsTest, AForeignImporterAsLongAsAnythingIsImported) {
  Member other;
  const uint8_t first = exporter_of(other.hand_out("one"));
  ASSERT_GT(first, Imports::kOwn);
  EXPECT_EQ(other.foreign_importers(), 1);
  EXPECT_EQ(exporter_of(other.hand_out("two")), first);
  EXPECT_EQ(other.foreign_importers(), 1) << "one slot is enough";
  add(first, 30);
  EXPECT_EQ(other.imported(), 30u);
  EXPECT_EQ(own_.imported(), 0u);
  leave(first, 30);
  EXPECT_EQ(other.imported(), 0u);
  EXPECT_EQ(other.foreign_importers(), 1);
  leave(first, 0);
  EXPECT_TRUE(other.ledger.reap_dead());
  EXPECT_EQ(other.foreign_importers(), 0);
}

TEST_F(ImportsTest, ADescriptorTellsWhoseItIsAndHowMuch) {
  Member other;
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  uint64_t units = 9;
  EXPECT_EQ(imports_.begin_call(own_.ledger, fd, units).exporter, Imports::kUnknown)
      << "it has no mark";
  EXPECT_EQ(units, 0u);
  mark_descriptor(fd, {.tenant = layout::mark_of(other.ledger.map()->header), .units = 77});
  const uint8_t exporter = imports_.begin_call(own_.ledger, fd, units).exporter;
  EXPECT_GT(exporter, Imports::kOwn);
  EXPECT_EQ(units, 77u);
  EXPECT_EQ(other.foreign_importers(), 1);
  leave(exporter, 0);
  close(fd);
}

// Memory of a listed export is imported as long as any import of it is left, by whatever it was
// imported.
TEST_F(ImportsTest, OfAListedExport) {
  Member other;
  for (Member* const exporter : {&own_, &other}) {
    Refusal refusal;
    ASSERT_TRUE(exporter->ledger.reserve(exporter->device_index, 700, refusal));
    const uint32_t number = exporter->ledger.list_export(exporter->device_index, 700);
    ASSERT_NE(number, 0u);
    const std::string handle = exporter == &own_ ? "own" : "other";
    exporter->ledger.note_handle(layout::hash_of_handle(handle.data(), handle.size()), number);
    const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    // Another process of the tenant: the own exports are no imports.
    const uint32_t mark = exporter->ledger.mark_of_self() ^ (exporter == &own_ ? 1 : 0);
    mark_descriptor(fd, {.tenant = layout::mark_of(exporter->ledger.map()->header),
                         .exporter = mark,
                         .number = number});
    const auto import = [&](auto... how) {
      uint64_t units = 0;
      const ImportSource source = imports_.begin_call(own_.ledger, how..., units);
      if (source.number != 0) {
        EXPECT_EQ(units, 700u);
        imports_.keep(own_.ledger, source);
        imports_.add(own_.ledger, source, own_.device_index, units);
      }
      imports_.end_call(own_.ledger, source, source.number != 0);
      return source;
    };
    const ImportSource by_handle = import(handle.data(), handle.size());
    EXPECT_EQ(by_handle.number, number);
    EXPECT_TRUE(exporter->has_imported(number));
    EXPECT_EQ(exporter->imported(), 0u) << "its units are known";
    EXPECT_EQ(imports_.imported(own_.device_index), 700u);
    const ImportSource by_descriptor = import(fd);
    EXPECT_EQ(by_descriptor.number, exporter == &own_ ? 0 : number) << "of a process that is gone";
    imports_.leave(own_.ledger, by_handle, own_.device_index, 700);
    EXPECT_EQ(exporter->has_imported(number), exporter == &other);
    if (by_descriptor.number != 0)
      imports_.leave(own_.ledger, by_descriptor, own_.device_index, 700);
    EXPECT_FALSE(exporter->has_imported(number));
    EXPECT_EQ(imports_.imported(own_.device_index), 0u);
    close(fd);
    ASSERT_TRUE(exporter->ledger.free_exported(exporter->device_index, 700, number));
    EXPECT_EQ(import(handle.data(), handle.size()).number, 0);
  }
}

// What a process imports of its own is nobody else's to keep charged.
TEST_F(ImportsTest, OfThisProcessItself) {
  own_.hand_out("mine");
  imports_.note_own_handle(layout::hash_of_handle("mine", 4));
  EXPECT_EQ(exporter_of("mine"), Imports::kSelf);
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  const uint32_t tenant = layout::mark_of(own_.ledger.map()->header);
  mark_descriptor(fd, {.tenant = tenant, .exporter = own_.ledger.mark_of_self(), .units = 77});
  uint64_t units = 0;
  const ImportSource source = imports_.begin_call(own_.ledger, fd, units);
  EXPECT_EQ(source.exporter, Imports::kSelf);
  EXPECT_EQ(units, 77u);
  imports_.end_call(own_.ledger, source, false);
  close(fd);
  add(Imports::kSelf, 5);
  EXPECT_EQ(own_.imported(), 5u) << "it may be orphaned already";
  EXPECT_EQ(own_.ledger.imported_by_others(own_.device_index), 0u);
  EXPECT_EQ(imports_.imported(own_.device_index), 0u);
  EXPECT_EQ(imports_.imported_of_self(own_.device_index), 5u);
  leave(Imports::kSelf, 5);
  EXPECT_EQ(imports_.imported_of_self(own_.device_index), 0u);
}

TEST_F(ImportsTest, WhatLooksLikeALedgerIsNoTrap) {
  Member other;
  other.hand_out("one");
  const ScratchTenant cut, folder, pipe, link;
  close(open(cut.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  EXPECT_EQ(mkdir(folder.path().c_str(), 0777), 0);
  EXPECT_EQ(mkfifo(pipe.path().c_str(), 0666), 0);
  EXPECT_EQ(symlink("/dev/zero", link.path().c_str()), 0);
  const uint8_t exporter = exporter_of("one");
  EXPECT_GT(exporter, Imports::kOwn);
  leave(exporter, 0);
  ASSERT_EQ(truncate(other.tenant.path().c_str(), 4096), 0);
  EXPECT_EQ(exporter_of("one"), Imports::kUnknown);
}

TEST_F(ImportsTest, OfMoreTenantsThanItKeeps) {
  std::vector<std::unique_ptr<Member>> others;
  std::vector<uint8_t> exporters;
  for (int i = 0; i <= Imports::kMaxForeignTenants; ++i) {
    others.push_back(std::make_unique<Member>());
    exporters.push_back(exporter_of(others.back()->hand_out("of " + std::to_string(i))));
  }
  EXPECT_EQ(exporters.back(), Imports::kUnknown) << "one too many";
  EXPECT_EQ(exporters[Imports::kMaxForeignTenants - 1],
            Imports::kOwn + Imports::kMaxForeignTenants);
  leave(exporters[3], 0);
  EXPECT_EQ(exporter_of("of " + std::to_string(Imports::kMaxForeignTenants)), exporters[3])
      << "there is a place again";
  for (uint8_t number = Imports::kOwn + 1; number <= Imports::kOwn + Imports::kMaxForeignTenants;
       ++number) {
    leave(number, 0);
  }
}

TEST_F(ImportsTest, AHandleIsPushedOutByAsManyNewerOnesAsItsSetHolds) {
  Member other;
  const std::string first = other.hand_out("first");
  const auto set_of = [](const std::string& text) {
    return layout::handle_set(layout::hash_of_handle(text.data(), text.size()));
  };
  int newer = 0;
  std::string last;
  for (int i = 0; newer < static_cast<int>(layout::kHandlesPerSet); ++i) {
    const std::string text = std::to_string(i);
    if (set_of(text) != set_of("first")) continue;
    const uint8_t exporter = exporter_of(first);
    EXPECT_GT(exporter, Imports::kOwn) << "after " << newer;
    EXPECT_LT(exporter, Imports::kUnknown) << "after " << newer;
    leave(exporter, 0);
    last = other.hand_out(text);
    ++newer;
  }
  EXPECT_EQ(exporter_of(first), Imports::kUnknown) << "nobody knows it any more";
  const uint8_t exporter = exporter_of(last);
  EXPECT_GT(exporter, Imports::kOwn);
  leave(exporter, 0);
}

}  // namespace
}  // namespace fracgpu
