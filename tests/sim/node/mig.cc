// Making and taking away MIG instances: see mig.h.
#include "sim/node/mig.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "sim/node/capabilities.h"

namespace sim {
namespace {

struct Taken {
  uint32_t memory = 0;  // bits: memory slices
  uint32_t slices = 0, instances = 0, ofas = 0;
};

uint32_t bits(uint32_t start, uint32_t size) {
  return ((1U << size) - 1) << start;
}

Taken taken_of(const Node& node, int gpu, const MigProfile* counted = nullptr) {
  Taken taken;
  for (const int instance : node.mig_instances(gpu)) {
    const DeviceRow& row = node.device(instance);
    const MigProfile& profile = profile_of(node, instance);
    taken.memory |= bits(row.mig_start, row.mig_size);
    taken.slices += profile.slices;
    taken.ofas += profile.ofas;
    taken.instances += &profile == counted ? 1 : 0;
  }
  return taken;
}

uint32_t ofas_of(const MigCard& card) {
  uint32_t most = 0;
  for (const MigProfile& profile : card.profiles) most = std::max(most, profile.ofas);
  return most;
}

// How many instances of the profile fit beside what is taken.
uint32_t fitting(const MigCard& card, const MigProfile& profile, const Taken& taken) {
  uint32_t memory = taken.memory, count = 0;
  for (uint32_t start = 0; start < card.memory; ++start) {
    if ((profile.places >> start & 1) == 0 || (memory & bits(start, profile.size)) != 0) continue;
    memory |= bits(start, profile.size);
    ++count;
  }
  count = std::min(count, (card.slices - taken.slices) / profile.slices);
  if (profile.ofas != 0) count = std::min(count, (ofas_of(card) - taken.ofas) / profile.ofas);
  return std::min(count, profile.instances - std::min(profile.instances, taken.instances));
}

// The start that leaves most room for others; -1 if there is none.
int best_start(const MigCard& card, const MigProfile& profile, const Taken& taken) {
  int best = -1;
  uint32_t most = 0;
  for (uint32_t start = 0; start < card.memory; ++start) {
    if ((profile.places >> start & 1) == 0 || (taken.memory & bits(start, profile.size)) != 0)
      continue;
    Taken then = taken;
    then.memory |= bits(start, profile.size);
    then.instances = 0;
    uint32_t room = 0;
    for (const MigProfile& other : card.profiles) room += fitting(card, other, then);
    if (best >= 0 && room <= most) continue;
    best = static_cast<int>(start);
    most = room;
  }
  return best;
}

uint32_t compute_taken(const DeviceRow& row) {
  uint32_t taken = 0;
  for (const ComputeInstance& made : row.compute) {
    if (made.serial.load() != 0) taken |= bits(made.start, made.slices);
  }
  return taken;
}

bool used_by_a_process(Node& node, uint64_t serial) {
  node.reap();
  return std::ranges::any_of(node.file()->process, [serial](const ProcessRow& row) {
    return in_use(row) && row.mig_device.load() == serial;
  });
}

// Different each time, as those that drivers give.
void new_uuid(unsigned char* uuid, uint64_t identity, uint64_t serial) {
  uint64_t hash = 0xcbf29ce484222325ULL ^ identity;
  for (int i = 0; i < 32; ++i) {
    hash = (hash ^ (serial >> (8 * (i % 8)) & 0xff)) * 0x100000001b3ULL;
    uuid[i % 16] = static_cast<unsigned char>(hash >> 32);
  }
  uuid[6] = static_cast<unsigned char>((uuid[6] & 0x0f) | 0x40);
  uuid[8] = static_cast<unsigned char>((uuid[8] & 0x3f) | 0x80);
}

}  // namespace

MigLock::MigLock(Node& node)
    : descriptor_(node.path()), held_(descriptor_.fd() >= 0 && descriptor_.lock(kMigLock, true)) {}

const MigCard* card_of(const Node& node, int gpu) {
  return mig_card(node.device(gpu).mig_card);
}

bool mig_is_on(const Node& node, int gpu) {
  return node.device(gpu).mig_mode.load(std::memory_order_acquire) != 0;
}

const MigProfile& profile_of(const Node& node, int instance) {
  const MigCard& card = *card_of(node, node.mig_parent(instance));
  return card.profiles[node.device(instance).mig_profile];
}

std::vector<MigDevice> compute_instances(const Node& node, int instance) {
  const DeviceRow& row = node.device(instance);
  std::vector<MigDevice> found;
  for (int i = 0; i < kMaxComputeInstances; ++i) {
    const uint64_t serial = row.compute[i].serial.load(std::memory_order_acquire);
    if (serial != 0) found.push_back({instance, i, serial});
  }
  std::ranges::sort(found, {},
                    [&row](const MigDevice& made) { return row.compute[made.compute].id; });
  return found;
}

std::vector<MigDevice> mig_devices(const Node& node, int gpu) {
  std::vector<MigDevice> all;
  for (const int instance : node.mig_instances(gpu)) {
    const std::vector<MigDevice> some = compute_instances(node, instance);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

const ComputeInstance& compute_instance(const Node& node, const MigDevice& device) {
  return node.device(device.dev).compute[device.compute];
}

bool is_there(const Node& node, const MigDevice& device) {
  return compute_instance(node, device).serial.load(std::memory_order_acquire) == device.serial;
}

std::string uuid_text(const char* prefix, const unsigned char* u) {
  char text[64];
  std::snprintf(text, sizeof text,
                "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix,
                u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12],
                u[13], u[14], u[15]);
  return text;
}

std::string mig_uuid(const Node& node, const MigDevice& device) {
  return uuid_text("MIG", compute_instance(node, device).uuid);
}

std::string mig_name(const Node& node, const MigDevice& device) {
  const MigProfile& profile = profile_of(node, device.dev);
  const uint32_t slices = compute_instance(node, device).slices;
  std::string name = node.device(node.mig_parent(device.dev)).name;
  name += " MIG ";
  if (slices != profile.slices) name += std::to_string(slices) + "c.";
  return name + profile.name;
}

uint32_t mig_multiprocessors(const Node& node, const MigDevice& device) {
  const MigProfile& profile = profile_of(node, device.dev);
  const uint32_t slices = compute_instance(node, device).slices;
  return slices == profile.slices
             ? profile.multiprocessors
             : slices * card_of(node, node.mig_parent(device.dev))->multiprocessors_per_slice();
}

uint32_t room_for(const Node& node, int gpu, const MigProfile& profile) {
  return fitting(*card_of(node, gpu), profile, taken_of(node, gpu, &profile));
}

uint32_t room_for_compute(const Node& node, int instance, uint32_t slices) {
  uint32_t taken = compute_taken(node.device(instance)), count = 0;
  const uint32_t places = compute_places(profile_of(node, instance).slices, slices);
  for (uint32_t start = 0; places >> start != 0; ++start) {
    if ((places >> start & 1) == 0 || (taken & bits(start, slices)) != 0) continue;
    taken |= bits(start, slices);
    ++count;
  }
  return count;
}

void put_gpu_instance(NodeFile* file, int gpu, int number, const MigProfile& profile,
                      uint32_t start) {
  DeviceRow& row = file->device[number];
  const MigCard& card = *mig_card(file->device[gpu].mig_card);
  const std::string name = file->device[gpu].name + std::string(" MIG ") + profile.name;
  std::snprintf(row.name, sizeof row.name, "%.95s", name.c_str());
  row.total = row.nvml_total = uint64_t{profile.memory_mib} << 20;
  row.multiprocessors = profile.multiprocessors;
  row.mig_profile = static_cast<uint32_t>(&profile - card.profiles.data());
  row.mig_start = start;
  row.mig_size = profile.size;
  row.gpu_instance = gpu_instance_id(card, start, profile.size);
  // Nobody has used it: the marks of the one before it are none of its own.
  for (TenantRow& tenant : file->tenant) {
    tenant.device[number].tally.store({});
    tenant.device[number].high_water.store(0);
  }
  row.mig_serial.store(file->header.serial.fetch_add(1) + 1, std::memory_order_release);
}

void put_compute_instance(NodeFile* file, int row, int place, uint32_t slices, uint32_t start) {
  ComputeInstance& made = file->device[row].compute[place];
  const uint64_t serial = file->header.serial.fetch_add(1) + 1;
  made.id = static_cast<uint32_t>(place);
  made.start = start;
  made.slices = slices;
  new_uuid(made.uuid, file->header.identity, serial);
  made.serial.store(serial, std::memory_order_release);
}

MigResult make_gpu_instance(Node& node, int gpu, const MigProfile& profile, int start, int* made) {
  const MigLock lock(node);
  if (!lock.held() || !mig_is_on(node, gpu)) return MigResult::kOff;
  const MigCard& card = *card_of(node, gpu);
  const Taken taken = taken_of(node, gpu, &profile);
  if (fitting(card, profile, taken) == 0) return MigResult::kNoRoom;
  if (start < 0) start = best_start(card, profile, taken);
  if (start < 0 || (taken.memory & bits(static_cast<uint32_t>(start), profile.size)) != 0)
    return MigResult::kNoRoom;
  int row = 0;
  while (row < node.device_count() && (node.mig_parent(row) != gpu || node.is_there(row))) ++row;
  if (row == node.device_count()) return MigResult::kNoRoom;
  put_gpu_instance(node.file(), gpu, row, profile, static_cast<uint32_t>(start));
  show_capabilities(node, gpu);
  *made = row;
  return MigResult::kDone;
}

MigResult make_compute_instance(Node& node, int instance, uint64_t serial, uint32_t slices,
                                int start, MigDevice* made) {
  const MigLock lock(node);
  const DeviceRow& row = node.device(instance);
  if (!lock.held() || row.mig_serial.load() != serial) return MigResult::kGone;
  const uint32_t places = compute_places(profile_of(node, instance).slices, slices);
  const uint32_t taken = compute_taken(row);
  for (uint32_t at = 0; places >> at != 0; ++at) {
    if ((start >= 0 && at != static_cast<uint32_t>(start)) || (places >> at & 1) == 0 ||
        (taken & bits(at, slices)) != 0)
      continue;
    int place = 0;
    while (row.compute[place].serial.load() != 0) ++place;
    put_compute_instance(node.file(), instance, place, slices, at);
    *made = {instance, place, row.compute[place].serial.load()};
    show_capabilities(node, node.mig_parent(instance));
    return MigResult::kDone;
  }
  return MigResult::kNoRoom;
}

MigResult destroy_gpu_instance(Node& node, int instance, uint64_t serial) {
  const MigLock lock(node);
  DeviceRow& row = node.file()->device[instance];
  if (!lock.held() || row.mig_serial.load() != serial) return MigResult::kGone;
  if (compute_taken(row) != 0 || node.used(instance) != 0) return MigResult::kInUse;
  row.mig_serial.store(0, std::memory_order_release);
  show_capabilities(node, node.mig_parent(instance));
  return MigResult::kDone;
}

MigResult destroy_compute_instance(Node& node, const MigDevice& device) {
  const MigLock lock(node);
  if (!lock.held() || !is_there(node, device)) return MigResult::kGone;
  if (used_by_a_process(node, device.serial)) return MigResult::kInUse;
  node.file()->device[device.dev].compute[device.compute].serial.store(0,
                                                                       std::memory_order_release);
  show_capabilities(node, node.mig_parent(device.dev));
  return MigResult::kDone;
}

MigResult set_mig_mode(Node& node, int gpu, bool on) {
  const MigLock lock(node);
  if (!lock.held()) return MigResult::kInUse;
  DeviceRow& row = node.file()->device[gpu];
  row.mig_mode_pending.store(on ? 1 : 0);
  if (mig_is_on(node, gpu) != on && (!node.mig_instances(gpu).empty() || node.used(gpu) != 0))
    return MigResult::kInUse;
  row.mig_mode.store(on ? 1 : 0, std::memory_order_release);
  return MigResult::kDone;
}

}  // namespace sim
