// NVIDIA's resource manager (RM) as its user-space libraries see it: ioctls and their structures.
//
// They are RM's public interface. tests/abi compares them with the headers of NVIDIA's open kernel
// modules 535.261.03 and 555.58.02. By gVisor's list of the changes (nvproxy), the fields that are
// read here have not moved up to driver 595.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fracgpu::cuda::rm {

// NV_IOCTL_MAGIC, and NV_ESC_RM_ALLOC_MEMORY, _FREE, _CONTROL, _ALLOC and _VID_HEAP_CONTROL.
inline constexpr uint8_t kType = 'F';
inline constexpr uint8_t kAllocateMemory = 0x27, kFree = 0x29, kControl = 0x2a, kAllocate = 0x2b,
                         kHeapControl = 0x4a;
inline constexpr uint32_t kNoMemory = 0x51;  // NV_ERR_NO_MEMORY

// NV01_DEVICE_0, NV20_SUBDEVICE_0, NV01_MEMORY_LOCAL_USER
inline constexpr uint32_t kDevice = 0x80, kSubdevice = 0x2080, kDeviceMemory = 0x40;
inline constexpr uint32_t kAllocateSize = 2, kFreeMemory = 3;  // NVOS32_FUNCTION_ALLOC_SIZE, _FREE
inline constexpr uint32_t kAddressesAlone = 0x80000;           // NVOS32_ALLOC_FLAGS_VIRTUAL
inline constexpr uint32_t kLocation = 0x3 << 25;  // NVOS32_ATTR_LOCATION; 0: in device memory

// The request of an ioctl that reads and writes its argument.
constexpr unsigned long request_of(uint8_t escape, size_t bytes) {
  constexpr unsigned long kReadWrite = 3ul << 30;
  return kReadWrite | bytes << 16 | kType << 8 | escape;
}
constexpr bool is_rms(unsigned long request) {
  return (request >> 8 & 0xff) == kType;
}
constexpr size_t size_of(unsigned long request) {
  return request >> 16 & 0x3fff;
}

// In bytes: what RM takes for so much device memory. NVOS32_ATTR_PAGE_SIZE asks for pages of 4 KiB
// (1), 64 KiB (2) or 2 MiB (3). 0 leaves the size to RM. For 0 this follows the simulated RM: pages
// of 2 MiB for memory of at least 2 MiB. RM's answer contains the size that it has taken.
constexpr uint64_t size_in_pages(uint64_t bytes, uint32_t attributes) {
  constexpr uint64_t kSmall = 4 << 10, kBig = 64 << 10, kHuge = 2 << 20;
  const uint64_t pages[] = {bytes >= kHuge ? kHuge : kBig, kSmall, kBig, kHuge};
  const uint64_t page = pages[attributes >> 23 & 3];
  return bytes > ~uint64_t{0} - page ? bytes : (bytes + page - 1) / page * page;
}

// NVOS00_PARAMETERS
struct Free {
  uint32_t client;
  uint32_t parent;
  uint32_t object;
  uint32_t status;  // written
};

// NVOS64_PARAMETERS. NVOS21_PARAMETERS is the same up to `parameters`. Before 535,
// NVOS64_PARAMETERS has no `parameters_size` and `pad` (gVisor's nvproxy). No driver has confirmed
// that for memory: libcuda 470 and 535 request memory by NVOS32_PARAMETERS, and 550 by the newer
// form.
struct Allocate {
  uint32_t client;
  uint32_t parent;
  uint32_t object;  // written if 0
  uint32_t object_class;
  uint64_t parameters;
  uint64_t rights;
  uint32_t parameters_size;
  uint32_t flags;
  uint32_t status;  // written
  uint32_t pad;
};
// NVOS64_FLAGS_FINN_SERIALIZED and NVOS54_FLAGS_FINN_SERIALIZED: the parameters have another form.
inline constexpr uint32_t kIsSerialized = 1 << 0, kControlIsSerialized = 1 << 2;
// The offset of the status, by the size of the structure; 0: not known.
constexpr size_t status_offset(size_t size) {
  constexpr size_t kBefore535 = 40, kNvos21 = 32;
  switch (size) {
    case sizeof(Allocate):
      return offsetof(Allocate, status);
    case kBefore535:
      return 36;
    case kNvos21:
      return 28;
    default:
      return 0;
  }
}

// NV_MEMORY_ALLOCATION_PARAMS, as far as needed.
struct MemoryParameters {
  uint32_t owner, type, flags, width, height, pitch, attributes, attributes2;
  uint32_t format, compression, zcull, pad;
  uint64_t range_low, range_high;
  uint64_t size;
};

// NVOS32_PARAMETERS with NVOS32_FUNCTION_ALLOC_SIZE, as far as needed. With NVOS32_FUNCTION_FREE,
// it is the same up to `object`.
struct HeapControl {
  uint32_t client;
  uint32_t parent;
  uint32_t function;
  uint32_t address_space;
  uint32_t heap;
  uint32_t status;  // written
  uint64_t total, free;
  uint32_t owner;
  uint32_t object;  // written if 0
  uint32_t type, flags, attributes, format, compression, zcull, stride, width, height, pad;
  uint64_t size;
};

// NVOS02_PARAMETERS: with kDeviceMemory, it only asks for the device's last address.
struct AllocateMemory {
  uint32_t client;
  uint32_t parent;
  uint32_t object;
  uint32_t object_class;
  uint32_t flags;
  uint32_t pad;
  uint64_t address;
  uint64_t limit;   // written
  uint32_t status;  // written
};

// NVOS54_PARAMETERS
struct Control {
  uint32_t client;
  uint32_t object;
  uint32_t command;
  uint32_t flags;
  uint64_t parameters;
  uint32_t parameters_size;
  uint32_t status;  // written
};

// NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, _GET_ID_INFO_V2 and _GET_UUID_FROM_GPU_ID, asked of the
// client.
struct AttachedGpus {
  static constexpr uint32_t kCommand = 0x201, kNone = 0xffffffff;
  uint32_t ids[32];
};
struct GpuInfo {
  static constexpr uint32_t kCommand = 0x205;
  uint32_t id;
  uint32_t flags, device_instance, subdevice_instance, sli_status, board, instance;
  int32_t numa;
};
struct GpuUuid {
  static constexpr uint32_t kCommand = 0x275;
  uint32_t id;
  uint32_t format;  // 0: "GPU-" and the digits
  char text[256];
  uint32_t length;
};

// NV2080_CTRL_CMD_FB_GET_INFO and _V2, asked of a subdevice.
inline constexpr uint32_t kFbInfo = 0x20801301, kFbInfo2 = 0x20801303;
struct FbEntry {
  uint32_t index;
  uint32_t kib;  // written
};
struct FbInfo {
  uint32_t count;
  uint32_t pad;
  uint64_t entries;  // address of FbEntry[count]
};
struct FbInfo2 {
  uint32_t count;
  FbEntry entries[];
};
// NV2080_CTRL_FB_INFO_INDEX_: _RAM_SIZE, _TOTAL_RAM_SIZE, _HEAP_SIZE, _MAPPABLE_HEAP_SIZE and
// _USABLE_RAM_SIZE; _LARGEST_FREE_REGION_SIZE_KB and _HEAP_FREE.
constexpr bool is_size(uint32_t index) {
  return (index >= 0x07 && index <= 0x0a) || index == 0x20;
}
constexpr bool is_free(uint32_t index) {
  return index == 0x12 || index == 0x16;
}

// NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD and _IMPORT_OBJECT_FROM_FD, asked of the client.
struct ExportedObject {
  uint32_t type;
  uint32_t device, parent, object;  // `object` is written by an import if 0
};
struct ExportToFd {
  static constexpr uint32_t kCommand = 0x3d05;
  ExportedObject exported;
  int32_t fd;
  uint32_t flags;
};
struct ImportFromFd {
  static constexpr uint32_t kCommand = 0x3d06;
  int32_t fd;
  ExportedObject imported;
};

// NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD, _EXPORT_OBJECTS_TO_FD and
// _IMPORT_OBJECTS_FROM_FD: a descriptor that stands for many objects. Each is at an index, and an
// export replaces what was there. Object 0 is none.
struct CreateObjectsFd {
  static constexpr uint32_t kCommand = 0x3d0a;
  uint32_t device;
  uint16_t most;
  uint8_t metadata[64];
  int32_t fd;
};
struct ExportObjectsToFd {
  static constexpr uint32_t kCommand = 0x3d0b;
  int32_t fd;
  uint32_t device;
  uint16_t most;
  uint8_t metadata[64];
  uint32_t objects[512];
  uint16_t count;
  uint16_t index;
};
struct ImportObjectsFromFd {
  static constexpr uint32_t kCommand = 0x3d0c;
  int32_t fd;
  uint32_t parent;
  uint32_t objects[128];
  uint8_t types[128];  // written; 0: none was there
  uint16_t count;
  uint16_t index;
};

// Whether the request is the control that has these parameters.
template <typename Parameters>
bool is(const Control& asked) {
  return asked.command == Parameters::kCommand && asked.parameters != 0 &&
         asked.parameters_size >= sizeof(Parameters) && (asked.flags & kControlIsSerialized) == 0;
}

// Handles are unique in a client.
constexpr uint64_t key_of(uint32_t client, uint32_t object) {
  return uint64_t{client} << 32 | object;
}
constexpr uint32_t client_of(uint64_t key) {
  return static_cast<uint32_t>(key >> 32);
}

}  // namespace fracgpu::cuda::rm
