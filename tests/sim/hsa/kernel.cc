// The runtime's ioctls and the driver's answers; see kernel.h. The structures are those of the
// kernel's public header linux/kfd_ioctl.h, which needs those of libdrm.
#include "sim/hsa/kernel.h"

#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <map>

namespace sim {
namespace {

struct CreateQueue {
  uint64_t addresses_and_doorbell[4];
  uint32_t ring_size;
  uint32_t gpu_id;
  uint32_t type, percentage, priority;
  uint32_t queue_id;
  uint64_t end_of_pipe, end_of_pipe_size;
  uint64_t save_area;
  uint32_t save_area_size;
  uint32_t control_stack_size;
};
struct DestroyQueue {
  uint32_t queue_id;
  uint32_t pad;
};
struct AllocateMemory {
  uint64_t address;
  uint64_t size;
  uint64_t handle;
  uint64_t mmap_offset;
  uint32_t gpu_id;
  uint32_t flags;
};
struct FreeMemory {
  uint64_t handle;
};
struct SetRange {
  uint64_t start;
  uint64_t size;
  uint32_t operation;
  uint32_t count;
  struct {
    uint32_t type;
    uint32_t value;
  } attributes[3];
};
struct AvailableMemory {
  uint64_t bytes;
  uint32_t gpu_id;
  uint32_t pad;
};
static_assert(sizeof(CreateQueue) == 88 && sizeof(AllocateMemory) == 40);

constexpr unsigned long kCreateQueue = _IOWR('K', 0x02, CreateQueue),
                        kDestroyQueue = _IOWR('K', 0x03, DestroyQueue),
                        kAllocate = _IOWR('K', 0x16, AllocateMemory),
                        kFree = _IOW('K', 0x17, FreeMemory), kSetRange = _IOWR('K', 0x20, SetRange),
                        kAvailable = _IOWR('K', 0x23, AvailableMemory);
constexpr uint32_t kDeviceMemory = 1, kWritable = 1u << 31;  // KFD_IOC_ALLOC_MEM_FLAGS_…
constexpr uint32_t kPreferredPlace = 0, kPrefetchTo = 1, kSetFlags = 5;  // KFD_IOCTL_SVM_ATTR_…
constexpr uint32_t kHostMemory = 0;       // KFD_IOCTL_SVM_LOCATION_SYSMEM
constexpr uint32_t kAlwaysMapped = 0x40;  // KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED

// A request that is accounted for by the runtime: an address that no memory has.
constexpr uint64_t kAccountedFor = 1;

struct PlaceSaveArea {
  SetRange range;
  KernelHandle on_device;  // beyond what the driver reads: the answer
};

struct Buffer {
  int device = -1;
  uint64_t bytes = 0;
};
std::map<KernelHandle, Buffer>& buffers() {
  static auto* const list = new std::map<KernelHandle, Buffer>;
  return *list;
}

int device_of(uint32_t gpu_id) {
  Node& node = Runtime::get().account().node();
  for (const int device : node.devices(Vendor::kAmd)) {
    if (node.device(device).kfd_gpu_id == gpu_id) return device;
  }
  return -1;
}

// As KFD's are: they hold the device's number, and are used again.
KernelHandle enter(uint32_t gpu_id, const Buffer& buffer) {
  KernelHandle handle = uint64_t{gpu_id} << 32 | 1;
  while (buffers().contains(handle)) ++handle;
  buffers()[handle] = buffer;
  return handle;
}

bool take(int device, uint64_t bytes) {
  return device >= 0 && Runtime::get().account().reserve(device, bytes, Kind::kModule);
}

int answer_to(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// The driver's side.
int answer(unsigned long request, void* argument) {
  switch (_IOC_NR(request)) {
    case _IOC_NR(kAllocate): {
      auto& args = *static_cast<AllocateMemory*>(argument);
      if (args.address == kAccountedFor) return 0;
      const int device = device_of(args.gpu_id);
      if (!take(device, args.size)) return answer_to(ENOMEM);
      args.handle = enter(args.gpu_id, {device, args.size});
      return 0;
    }
    case _IOC_NR(kFree): {
      const auto& args = *static_cast<FreeMemory*>(argument);
      const auto found = buffers().find(args.handle);
      if (found == buffers().end()) return 0;
      Runtime::get().account().release(found->second.device, found->second.bytes, Kind::kModule);
      buffers().erase(found);
      return 0;
    }
    case _IOC_NR(kSetRange): {
      auto& area = *static_cast<PlaceSaveArea*>(argument);
      const uint32_t gpu_id = area.range.attributes[0].value;
      if (gpu_id == kHostMemory) return 0;
      const int device = device_of(gpu_id);
      if (take(device, area.range.size)) area.on_device = enter(gpu_id, {device, area.range.size});
      return 0;
    }
    case _IOC_NR(kAvailable): {
      auto& args = *static_cast<AvailableMemory*>(argument);
      Node& node = Runtime::get().account().node();
      const int device = device_of(args.gpu_id);
      args.bytes = node.device(device).total - node.used(device);
      return 0;
    }
    case _IOC_NR(kCreateQueue):
    case _IOC_NR(kDestroyQueue):
      return 0;
    default:
      return answer_to(ENOTTY);
  }
}

int ask(unsigned long request, void* argument) {
  // Where the driver's files are shown, its ioctls are too.
  using Register = void (*)(int (*)(unsigned long, void*));
  static const auto register_driver =
      reinterpret_cast<Register>(dlsym(RTLD_DEFAULT, "sim_answer_kfd"));
  if (register_driver == nullptr) return answer(request, argument);
  register_driver(answer);
  constexpr int kDriver = -1;
  return ioctl(kDriver, request, argument);
}

}  // namespace

KernelHandle take_from_device(const Agent& agent, uint64_t bytes) {
  if (!agent.gpu()) return 0;
  AllocateMemory args = {};
  args.size = bytes;
  args.gpu_id = Runtime::get().row(agent).kfd_gpu_id;
  args.flags = kDeviceMemory | kWritable;
  return ask(kAllocate, &args) == 0 ? args.handle : 0;
}

void return_to_device(KernelHandle memory) {
  if (memory == 0) return;
  FreeMemory args = {memory};
  ask(kFree, &args);
}

bool may_take(int device) {
  if (device < 0) return true;
  AllocateMemory args = {};
  args.address = kAccountedFor;
  args.gpu_id = Runtime::get().account().node().device(device).kfd_gpu_id;
  args.flags = kDeviceMemory;
  return ask(kAllocate, &args) == 0;
}

void has_returned(int device) {
  if (device < 0) return;
  FreeMemory args = {kAccountedFor};
  ask(kFree, &args);
}

SaveArea map_save_area(const Agent& agent, uint64_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return {};
  const uint32_t gpu_id = Runtime::get().row(agent).kfd_gpu_id;
  PlaceSaveArea area = {
      {reinterpret_cast<uint64_t>(address),
       bytes,
       0,
       3,
       {{kPrefetchTo, gpu_id}, {kPreferredPlace, kHostMemory}, {kSetFlags, kAlwaysMapped}}},
      0};
  ask(kSetRange, &area);
  return {address, bytes, area.on_device};
}

void unmap_save_area(const SaveArea& area) {
  const auto found = buffers().find(area.on_device);
  if (found != buffers().end()) {
    Runtime::get().account().release(found->second.device, found->second.bytes, Kind::kModule);
    buffers().erase(found);
  }
  if (area.address != nullptr) munmap(area.address, area.bytes);
}

uint32_t connect_queue(const Agent& agent, const SaveArea& save_area) {
  static uint32_t next = 0;
  CreateQueue args = {};
  args.gpu_id = Runtime::get().row(agent).kfd_gpu_id;
  args.queue_id = next++;
  args.save_area = reinterpret_cast<uint64_t>(save_area.address);
  ask(kCreateQueue, &args);
  return args.queue_id;
}

void disconnect_queue(uint32_t queue) {
  DestroyQueue args = {queue, 0};
  ask(kDestroyQueue, &args);
}

uint64_t available_memory(const Agent& agent) {
  AvailableMemory args = {};
  args.gpu_id = Runtime::get().row(agent).kfd_gpu_id;
  return ask(kAvailable, &args) == 0 ? args.bytes : 0;
}

}  // namespace sim
