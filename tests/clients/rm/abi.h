// RM's requests as its user-space libraries make them, after nvos.h, cl0080.h, cl2080.h and the
// headers of the controls in NVIDIA's open kernel modules 535. Written apart from hooks/cuda/rm.h,
// which the tests judge.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rm {

enum Escape : uint8_t {
  kAllocMemory = 0x27,
  kFree = 0x29,
  kControl = 0x2a,
  kAlloc = 0x2b,
  kVidHeapControl = 0x4a
};
enum Class : uint32_t {
  kRoot = 0x41,
  kDevice = 0x80,
  kSubdevice = 0x2080,
  kLocalMemory = 0x40,
  kSystemMemory = 0x3e,
  kVirtualMemory = 0x50a0
};
enum Status : uint32_t {
  kOk = 0,
  kBusyRetry = 0x03,
  kDuplicateName = 0x19,
  kInvalidArgument = 0x1f,
  kInvalidClass = 0x22,
  kInvalidClient = 0x23,
  kInvalidCommand = 0x24,
  kInvalidObjectHandle = 0x33,
  kInvalidObjectParent = 0x36,
  kInvalidParamStruct = 0x3a,
  kInvalidPointer = 0x3d,
  kNoMemory = 0x51
};

struct Nvos00 {
  uint32_t client, parent, object, status;
};

// The three forms of kAlloc. The second one is the last one before driver 535.
struct Nvos21 {
  uint32_t client, parent, object, object_class;
  uint64_t parameters;
  uint32_t parameters_size, status;
};
struct Nvos64Before535 {
  uint32_t client, parent, object, object_class;
  uint64_t parameters, rights;
  uint32_t flags, status;
};
struct Nvos64 {
  uint32_t client, parent, object, object_class;
  uint64_t parameters, rights;
  uint32_t parameters_size, flags, status, pad;
};
static_assert(sizeof(Nvos21) == 32 && sizeof(Nvos64Before535) == 40 && sizeof(Nvos64) == 48);
inline constexpr uint32_t kAllocSerialized = 1;

struct DeviceParameters {  // NV0080_ALLOC_PARAMETERS
  uint32_t device, share, target_client, target_device, flags, pad;
  uint64_t space_size, space_start, space_limit;
  uint32_t space_mode, pad2;
};
static_assert(sizeof(DeviceParameters) == 56);
struct SubdeviceParameters {  // NV2080_ALLOC_PARAMETERS
  uint32_t subdevice;
};
struct MemoryParameters {  // NV_MEMORY_ALLOCATION_PARAMS
  uint32_t owner, type, flags, width, height;
  int32_t pitch;
  uint32_t attributes, attributes2, format, compression, zcull, pad;
  uint64_t range_low, range_high, size, alignment, offset, limit, address;
  uint32_t tag_offset, space, internal_flags, tag;
};
static_assert(sizeof(MemoryParameters) == 120);
inline constexpr uint32_t kFlagVirtual = 0x80000, kFlagHandleProvided = 0x4000;
inline constexpr unsigned kPageSizeShift = 23, kLocationShift = 25;

struct Nvos32 {
  uint32_t client, parent, function, space;
  int16_t ivc_heap, pad;
  uint32_t status;
  uint64_t total, free;
  // Of NVOS32_FUNCTION_ALLOC_SIZE. NVOS32_FUNCTION_FREE has the first two.
  uint32_t owner, object, type, flags, attributes, format, compression, zcull, stride, width,
      height, pad2;
  uint64_t size, alignment, offset, limit, address, range_begin, range_end;
  uint32_t attributes2, tag_offset;
  uint64_t rest[4];
};
static_assert(sizeof(Nvos32) == 184 && offsetof(Nvos32, size) == 88);
inline constexpr uint32_t kFunctionAllocSize = 2, kFunctionFree = 3;
inline constexpr uint32_t kFreeFlagHandleProvided = 1;  // at the place of `type`

struct Nvos02 {
  uint32_t client, parent, object, object_class, flags, pad;
  uint64_t address, limit;
  uint32_t status, pad2;
  int32_t fd, pad3;  // nv_ioctl_nvos02_parameters_with_fd
};
static_assert(sizeof(Nvos02) == 56);

struct Nvos54 {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameters_size, status;
};
static_assert(sizeof(Nvos54) == 32);
inline constexpr uint32_t kControlSerialized = 4;

inline constexpr uint32_t kGetAttachedIds = 0x201, kGetIdInfo = 0x205, kGetUuid = 0x275,
                          kGetFbInfo = 0x20801301, kGetFbInfoV2 = 0x20801303;
struct AttachedIds {
  uint32_t ids[32];
};
struct IdInfo {
  uint32_t id, flags, device, subdevice, sli_status, board, instance;
  int32_t numa;
};
struct Uuid {
  uint32_t id, flags;
  char text[256];
  uint32_t length;
};
struct FbEntry {
  uint32_t index, kib;
};
struct FbInfo {
  uint32_t count, pad;
  uint64_t entries;
};
inline constexpr uint32_t kMostFbEntries = 54;
struct FbInfoV2 {
  uint32_t count;
  FbEntry entries[kMostFbEntries];
};
static_assert(sizeof(FbInfoV2) == 436);
inline constexpr uint32_t kFbRamSize = 0x07, kFbHeapSize = 0x09, kFbHeapFree = 0x16,
                          kFbBusWidth = 0x0b;

constexpr unsigned long request(uint8_t escape, size_t size) {
  return 3ul << 30 | size << 16 | 'F' << 8 | escape;
}

}  // namespace rm
