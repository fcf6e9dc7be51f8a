// GPU instances and compute instances of the simulated node, as they come and go. Who changes them
// holds the MIG lock, a file lock that the kernel drops with its owner, and each one appears or
// goes with one store: a process that is killed half-way leaves it there or not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/node/mig_profiles.h"
#include "sim/node/reap.h"

namespace sim {

// Held by whoever makes, takes away or begins to use an instance.
class MigLock {
 public:
  explicit MigLock(Node& node);
  bool held() const { return held_; }

 private:
  NodeDescriptor descriptor_;
  bool held_;
};

enum class MigResult { kDone, kOff, kNoRoom, kInUse, kGone };

// A compute instance: its GPU instance's row, its place there, and what tells it from another one
// that comes later.
struct MigDevice {
  int dev = -1;
  int compute = -1;
  uint64_t serial = 0;
};

const MigCard* card_of(const Node& node, int gpu);  // null: it cannot be divided
bool mig_is_on(const Node& node, int gpu);
const MigProfile& profile_of(const Node& node, int instance);

// What there is, by ids.
std::vector<MigDevice> compute_instances(const Node& node, int instance);
std::vector<MigDevice> mig_devices(const Node& node, int gpu);
bool is_there(const Node& node, const MigDevice& device);
const ComputeInstance& compute_instance(const Node& node, const MigDevice& device);

std::string uuid_text(const char* prefix, const unsigned char* uuid);
std::string mig_uuid(const Node& node, const MigDevice& device);
// "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", without "1c." where it has all of its GPU instance.
std::string mig_name(const Node& node, const MigDevice& device);
uint32_t mig_multiprocessors(const Node& node, const MigDevice& device);

// How many more there is room for. Of a GPU, or of a GPU instance.
uint32_t room_for(const Node& node, int gpu, const MigProfile& profile);
uint32_t room_for_compute(const Node& node, int instance, uint32_t slices);

// `start` < 0: where it leaves most room for others, and of such places the first.
MigResult make_gpu_instance(Node& node, int gpu, const MigProfile& profile, int start, int* made);
MigResult make_compute_instance(Node& node, int instance, uint64_t serial, uint32_t slices,
                                int start, MigDevice* made);
MigResult destroy_gpu_instance(Node& node, int instance, uint64_t serial);
MigResult destroy_compute_instance(Node& node, const MigDevice& device);
// kInUse: it is remembered as pending.
MigResult set_mig_mode(Node& node, int gpu, bool on);

// While a node is made: nobody else sees it.
void put_gpu_instance(NodeFile* file, int gpu, int row, const MigProfile& profile, uint32_t start);
void put_compute_instance(NodeFile* file, int row, int place, uint32_t slices, uint32_t start);

}  // namespace sim
