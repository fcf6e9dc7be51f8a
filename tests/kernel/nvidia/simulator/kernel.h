// What the parts of the simulated kernel modules know in common: descriptors, objects, and one lock
// over both.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "driver_headers.h"
#include "engine.h"
#include "memory.h"

namespace rmsim {

enum class Device { kControl, kGpu, kUvm, kUvmTools };

struct Descriptor {
  Device device;
  unsigned minor;
  MemoryPtr mapping;  // what the next mmap maps: NV_ESC_RM_MAP_MEMORY names the descriptor
  uint64_t mapping_offset = 0;
  std::vector<uint32_t> clients;  // freed when it is closed
};

struct Object {
  uint32_t client, handle, parent, object_class;
  MemoryPtr memory;
  Channel* channel = nullptr;
  bool shared = false;
  int gpu = 0;               // of the device that it belongs to
  uint64_t gpu_address = 0;  // of an allocation of addresses without memory
};

extern std::recursive_mutex& kernel_lock;
extern std::map<int, Descriptor>& descriptors;

Object* find_object(uint32_t client, uint32_t handle);
Object* add_object(uint32_t client, uint32_t parent, uint32_t& handle, uint32_t object_class);
void free_object(uint32_t client, uint32_t handle);  // with all that it has
void forget_objects();                               // in a forked child: they are the parent's

// Each returns 0 or an errno. The kernel lock is held.
int rm_ioctl(int fd, uint32_t number, void* argument, uint32_t size);
int uvm_ioctl(uint32_t command, void* argument);
NV_STATUS rm_control(uint32_t client, uint32_t object, uint32_t command, NvP64 parameters,
                     uint32_t size);

// Memory travels between processes in descriptors of /dev/nvidiactl.
struct ExportInfo {
  std::vector<uint8_t> metadata;
  uint16_t objects;
  int gpu;
};
NV_STATUS export_objects(int fd, uint32_t client, const uint32_t* handles, uint32_t count,
                         uint32_t index);
NV_STATUS describe_export(int fd, const uint8_t* metadata, uint32_t size, uint32_t objects);
NV_STATUS import_objects(int fd, uint32_t client, uint32_t parent, uint32_t* handles,
                         uint32_t count, uint32_t index);
NV_STATUS export_info(int fd, ExportInfo& info);

void attach(char** environment);

void add_event_descriptor(int fd);
void remove_event_descriptor(int fd);

// The first GPU is on bus 1, the second on bus 2.
constexpr uint32_t bus_of(int gpu) {
  return static_cast<uint32_t>(gpu) + 1;
}
constexpr uint32_t id_of(int gpu) {
  return bus_of(gpu) << 8;
}
// Negative: there is none with this id.
int gpu_of_id(uint32_t id);
constexpr uint32_t kPciVendor = 0x10de;

// The chip that the driver's release knows: an AD102, and for 470 a GA102. The rest of an AD102 is
// the same for both.
struct Chip {
  uint32_t pci_device, architecture, implementation, sm_version, compute_class, graphics_class;
  const char *name, *short_name;
};
const Chip& chip();

// libcuda's own kernels: see driver_kernels.cc.
void note_allocation(const MemoryPtr& memory, uint64_t asked);

}  // namespace rmsim
