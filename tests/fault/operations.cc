// The operations that are interrupted at each of their instructions, and their circumstances.
//
// The survivor holds kHeld of the cap and a lease a little above it, unless said otherwise.
#include <unistd.h>

#include "tests/fault/world.h"

namespace fracgpu::fault {
namespace {

constexpr uint64_t kHeld = 20000;
constexpr uint64_t kMuchLater_s = UINT64_MAX / 2;  // when nothing of now is remembered any more

void settled(World& world) {
  world.settle(kHeld);
}

// The same, and it has `units` of the tenant's memory imported.
std::function<void(World&)> settled_with_imported(uint64_t units) {
  return [units](World& world) {
    settled(world);
    world.survivor().add_imported(world.device(), units);
  };
}

// The survivor holds kHeld, with a lease over most of the cap.
void settled_with_much_unspent(World& world) {
  world.settle(110000);
  world.survivor().release(world.device(), 110000 - kHeld);
  world.set_holding(kHeld);
}

void two_die(World& world) {
  world.die(2, [](Ledger& ledger, int device) {
    Refusal refusal;
    ledger.reserve(device, 40000, refusal);
  });
}

// A dead process exported 6000 of its units, and the survivor has 4000 of them imported.
void exporter_dies(World& world) {
  world.die(1, [](Ledger& ledger, int device) {
    Refusal refusal;
    ledger.reserve(device, 40000, refusal);
    ledger.add_exported(device, 6000);
  });
}

// The same of a listed export of 4000 units, and one that nobody has imported.
void exporter_of_two_dies(World& world) {
  world.die(1, [](Ledger& ledger, int device) {
    Refusal refusal;
    ledger.reserve(device, 40000, refusal);
    ledger.list_export(device, 4000);
    ledger.list_export(device, 3000);
  });
}

// The survivor has imported the first listed export. Its own mapping is not in this process.
void survivor_imports_the_first(World& world) {
  auto& map = const_cast<layout::Ledger&>(*world.victim().map());
  map.slots[world.survivor().slot()].imports[0].fetch_add(layout::import_bit(1));
}

// Ends the victim's process with a status that tells that something went wrong.
void expect(bool condition) {
  if (!condition) _exit(3);
}

void joined(World& world) {
  expect(world.victim_joins());
}

void reserve(World& world, uint64_t units) {
  Refusal refusal;
  // While the victim stood still the survivor may have taken the room.
  world.victim().reserve(world.device(), units, refusal);
}

void be_refused(World& world) {
  Refusal refusal;
  expect(!world.victim().reserve(world.device(), kCap, refusal));
  world.victim().record(world.device(), kRefusedApi, refusal);
}

void joined_with_1000(World& world) {
  joined(world);
  reserve(world, 1000);
}

void joined_and_gave_all_back(World& world) {
  joined_with_1000(world);
  world.victim().release(world.device(), 1000);
}

void joined_beside_two_dead(World& world) {
  joined(world);
  two_die(world);
}

void charge(World& world, uint64_t units) {
  world.victim().charge_taken(world.device(), units);
}

void set_cap(World& world, uint64_t units) {
  Message error;
  world.victim().set_cap(world.device(), units * layout::kUnit, error);
}

std::vector<Operation> reservations() {
  return {
      {"reserve within the lease", settled, joined_with_1000,
       [](World& world) { reserve(world, 500); }},
      grants().front(),
      {"reserve that takes back unspent leases", settled_with_much_unspent, joined_with_1000,
       [](World& world) { reserve(world, 60000); }},
      {"reserve that is refused", settled, joined_with_1000,
       [](World& world) { reserve(world, kCap); }},
      {"reserve that reaps", settled, joined_beside_two_dead,
       [](World& world) { reserve(world, 70000); }},
      {"reserve that is refused and recorded", settled, joined_with_1000, be_refused},
      {"reserve and keep a part", settled, joined_with_1000,
       [](World& world) {
         reserve(world, 1500);
         world.victim().release(world.device(), 700);
       }},
      {"reserve and roll back", settled, joined_with_1000,
       [](World& world) {
         reserve(world, 1500);
         world.victim().release(world.device(), 1500);
       }},
      {"free", settled, joined_with_1000,
       [](World& world) { world.victim().release(world.device(), 1000); }},
  };
}

std::vector<Operation> charges_and_caps() {
  return {
      {"charge within the lease", settled, joined_with_1000,
       [](World& world) { charge(world, 300); }},
      {"overdraft under the cap", settled, joined_with_1000,
       [](World& world) { charge(world, 30000); }},
      {"overdraft above the cap", settled_with_much_unspent, joined_with_1000,
       [](World& world) { charge(world, kCap); }},
      {"overdraft drains", settled_with_much_unspent,
       [](World& world) {
         joined_with_1000(world);
         charge(world, kCap);
       },
       [](World& world) {
         world.victim().release(world.device(), kCap);
         reserve(world, 5000);
       }},
      {"set overhead", settled, joined_with_1000,
       [](World& world) { world.victim().set_overhead(world.device(), 77); }},
      {"exports and imports", settled, joined_with_1000,
       [](World& world) {
         world.victim().add_exported(world.device(), 600);
         world.victim().add_imported(world.device(), 50);
         world.victim().drop_imported(world.device(), 50);
         world.victim().drop_exported(world.device(), 600);
       }},
      {"free what others have imported", settled_with_imported(600),
       [](World& world) {
         joined_with_1000(world);
         world.victim().add_exported(world.device(), 1000);
       },
       [](World& world) { world.victim().free_exported(world.device(), 900); }, 600},
      {"list an export", settled, joined_with_1000,
       [](World& world) {
         const uint32_t number = world.victim().list_export(world.device(), 600);
         world.victim().note_handle(uint64_t{77} << 11, number);
         world.victim().free_exported(world.device(), 600, number);
       }},
      {"free a listed export that others have imported", settled,
       [](World& world) {
         joined_with_1000(world);
         expect(world.victim().list_export(world.device(), 1000) == 1);
         survivor_imports_the_first(world);
       },
       [](World& world) { world.victim().free_exported(world.device(), 900, 1); }, 1000},
      {"import a listed export", settled, joined,
       [](World& world) {
         world.victim().begin_import();
         world.victim().add_import(1);
         world.victim().end_import();
         world.victim().drop_import(1);
       }},
      {"reap a listed orphan", settled,
       [](World& world) {
         joined(world);
         exporter_of_two_dies(world);
         survivor_imports_the_first(world);
       },
       [](World& world) { world.victim().reap_dead(); }, 4000},
      {"new device", settled, joined,
       [](World& world) {
         Message error;
         world.victim().device("GPU-other", 1 << 20, 1 << 20, error);
       }},
      {"raise the cap", settled_with_much_unspent, joined_with_1000,
       [](World& world) { set_cap(world, kHighCap); }},
      {"lower the cap", settled_with_much_unspent, joined_with_1000,
       [](World& world) { set_cap(world, kLowCap); }},
      {"lower the cap a little", settled_with_much_unspent, joined_with_1000,
       [](World& world) { set_cap(world, kHeld + 2000); }},
  };
}

std::vector<Operation> comings_and_goings() {
  return {
      {"join", settled, {}, joined},
      {"join that makes the file", {}, {}, joined},
      {"join that gives slots memory",
       [](World& world) {
         settled(world);
         world.crowd(layout::kSlotsPerPage - 1);
       },
       {},
       joined},
      {"join that reaps",
       [](World& world) {
         settled(world);
         two_die(world);
       },
       {},
       joined},
      {"join that finds only dead", two_die, {}, joined},
      {"leave", settled, joined_with_1000, [](World& world) { world.leave(); }},
      {"leave for good as the last one",
       {},
       joined_and_gave_all_back,
       [](World& world) { world.victim().leave_for_good(kMuchLater_s); }},
      {"leave for good beside another", settled, joined_and_gave_all_back,
       [](World& world) { world.victim().leave_for_good(kMuchLater_s); }},
      {"leave for good with memory",
       {},
       joined_with_1000,
       [](World& world) { world.victim().leave_for_good(kMuchLater_s); }},
      {"remove what ended",
       two_die,
       {},
       [](World& world) { Ledger::remove_ended(world.name(), nullptr, kMuchLater_s); }},
      {"remove nothing of the living",
       settled,
       {},
       [](World& world) { Ledger::remove_ended(world.name(), nullptr, kMuchLater_s); }},
      {"a foreign importer comes and goes", settled, joined,
       [](World& world) {
         Message error;
         Ledger importer;  // as if the tenant were another one
         expect(importer.join_as_foreign_importer(world.name(), world.victim(), error));
         world.victim().note_handle(77 << 11);
         importer.begin_import();
         importer.add_imported(world.device(), 50);
         importer.end_import();
         importer.drop_imported(world.device(), 50);
         importer.leave();
       }},
      {"reap", settled, joined_beside_two_dead, [](World& world) { world.victim().reap_dead(); }},
      {"reap an orphan", settled_with_imported(4000),
       [](World& world) {
         joined(world);
         exporter_dies(world);
       },
       [](World& world) { world.victim().reap_dead(); }, 4000},
      {"observe",
       settled,
       {},
       [](World& world) {
         Message error;
         world.victim().observe(world.name(), error);
         world.victim().held(world.device(), true);
       }},
  };
}

}  // namespace

std::vector<Operation> grants() {
  return {{"reserve that grows the lease", settled, joined_with_1000,
           [](World& world) { reserve(world, kGranted - 1000); }}};
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = [] {
    std::vector<Operation> list;
    for (const auto& part : {reservations(), charges_and_caps(), comings_and_goings()}) {
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

}  // namespace fracgpu::fault
