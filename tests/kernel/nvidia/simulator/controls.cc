// RM's controls: questions about the client, the device, memory, the GPU and channels. The answers
// are those of an AD102 as on a GeForce RTX 4090 (kernel.h: Chip); they decide what libcuda makes
// of it, such as the size of a context.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>
#include <functional>
#include <unordered_map>

#include "diagnostics.h"
#include "kernel.h"
#include "user_memory.h"

namespace rmsim {
namespace {

struct Call {
  uint32_t client, object, size;
  int gpu;
};
struct Control {
  size_t size;  // of the parameters
  std::function<NV_STATUS(const Call&, void*)> answer;
};
using Controls = std::unordered_map<uint32_t, Control>;

// ---- The chip

constexpr uint32_t kGpcs = 11, kTpcsPerGpc = 6, kSmsPerTpc = 2, kTpcs = 64,
                   kSms = kTpcs * kSmsPerTpc;
constexpr uint32_t kTpcMasks[kGpcs] = {0x3f, 0x3f, 0x3f, 0x3f, 0x3f, 0x3f,
                                       0x3f, 0x3f, 0x3f, 0x1f, 0x1f};
constexpr uint32_t kCopyEngines = 5,
                   kGraphicsCopyEngines = 2;  // the first share a runlist with graphics
constexpr uint32_t kL2Bytes = 72 << 20, kBar1Bytes = 256 << 20, kBusWidth = 384;
constexpr uint64_t kBar1Size = 32ull << 30;
constexpr uint8_t kUuid[16] = {0x51, 0x1e, 0x8b, 0x52, 0x09, 0x3a, 0x4c, 0x1f,
                               0x9a, 0x77, 0x20, 0x11, 0xc0, 0xde, 0x00, 0x01};
constexpr char kUuidText[] = "GPU-511e8b52-093a-4c1f-9a77-2011c0de0001";

constexpr Chip kAd102 = {0x2684,   0x190, 2, 0x809, ADA_COMPUTE_A, ADA_A, "NVIDIA GeForce RTX 4090",
                         "AD102-A"};
constexpr Chip kGa102 = {
    0x2204, 0x170, 2, 0x806, AMPERE_COMPUTE_B, AMPERE_B, "NVIDIA GeForce RTX 3090", "GA102-A"};

uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

// What is not named is 0.
uint32_t fb_info(int gpu, uint32_t index) {
  const auto kib = [](uint64_t bytes) { return static_cast<uint32_t>(bytes >> 10); };
  switch (index) {
    case NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE:
    case NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE:
    case NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE:
    case NV2080_CTRL_FB_INFO_INDEX_HEAP_SIZE:
      return kib(accounting.total());
    case NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE:
    case NV2080_CTRL_FB_INFO_INDEX_LARGEST_FREE_REGION_SIZE_KB:
      return kib(accounting.total() - accounting.used(gpu));
    case NV2080_CTRL_FB_INFO_INDEX_MAPPABLE_HEAP_SIZE:
      return kib(kBar1Bytes);
    case NV2080_CTRL_FB_INFO_INDEX_BAR1_SIZE:
    case NV2080_CTRL_FB_INFO_INDEX_BAR1_AVAIL_SIZE:
    case NV2080_CTRL_FB_INFO_INDEX_BAR1_MAX_CONTIGUOUS_AVAIL_SIZE:
      return kib(kBar1Size);
    case NV2080_CTRL_FB_INFO_INDEX_BUS_WIDTH:
      return kBusWidth;
    case NV2080_CTRL_FB_INFO_INDEX_RAM_TYPE:
      return 0x12;  // GDDR6X
    case NV2080_CTRL_FB_INFO_INDEX_BANK_COUNT:
      return 16;
    case NV2080_CTRL_FB_INFO_INDEX_PARTITION_COUNT:
    case NV2080_CTRL_FB_INFO_INDEX_LTC_COUNT:
      return 12;
    case NV2080_CTRL_FB_INFO_INDEX_LTS_COUNT:
      return 48;
    case NV2080_CTRL_FB_INFO_INDEX_PARTITION_MASK:
    case NV2080_CTRL_FB_INFO_INDEX_LTC_MASK:
      return 0xfff;
    case NV2080_CTRL_FB_INFO_INDEX_FBP_COUNT:
      return 6;
    case NV2080_CTRL_FB_INFO_INDEX_FBP_MASK:
      return 0x3f;
    case NV2080_CTRL_FB_INFO_INDEX_L2CACHE_SIZE:
      return kL2Bytes;
    case NV2080_CTRL_FB_INFO_INDEX_MEMORYINFO_VENDOR_ID:
      return 1;
    default:
      return 0;
  }
}

uint32_t gpu_info(uint32_t index) {
  switch (index) {
    case NV2080_CTRL_GPU_INFO_INDEX_GPU_SM_VERSION:
      return chip().sm_version;
    case NV2080_CTRL_GPU_INFO_INDEX_SYSMEM_ACCESS:
    case NV2080_CTRL_GPU_INFO_INDEX_PER_RUNLIST_CHANNEL_RAM:
    case NV2080_CTRL_GPU_INFO_INDEX_GPU_PROFILING_CAPABILITY:
    case NV2080_CTRL_GPU_INFO_INDEX_GPU_DEBUGGING_CAPABILITY:
    case NV2080_CTRL_GPU_INFO_INDEX_DMABUF_CAPABILITY:
      return 1;
    default:
      return 0;
  }
}

uint32_t bus_info(int gpu, uint32_t index) {
  constexpr uint32_t kPciExpress = 3, kLinkCaps = 0x00453d04, kLinkStatus = 0x11040000,
                     kGen4 = 0x33, kCoherent = 7, kGartMib = 128 << 10;  // the last is chosen
  switch (index) {
    case NV2080_CTRL_BUS_INFO_INDEX_TYPE:
    case NV2080_CTRL_BUS_INFO_INDEX_INTERFACE_TYPE:
    case NV2080_CTRL_BUS_INFO_INDEX_GPU_INTERFACE_TYPE:
      return kPciExpress;
    case NV2080_CTRL_BUS_INFO_INDEX_INTLINE:
      return 16;
    case NV2080_CTRL_BUS_INFO_INDEX_CAPS:
      return 1;
    case NV2080_CTRL_BUS_INFO_INDEX_GPU_GART_SIZE:
      return kGartMib;
    case NV2080_CTRL_BUS_INFO_INDEX_PCIE_GPU_LINK_CAPS:
    case NV2080_CTRL_BUS_INFO_INDEX_PCIE_ROOT_LINK_CAPS:
      return kLinkCaps;
    case NV2080_CTRL_BUS_INFO_INDEX_PCIE_GPU_LINK_CTRL_STATUS:
    case NV2080_CTRL_BUS_INFO_INDEX_PCIE_ROOT_LINK_CTRL_STATUS:
      return kLinkStatus;
    case NV2080_CTRL_BUS_INFO_INDEX_COHERENT_DMA_FLAGS:
    case NV2080_CTRL_BUS_INFO_INDEX_NONCOHERENT_DMA_FLAGS:
      return kCoherent;
    case NV2080_CTRL_BUS_INFO_INDEX_BUS_NUMBER:
      return bus_of(gpu);
    case NV2080_CTRL_BUS_INFO_INDEX_PCIE_GEN_INFO:
    case NV2080_CTRL_BUS_INFO_INDEX_PCIE_UPSTREAM_GEN_INFO:
      return kGen4;
    default:
      return 0;
  }
}

uint32_t gr_info(uint32_t index) {
  switch (index) {
    case NV2080_CTRL_GR_INFO_INDEX_BUFFER_ALIGNMENT:
    case NV2080_CTRL_GR_INFO_INDEX_SWIZZLE_ALIGNMENT:
    case NV2080_CTRL_GR_INFO_INDEX_THREAD_STACK_SCALING_FACTOR:
    case NV2080_CTRL_GR_INFO_INDEX_TIMESLICE_ENABLED:
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GRS:
      return 1;
    case NV2080_CTRL_GR_INFO_INDEX_VPE_COUNT:
    case NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_COUNT:
      return kGpcs;
    case NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT:
      return kTpcs;
    case NV2080_CTRL_GR_INFO_INDEX_SM_REG_BANK_COUNT:
      return 4;
    case NV2080_CTRL_GR_INFO_INDEX_SM_REG_BANK_REG_COUNT:
      return 16384;
    case NV2080_CTRL_GR_INFO_INDEX_SM_VERSION:
      return chip().sm_version;
    case NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM:
      return 48;
    case NV2080_CTRL_GR_INFO_INDEX_MAX_THREADS_PER_WARP:
    case NV2080_CTRL_GR_INFO_INDEX_FB_MEMORY_REQUEST_GRANULARITY:
    case NV2080_CTRL_GR_INFO_INDEX_HOST_MEMORY_REQUEST_GRANULARITY:
      return 32;
    case NV2080_CTRL_GR_INFO_INDEX_MAX_SP_PER_SM:
      return 4;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS:
      return 12;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_FBPS:
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC:
      return kTpcsPerGpc;
    case NV0080_CTRL_GR_INFO_INDEX_FAMILY_MAX_TPC_PER_GPC:
      return kTpcsPerGpc;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_FBPAS:
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_LTCS:
      return 12;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_PES_PER_GPC:
      return 3;
    case NV2080_CTRL_GR_INFO_INDEX_GPU_CORE_COUNT:
      return kSms * 128;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPCS_PER_PES:
      return 2;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC:
      return kSmsPerTpc;
    case NV2080_CTRL_GR_INFO_INDEX_RT_CORE_COUNT:
      return kSms;
    case NV2080_CTRL_GR_INFO_INDEX_TENSOR_CORE_COUNT:
      return kSms * 4;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_LTC_SLICES:
      return 4;
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_LTC_PER_FBP:
    case NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_ROP_PER_GPC:
      return 2;
    case NV0080_CTRL_GR_INFO_INDEX_MAX_SUBCONTEXT_COUNT:
    case NV0080_CTRL_GR_INFO_INDEX_MAX_LEGACY_SUBCONTEXT_COUNT:
    case NV0080_CTRL_GR_INFO_INDEX_MAX_PER_ENGINE_SUBCONTEXT_COUNT:
      return 64;
    case NV0080_CTRL_GR_INFO_INDEX_LITTER_NUM_SLICES_PER_LTC:
      return 4;
    default:
      return 0;
  }
}

// What it can do; libcuda takes those it knows. Without public names: classes that only have to be
// listed.
std::vector<uint32_t> classes() {
  constexpr uint32_t kMmuFaultBuffer = 0xc863;
  constexpr uint32_t kFbSegment = 0xc1, kAmpereUsermode = 0xc561, kThirdPartyP2p = 0x503c,
                     kMaster = 0x90e6;
  return {AMPERE_CHANNEL_GPFIFO_A,
          chip().compute_class,
          AMPERE_DMA_COPY_B,
          kAmpereUsermode,
          TURING_USERMODE_A,
          VOLTA_USERMODE_A,
          chip().graphics_class,
          FERMI_TWOD_A,
          KEPLER_INLINE_TO_MEMORY_B,
          GF100_ZBC_CLEAR,
          KEPLER_CHANNEL_GROUP_A,
          FERMI_CONTEXT_SHARE_A,
          FERMI_VASPACE_A,
          GT200_DEBUGGER,
          NV01_MEMORY_LOCAL_USER,
          NV01_MEMORY_SYSTEM,
          NV01_MEMORY_VIRTUAL,
          NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
          NV01_EVENT,
          NV20_SUBDEVICE_0,
          NV01_DEVICE_0,
          RM_USER_SHARED_DATA,
          kThirdPartyP2p,
          kMaster,
          kFbSegment,
          kMmuFaultBuffer};
}

// The parameters that driver 550 has in another form than 535, known by their size.
struct CopyEngines550 {  // NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS
  uint8_t capsTbl[64][NV2080_CTRL_CE_CAPS_TBL_SIZE];
  uint64_t present;
};
struct ExportObjectInfo550 {  // NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS
  int32_t fd;
  uint32_t deviceInstance, gpuInstanceId;
  uint16_t maxObjects;
  uint8_t metadata[NV0000_OS_UNIX_EXPORT_OBJECT_FD_BUFFER_SIZE];
};

// A table of capabilities is written as byte:mask in the headers.
template <size_t kSize>
void set_capability(uint8_t (&table)[kSize], int byte, int mask) {
  table[byte] = static_cast<uint8_t>(table[byte] | mask);
}
#define CAPABILITY(table, name) set_capability(table, (1 ? name), (0 ? name))

template <size_t kSize>
void copy_engine_capabilities(uint8_t (&table)[kSize], uint32_t engine) {
  memset(table, 0, kSize);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_SYSMEM_READ);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_SYSMEM_WRITE);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_SYSMEM);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_P2P);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_BL_SIZE_GT_64K_SUPPORTED);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_SUPPORTS_NONPIPELINED_BL);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_SUPPORTS_PIPELINED_BL);
  if (engine >= kGraphicsCopyEngines) return;
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_GRCE);
  CAPABILITY(table, NV2080_CTRL_CE_CAPS_CE_SHARED);
}

void memory_capabilities(uint8_t (&table)[NV0080_CTRL_FB_CAPS_TBL_SIZE]) {
  memset(table, 0, sizeof table);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_SUPPORT_RENDER_TO_SYSMEM);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_BLOCKLINEAR);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_SUPPORT_CACHED_SYSMEM);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_SUPPORT_SYSMEM_COMPRESSION);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_BLOCKLINEAR_GOBS_512);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_ASYNC_CE_L2_BYPASS_SET);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_GENERIC_PAGE_KIND);
  CAPABILITY(table, NV0080_CTRL_FB_CAPS_VIDMEM_ALLOCS_ARE_CLEARED);
}

template <class Parameters>
void describe_copy_engines(Parameters& p) {
  p = {};
  for (uint32_t i = 0; i < kCopyEngines; ++i) copy_engine_capabilities(p.capsTbl[i], i);
  p.present = (1 << kCopyEngines) - 1;
}

template <class Parameters>
NV_STATUS answer_export_info(Parameters& p) {
  ExportInfo info;
  const NV_STATUS status = export_info(p.fd, info);
  if (status != NV_OK) return status;
  memset(p.metadata, 0, sizeof p.metadata);
  memcpy(p.metadata, info.metadata.data(), std::min(info.metadata.size(), sizeof p.metadata));
  p.maxObjects = info.objects;
  p.deviceInstance = static_cast<uint32_t>(info.gpu);
  return status;
}

template <class Text>
void write_text(Text& out, const char* text) {
  snprintf(reinterpret_cast<char*>(out), sizeof out, "%s", text);
}

template <class Out>
uint32_t write_uuid(Out& out, int gpu, bool binary) {
  if (binary) {
    memcpy(out, kUuid, sizeof kUuid);
    out[sizeof kUuid - 1] = static_cast<uint8_t>(out[sizeof kUuid - 1] + gpu);
    return sizeof kUuid;
  }
  write_text(out, kUuidText);
  char& last = reinterpret_cast<char*>(out)[sizeof kUuidText - 2];
  last = static_cast<char>(last + gpu);
  return sizeof kUuidText;
}

// A list of (index, value), whose values are filled in: in the parameters, or at the program's
// address.
template <class Entry, size_t kMost, class Value>
NV_STATUS fill_list(Entry (&list)[kMost], uint32_t count, Value value) {
  if (count > kMost) return NV_ERR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < count; ++i) list[i].data = value(list[i].index);
  return NV_OK;
}
template <class Entry, class Value>
NV_STATUS fill_list(NvP64 user, uint32_t count, Value value) {
  constexpr uint32_t kMost = 1024;
  Entry list[kMost];
  if (count > kMost) return NV_ERR_INVALID_ARGUMENT;
  if (!copy_from_user(list, user_pointer(user), count * sizeof(Entry)))
    return NV_ERR_INVALID_POINTER;
  fill_list(list, count, value);
  return copy_to_user(user_pointer(user), list, count * sizeof(Entry)) ? NV_OK
                                                                       : NV_ERR_INVALID_POINTER;
}

NV_STATUS write_list(NvP64 user, uint32_t& count, std::vector<uint32_t> list) {
  const uint32_t wanted =
      user == nullptr ? 0 : std::min<uint32_t>(count == 0 ? list.size() : count, list.size());
  count = static_cast<uint32_t>(list.size());
  return copy_to_user(user_pointer(user), list.data(), wanted * sizeof list[0])
             ? NV_OK
             : NV_ERR_INVALID_POINTER;
}

std::vector<uint32_t> engines() {
  std::vector<uint32_t> list{NV2080_ENGINE_TYPE_GRAPHICS};
  for (uint32_t i = 0; i < kCopyEngines; ++i) list.push_back(NV2080_ENGINE_TYPE_COPY(i));
  return list;
}

MemoryPtr memory_of(uint32_t client, uint32_t handle) {
  const Object* object = find_object(client, handle);
  return object == nullptr ? nullptr : object->memory;
}

// ---- The table

// The parameters are of one type, and RM refuses others; what the answer does not write stays as it
// came.
template <class Parameters, class Answer>
void on(Controls& controls, uint32_t command, Answer answer) {
  controls[command] = {sizeof(Parameters), [answer](const Call& call, void* raw) -> NV_STATUS {
                         auto& parameters = *static_cast<Parameters*>(raw);
                         if constexpr (std::is_same_v<decltype(answer(call, parameters)), void>) {
                           answer(call, parameters);
                           return NV_OK;
                         } else {
                           return answer(call, parameters);
                         }
                       }};
}

// All that is asked is answered with 0: nothing of it is there.
void answer_zeros(Controls& controls, std::initializer_list<uint32_t> commands) {
  for (const uint32_t command : commands) {
    controls[command] = {0, [](const Call& call, void* raw) -> NV_STATUS {
                           memset(raw, 0, call.size);
                           return NV_OK;
                         }};
  }
}

// Orders that change nothing that can be seen here.
void accept(Controls& controls, std::initializer_list<uint32_t> commands) {
  for (const uint32_t command : commands)
    controls[command] = {0, [](const Call&, void*) -> NV_STATUS { return NV_OK; }};
}

// What a real GPU answers and this one does not. NVML shows N/A.
void refuse(Controls& controls, std::initializer_list<uint32_t> commands) {
  for (const uint32_t command : commands) {
    controls[command] = {0, [](const Call&, void*) -> NV_STATUS { return NV_ERR_NOT_SUPPORTED; }};
  }
}

// Answers with a table of zeros at the program's address. What a GPU answers was not measured.
constexpr auto no_capabilities = [](const Call&, auto& p) -> NV_STATUS {
  const std::vector<char> table(std::min<uint32_t>(p.capsTblSize, 4096));
  return copy_to_user(user_pointer(p.capsTbl), table.data(), table.size()) ? NV_OK
                                                                           : NV_ERR_INVALID_POINTER;
};

void add_client_controls(Controls& t) {
  on<NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS>(
      t, NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION, [](const Call&, auto& p) {
        const auto put = [&](NvP64 user, const char* text) {
          return user == nullptr || strlen(text) + 1 > p.sizeOfStrings ||
                 copy_to_user(user_pointer(user), text, strlen(text) + 1);
        };
        p.changelistNumber = p.officialChangelistNumber = 34500000;
        return put(p.pDriverVersionBuffer, accounting.driver()) &&
                       put(p.pVersionBuffer, accounting.driver()) && put(p.pTitleBuffer, "NVIDIA")
                   ? NV_OK
                   : NV_ERR_INVALID_POINTER;
      });
  on<NV0000_CTRL_CLIENT_GET_ADDR_SPACE_TYPE_PARAMS>(
      t, NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE, [](const Call& call, auto& p) {
        const MemoryPtr memory = memory_of(call.client, p.hObject);
        if (memory == nullptr) return NV_ERR_INVALID_OBJECT;
        p.addrSpaceType =
            memory->kind == Kind::kVideo       ? NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_VIDMEM
            : memory->kind == Kind::kRegisters ? NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_REGMEM
                                               : NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_SYSMEM;
        return NV_OK;
      });
  on<NV0000_CTRL_CLIENT_OBJECTS_ARE_DUPLICATES_PARAMS>(
      t, NV0000_CTRL_CMD_CLIENT_OBJECTS_ARE_DUPLICATES, [](const Call& call, auto& p) {
        const MemoryPtr first = memory_of(call.client, p.hObject1);
        const MemoryPtr second = memory_of(call.client, p.hObject2);
        if (first == nullptr || second == nullptr) return NV_ERR_INVALID_OBJECT;
        // memIsDuplicate in mem.c of the open modules 535.261.03 and 555.58.02
        p.bDuplicates = first == second || (first->record >= 0 && first->record == second->record &&
                                            first->generation == second->generation);
        return NV_OK;
      });
  on<NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS>(
      t, NV0000_CTRL_CMD_GPU_GET_PROBED_IDS, [](const Call&, auto& p) {
        std::fill(std::begin(p.gpuIds), std::end(p.gpuIds), NV0000_CTRL_GPU_INVALID_ID);
        std::fill(std::begin(p.excludedGpuIds), std::end(p.excludedGpuIds),
                  NV0000_CTRL_GPU_INVALID_ID);
        for (int gpu = 0; gpu < accounting.gpus(); ++gpu) p.gpuIds[gpu] = id_of(gpu);
      });
  on<NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS>(
      t, NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS, [](const Call&, auto& p) {
        std::fill(std::begin(p.gpuIds), std::end(p.gpuIds), NV0000_CTRL_GPU_INVALID_ID);
        for (int gpu = 0; gpu < accounting.gpus(); ++gpu) p.gpuIds[gpu] = id_of(gpu);
      });
  on<NV0000_CTRL_GPU_ATTACH_IDS_PARAMS>(
      t, NV0000_CTRL_CMD_GPU_ATTACH_IDS,
      [](const Call&, auto& p) { p.failedId = NV0000_CTRL_GPU_INVALID_ID; });
  const auto id_info = [](const Call&, auto& p) {
    const int gpu = gpu_of_id(p.gpuId);
    if (gpu < 0) return NV_ERR_INVALID_ARGUMENT;
    p.gpuFlags = DRF_DEF(0000, _CTRL_GPU_ID_INFO, _IN_USE, _TRUE);
    p.deviceInstance = p.gpuInstance = static_cast<uint32_t>(gpu);
    p.subDeviceInstance = p.sliStatus = 0;
    p.boardId = p.gpuId;
    p.numaId = -1;
    return NV_OK;
  };
  on<NV0000_CTRL_GPU_GET_ID_INFO_PARAMS>(t, NV0000_CTRL_CMD_GPU_GET_ID_INFO, id_info);
  on<NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS>(t, NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, id_info);
  on<NV0000_CTRL_GPU_GET_PCI_INFO_PARAMS>(t, NV0000_CTRL_CMD_GPU_GET_PCI_INFO,
                                          [](const Call&, auto& p) {
                                            p.domain = p.slot = 0;
                                            const int gpu = gpu_of_id(p.gpuId);
                                            if (gpu < 0) return NV_ERR_INVALID_ARGUMENT;
                                            p.bus = static_cast<NvU16>(bus_of(gpu));
                                            return NV_OK;
                                          });
  on<NV0000_CTRL_GPU_GET_DEVICE_IDS_PARAMS>(
      t, NV0000_CTRL_CMD_GPU_GET_DEVICE_IDS,
      [](const Call&, auto& p) { p.deviceIds = (1u << accounting.gpus()) - 1; });
  on<NV0000_CTRL_GPU_QUERY_DRAIN_STATE_PARAMS>(
      t, NV0000_CTRL_CMD_GPU_QUERY_DRAIN_STATE, [](const Call&, auto& p) {
        p.drainState = NV0000_CTRL_GPU_DRAIN_STATE_DISABLED;
        p.flags = 0;
      });
  on<NV0000_CTRL_GPU_GET_UUID_FROM_GPU_ID_PARAMS>(
      t, NV0000_CTRL_CMD_GPU_GET_UUID_FROM_GPU_ID, [](const Call&, auto& p) {
        const int gpu = gpu_of_id(p.gpuId);
        if (gpu < 0) return NV_ERR_INVALID_ARGUMENT;
        p.uuidStrLen = write_uuid(
            p.gpuUuid, gpu,
            DRF_VAL(0000, _CTRL_CMD_GPU, _GET_UUID_FROM_GPU_ID_FLAGS_FORMAT, p.flags) != 0);
        return NV_OK;
      });
  on<NV0000_CTRL_SYSTEM_GET_CPU_INFO_PARAMS>(
      t, NV0000_CTRL_CMD_SYSTEM_GET_CPU_INFO, [](const Call&, auto& p) {
        p = {};
        p.type = NV0000_CTRL_SYSTEM_CPU_TYPE_UNKNOWN;
        p.numLogicalCpus = p.numPhysicalCpus = p.coresOnDie = 2;
        p.dataCacheLineSize = 64;
        p.clock = 2500;
      });
  on<NV0000_CTRL_SYSTEM_GET_FABRIC_STATUS_PARAMS>(
      t, NV0000_CTRL_CMD_SYSTEM_GET_FABRIC_STATUS,
      [](const Call&, auto& p) { p.fabricStatus = NV0000_CTRL_GET_SYSTEM_FABRIC_STATUS_SKIP; });
  // No GPU reaches another one's memory.
  const auto no_peers = [](const Call&, auto& p) {
    p.p2pCaps = 0;
    p.p2pOptimalReadCEs = p.p2pOptimalWriteCEs = ~0u;
    const int status = p.gpuCount > 1 ? NV0000_P2P_CAPS_STATUS_NOT_SUPPORTED : 0;
    memset(p.p2pCapsStatus, status, sizeof p.p2pCapsStatus);
    if constexpr (std::is_array_v<decltype(p.busPeerIds)>)
      memset(p.busPeerIds, 0xff, sizeof p.busPeerIds);
  };
  on<NV0000_CTRL_SYSTEM_GET_P2P_CAPS_MATRIX_PARAMS>(
      t, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_MATRIX, [](const Call&, auto& p) {
        memset(p.p2pCaps, 0, sizeof p.p2pCaps);
        for (auto* const engines : {&p.a2bOptimalReadCes, &p.a2bOptimalWriteCes,
                                    &p.b2aOptimalReadCes, &p.b2aOptimalWriteCes}) {
          memset(engines, 0xff, sizeof *engines);
        }
      });
  on<NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS>(t, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS, no_peers);
  on<NV0000_CTRL_SYSTEM_GET_P2P_CAPS_V2_PARAMS>(t, NV0000_CTRL_CMD_SYSTEM_GET_P2P_CAPS_V2,
                                                no_peers);
  answer_zeros(t, {NV0000_CTRL_CMD_GPU_GET_MEMOP_ENABLE, NV0000_CTRL_CMD_SYNC_GPU_BOOST_GROUP_INFO,
                   NV0000_CTRL_CMD_SYSTEM_GET_FEATURES});
  accept(t, {NV0000_CTRL_CMD_CLIENT_SET_INHERITED_SHARE_POLICY, NV0000_CTRL_CMD_GPU_DETACH_IDS});

  on<NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TO_FD_PARAMS>(
      t, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD, [](const Call& call, auto& p) {
        return export_objects(p.fd, call.client, &p.object.data.rmObject.hObject, 1, 0);
      });
  on<NV0000_CTRL_OS_UNIX_IMPORT_OBJECT_FROM_FD_PARAMS>(
      t, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD, [](const Call& call, auto& p) {
        auto& object = p.object.data.rmObject;
        return import_objects(p.fd, call.client, object.hParent, &object.hObject, 1, 0);
      });
  on<NV0000_CTRL_OS_UNIX_CREATE_EXPORT_OBJECT_FD_PARAMS>(
      t, NV0000_CTRL_CMD_OS_UNIX_CREATE_EXPORT_OBJECT_FD, [](const Call&, auto& p) {
        return describe_export(p.fd, p.metadata, sizeof p.metadata, p.maxObjects);
      });
  on<NV0000_CTRL_OS_UNIX_EXPORT_OBJECTS_TO_FD_PARAMS>(
      t, NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECTS_TO_FD, [](const Call& call, auto& p) {
        if (p.numObjects > std::size(p.objects))
          return static_cast<NV_STATUS>(NV_ERR_INVALID_ARGUMENT);
        if (p.hDevice != 0) {  // the first call describes as well
          const NV_STATUS status =
              describe_export(p.fd, p.metadata, sizeof p.metadata, p.maxObjects);
          if (status != NV_OK) return status;
        }
        return export_objects(p.fd, call.client, p.objects, p.numObjects, p.index);
      });
  on<NV0000_CTRL_OS_UNIX_IMPORT_OBJECTS_FROM_FD_PARAMS>(
      t, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD, [](const Call& call, auto& p) {
        if (p.numObjects > std::size(p.objects))
          return static_cast<NV_STATUS>(NV_ERR_INVALID_ARGUMENT);
        memset(p.objectTypes, NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_TYPE_VIDMEM, p.numObjects);
        return import_objects(p.fd, call.client, p.hParent, p.objects, p.numObjects, p.index);
      });
  on<NV0000_CTRL_OS_UNIX_GET_EXPORT_OBJECT_INFO_PARAMS>(
      t, NV0000_CTRL_CMD_OS_UNIX_GET_EXPORT_OBJECT_INFO, [](const Call& call, auto& p) {
        if (call.size != sizeof(ExportObjectInfo550)) return answer_export_info(p);
        auto& newer = reinterpret_cast<ExportObjectInfo550&>(p);
        newer.gpuInstanceId = UINT32_MAX;  // no MIG
        return answer_export_info(newer);
      });
}

void add_device_controls(Controls& t) {
  answer_zeros(t, {NV0080_CTRL_CMD_GPU_GET_BRAND_CAPS, NV0080_CTRL_CMD_GPU_GET_VGX_CAPS,
                   NV0080_CTRL_CMD_GPU_GET_VIRTUALIZATION_MODE,
                   NV0080_CTRL_CMD_GPU_QUERY_SW_STATE_PERSISTENCE});
  on<NV0080_CTRL_GPU_GET_NUM_SUBDEVICES_PARAMS>(t, NV0080_CTRL_CMD_GPU_GET_NUM_SUBDEVICES,
                                                [](const Call&, auto& p) { p.numSubDevices = 1; });
  on<NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS>(
      t, NV0080_CTRL_CMD_GPU_GET_CLASSLIST,
      [](const Call&, auto& p) { return write_list(p.classList, p.numClasses, classes()); });
  on<NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS>(t, NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2,
                                              [](const Call&, auto& p) {
                                                const std::vector<uint32_t> list = classes();
                                                std::copy(list.begin(), list.end(), p.classList);
                                                p.numClasses = static_cast<uint32_t>(list.size());
                                              });
  on<NV0080_CTRL_FB_GET_CAPS_V2_PARAMS>(
      t, NV0080_CTRL_CMD_FB_GET_CAPS_V2,
      [](const Call&, auto& p) { memory_capabilities(p.capsTbl); });
  on<NV0080_CTRL_HOST_GET_CAPS_V2_PARAMS>(
      t, NV0080_CTRL_CMD_HOST_GET_CAPS_V2, [](const Call&, auto& p) {
        memset(p.capsTbl, 0, sizeof p.capsTbl);
        CAPABILITY(p.capsTbl, NV0080_CTRL_HOST_CAPS_GPU_COHERENT_MAPPING_SUPPORTED);
        CAPABILITY(p.capsTbl, NV0080_CTRL_HOST_CAPS_EXPLICIT_CACHE_FLUSH_REQD);
      });
  // Driver 470 and Vulkan send these; others send V2.
  on<NV0080_CTRL_FB_GET_CAPS_PARAMS>(
      t, NV0080_CTRL_CMD_FB_GET_CAPS, [](const Call&, auto& p) -> NV_STATUS {
        uint8_t table[NV0080_CTRL_FB_CAPS_TBL_SIZE];
        memory_capabilities(table);
        if (p.capsTblSize != sizeof table) return NV_ERR_INVALID_ARGUMENT;
        return copy_to_user(user_pointer(p.capsTbl), table, sizeof table) ? NV_OK
                                                                          : NV_ERR_INVALID_POINTER;
      });
  on<NV0080_CTRL_HOST_GET_CAPS_PARAMS>(t, NV0080_CTRL_CMD_HOST_GET_CAPS, no_capabilities);
  on<NV0080_CTRL_FIFO_GET_CAPS_PARAMS>(t, NV0080_CTRL_CMD_FIFO_GET_CAPS, no_capabilities);
  on<NV2080_CTRL_CE_GET_CAPS_PARAMS>(t, NV2080_CTRL_CMD_CE_GET_CAPS, no_capabilities);
  on<NV0080_CTRL_DMA_GET_CAPS_PARAMS>(t, NV0080_CTRL_CMD_DMA_GET_CAPS, [](const Call&, auto& p) {
    memset(p.capsTbl, 0, sizeof p.capsTbl);
    CAPABILITY(p.capsTbl, NV0080_CTRL_DMA_CAPS_SHADER_ACCESS_SUPPORTED);
    CAPABILITY(p.capsTbl, NV0080_CTRL_DMA_CAPS_SPARSE_VIRTUAL_SUPPORTED);
    CAPABILITY(p.capsTbl, NV0080_CTRL_DMA_CAPS_MULTIPLE_VA_SPACES_SUPPORTED);
  });
  on<NV0080_CTRL_DMA_ADV_SCHED_GET_VA_CAPS_PARAMS>(
      t, NV0080_CTRL_CMD_DMA_ADV_SCHED_GET_VA_CAPS, [](const Call&, auto& p) {
        constexpr uint32_t kSmall = 4 << 10, kBig = 64 << 10, kHuge = 2 << 20;
        const uint32_t space = p.hVASpace;
        p = {};
        p.hVASpace = space;
        p.vaBitCount = 49;
        p.pdeCoverageBitCount = 29;
        p.num4KPageTableFormats = 1;
        p.bigPageSize = p.compressionPageSize = p.idealVRAMPageSize = kBig;
        p.dualPageTableSupported = 1;
        p.pageTableBigFormat.pageTableSize = 0x100;
        p.pageTableBigFormat.pageTableCoverage = kHuge;
        p.pageTable4KFormat[0].pageTableSize = 0x1000;
        p.pageTable4KFormat[0].pageTableCoverage = kHuge;
        p.vaRangeLo = 0x10000;
        p.supportedPageSizeMask = kSmall | kBig | kHuge;
      });
  const auto graphics_capabilities = [](const Call&, auto& p) {
    memset(p.capsTbl, 0, sizeof p.capsTbl);
    p.bCapsPopulated = 1;
  };
  on<NV0080_CTRL_GR_GET_CAPS_V2_PARAMS>(t, NV0080_CTRL_CMD_GR_GET_CAPS_V2, graphics_capabilities);
  on<NV0080_CTRL_GR_GET_CAPS_V2_PARAMS>(t, NV2080_CTRL_CMD_GR_GET_CAPS_V2, graphics_capabilities);
  on<NV0080_CTRL_FIFO_GET_CHANNELLIST_PARAMS>(
      t, NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, [](const Call& call, auto& p) {
        constexpr uint32_t kMost = 1024;
        if (p.numChannels > kMost) return NV_ERR_INVALID_ARGUMENT;
        std::vector<uint32_t> list(p.numChannels);
        const size_t size = list.size() * sizeof list[0];
        if (!copy_from_user(list.data(), user_pointer(p.pChannelHandleList), size))
          return NV_ERR_INVALID_POINTER;
        for (uint32_t& entry : list) {
          const Object* object = find_object(call.client, entry);
          entry = object != nullptr && object->channel != nullptr ? object->channel->id : ~0u;
        }
        return copy_to_user(user_pointer(p.pChannelList), list.data(), size)
                   ? NV_OK
                   : NV_ERR_INVALID_POINTER;
      });
}

// ---- What only Vulkan and OpenGL ask

// Zero-bandwidth clears: colours, depths and stencils to which the chip clears without writing. On
// a GPU all processes share one table; here each has its own. Nothing is ever taken out.
using ZbcEntry = NV9096_CTRL_GET_ZBC_CLEAR_TABLE_ENTRY_PARAMS;
constexpr uint32_t kFirstZbcIndex = 1, kLastZbcIndex = 15;  // chosen; 0 stands for no entry
ZbcEntry zbc_table[NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE_COUNT][kLastZbcIndex + 1];

template <class Parameters>
NV_STATUS add_zbc(NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE type, const Parameters& p,
                  void (*write)(ZbcEntry&, const Parameters&)) {
  ZbcEntry entry{};
  write(entry, p);
  entry.bIndexValid = 1;
  for (uint32_t i = kFirstZbcIndex; i <= kLastZbcIndex; ++i) {
    ZbcEntry& place = zbc_table[type][i];
    if (!place.bIndexValid) place = entry;
    if (memcmp(&place, &entry, sizeof entry) == 0) return NV_OK;
  }
  return NV_ERR_INSUFFICIENT_RESOURCES;
}

void add_graphics_controls(Controls& t) {
  on<NV9096_CTRL_GET_ZBC_CLEAR_TABLE_SIZE_PARAMS>(t, NV9096_CTRL_CMD_GET_ZBC_CLEAR_TABLE_SIZE,
                                                  [](const Call&, auto& p) {
                                                    p.indexStart = kFirstZbcIndex;
                                                    p.indexEnd = kLastZbcIndex;
                                                  });
  on<ZbcEntry>(t, NV9096_CTRL_CMD_GET_ZBC_CLEAR_TABLE_ENTRY, [](const Call&, auto& p) {
    if (p.tableType <= NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE_INVALID ||
        p.tableType >= NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE_COUNT || p.index > kLastZbcIndex)
      return NV_ERR_INVALID_ARGUMENT;
    const ZbcEntry& entry = zbc_table[p.tableType][p.index];
    p.value = entry.value;
    p.format = entry.format;
    p.bIndexValid = entry.bIndexValid;
    return NV_OK;
  });
  on<NV9096_CTRL_SET_ZBC_COLOR_CLEAR_PARAMS>(
      t, NV9096_CTRL_CMD_SET_ZBC_COLOR_CLEAR, [](const Call&, auto& p) {
        using Color = NV9096_CTRL_SET_ZBC_COLOR_CLEAR_PARAMS;
        return add_zbc<Color>(
            NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE_COLOR, p,
            [](ZbcEntry& entry, const Color& color) {  // whose format no entry has
              std::copy_n(color.colorFB, std::size(color.colorFB), entry.value.colorFB);
              std::copy_n(color.colorDS, std::size(color.colorDS), entry.value.colorDS);
            });
      });
  on<NV9096_CTRL_SET_ZBC_DEPTH_CLEAR_PARAMS>(
      t, NV9096_CTRL_CMD_SET_ZBC_DEPTH_CLEAR, [](const Call&, auto& p) {
        using Depth = NV9096_CTRL_SET_ZBC_DEPTH_CLEAR_PARAMS;
        return add_zbc<Depth>(NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE_DEPTH, p,
                              [](ZbcEntry& entry, const Depth& depth) {
                                entry.value.depth = depth.depth;
                                entry.format = depth.format;
                              });
      });
  on<NV9096_CTRL_SET_ZBC_STENCIL_CLEAR_PARAMS>(
      t, NV9096_CTRL_CMD_SET_ZBC_STENCIL_CLEAR, [](const Call&, auto& p) {
        using Stencil = NV9096_CTRL_SET_ZBC_STENCIL_CLEAR_PARAMS;
        return add_zbc<Stencil>(NV9096_CTRL_ZBC_CLEAR_TABLE_TYPE_STENCIL, p,
                                [](ZbcEntry& entry, const Stencil& stencil) {
                                  entry.value.stencil = stencil.stencil;
                                  entry.format = stencil.format;
                                });
      });
  // The header says what is typical; the sizes are chosen.
  on<NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_GR_GET_ZCULL_INFO, [](const Call&, auto& p) {
        p.widthAlignPixels = p.subregionWidthAlignPixels = 16 * kTpcs;
        p.heightAlignPixels = 32;
        p.subregionHeightAlignPixels = 64;
        p.pixelSquaresByAliquots = kGpcs * 4 * 16 * 16;
        p.aliquotTotal = kGpcs * 4096;
        p.zcullRegionByteMultiplier = 4 * kTpcs;
        p.zcullRegionHeaderSize = kGpcs * 32;
        p.zcullSubregionHeaderSize = kGpcs * 192;
        p.subregionCount = 16;
      });
  // Buffers of a context, for those who allocate them themselves; chosen.
  on<NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_PARAMS>(
      t, NV0080_CTRL_CMD_FIFO_GET_ENGINE_CONTEXT_PROPERTIES, [](const Call&, auto& p) {
        p.alignment = 4096;
        p.size = 1 << 20;
      });
  // RM names the other engines of the same runlist and run queue. Each queue of graphics has one
  // copy engine.
  on<NV2080_CTRL_GPU_GET_ENGINE_PARTNERLIST_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_ENGINE_PARTNERLIST, [](const Call&, auto& p) {
        p.numPartners = 0;
        if (p.engineType == NV2080_ENGINE_TYPE_GRAPHICS && p.runqueue < kGraphicsCopyEngines) {
          p.partnerList[p.numPartners++] = NV2080_ENGINE_TYPE_COPY(p.runqueue);
        } else if (NV2080_ENGINE_TYPE_IS_COPY(p.engineType) &&
                   p.engineType - NV2080_ENGINE_TYPE_COPY0 < kGraphicsCopyEngines) {
          p.partnerList[p.numPartners++] = NV2080_ENGINE_TYPE_GRAPHICS;
        }
      });
  on<NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_FB_GET_FB_REGION_INFO, [](const Call&, auto& p) {
        p = {};
        p.numFBRegions = 1;
        p.fbRegion[0].limit = accounting.total() - 1;
        p.fbRegion[0].performance = 100;  // chosen: there is no other to compare it with
        p.fbRegion[0].supportCompressed = p.fbRegion[0].supportISO = 1;
      });
  on<NV2080_CTRL_FB_GET_GPU_CACHE_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_FB_GET_GPU_CACHE_INFO, [](const Call&, auto& p) {
        p.powerState = NV2080_CTRL_FB_GET_GPU_CACHE_INFO_POWER_STATE_ENABLED;
        p.writeMode = NV2080_CTRL_FB_GET_GPU_CACHE_INFO_WRITE_MODE_WRITEBACK;
        p.bypassMode = NV2080_CTRL_FB_GET_GPU_CACHE_INFO_BYPASS_MODE_DISABLED;
        p.rcmState = NV2080_CTRL_FB_GET_GPU_CACHE_INFO_RCM_STATE_FULL;
      });
  on<NV0000_CTRL_GSYNC_GET_ATTACHED_IDS_PARAMS>(
      t, NV0000_CTRL_CMD_GSYNC_GET_ATTACHED_IDS, [](const Call&, auto& p) {
        std::fill(std::begin(p.gsyncIds), std::end(p.gsyncIds), NV0000_CTRL_GSYNC_INVALID_ID);
      });
  on<NV0080_CTRL_GR_GET_INFO_PARAMS>(t, NV0080_CTRL_CMD_GR_GET_INFO, [](const Call& call, auto& p) {
    return fill_list<NV0080_CTRL_GR_INFO>(p.grInfoList, p.grInfoListSize, gr_info);
  });
  on<NV0080_CTRL_GR_GET_CAPS_PARAMS>(t, NV0080_CTRL_CMD_GR_GET_CAPS, no_capabilities);
  accept(t, {NV2080_CTRL_CMD_GR_CTXSW_ZCULL_BIND});
}

void add_memory_controls(Controls& t) {
  on<NV0041_CTRL_GET_SURFACE_INFO_PARAMS>(
      t, NV0041_CTRL_CMD_GET_SURFACE_INFO, [](const Call& call, auto& p) {
        const MemoryPtr memory = memory_of(call.client, call.object);
        if (memory == nullptr) return static_cast<NV_STATUS>(NV_ERR_INVALID_OBJECT);
        return fill_list<NV0041_CTRL_SURFACE_INFO>(
            p.surfaceInfoList, p.surfaceInfoListSize, [&](uint32_t index) -> uint32_t {
              switch (index) {
                case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_SIZE:
                  return static_cast<uint32_t>(memory->size / 4096);
                case NV0041_CTRL_SURFACE_INFO_INDEX_PHYS_ATTR:
                  return memory->attr;
                case NV0041_CTRL_SURFACE_INFO_INDEX_ADDR_SPACE_TYPE:
                  return memory->kind == Kind::kVideo
                             ? NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_VIDMEM
                             : NV0000_CTRL_CMD_CLIENT_GET_ADDR_SPACE_TYPE_SYSMEM;
                default:
                  return 0;
              }
            });
      });
  on<NV0041_CTRL_GET_MEM_PAGE_SIZE_PARAMS>(
      t, NV0041_CTRL_CMD_GET_MEM_PAGE_SIZE, [](const Call& call, auto& p) {
        const MemoryPtr memory = memory_of(call.client, call.object);
        p.pageSize = memory != nullptr && memory->kind == Kind::kVideo ? 2 << 20 : 4096;
      });
  accept(t, {NV0041_CTRL_CMD_SURFACE_FLUSH_GPU_CACHE});
}

// NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS of 470. The size is that of libcuda 470.256.02's
// request; the fields are inferred from 535's.
struct SmOrder470 {
  struct {
    NvU16 gpcId, localTpcId, localSmId, globalTpcId;
  } globalSmId[NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER_MAX_SM_COUNT];
  NvU16 numSm, numTpc;
  NV_DECLARE_ALIGNED(NV2080_CTRL_GR_ROUTE_INFO grRouteInfo, 8);
};

// NV2080_CTRL_GPU_GET_PID_INFO_PARAMS of 470. The size is that of NVML 470.256.02's request; the
// fields are inferred from 535's, and nvidia-smi 470 then shows the right use.
struct ProcessInfos470 {
  NvU32 pidInfoListCount;
  struct {
    NvU32 pid, index, result;
    struct {
      struct {
        alignas(8) NvU64 memPrivate;
        NvU64 memSharedOwned, memSharedDuped;
      } vidMemUsage;
    } data;
    NV2080_CTRL_SMC_SUBSCRIPTION_INFO smcSubscription;
  } pidInfoList[NV2080_CTRL_GPU_GET_PID_INFO_MAX_COUNT];
};

template <class Infos>
NV_STATUS describe_processes(int gpu, Infos& infos) {
  if (infos.pidInfoListCount > std::size(infos.pidInfoList)) return NV_ERR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < infos.pidInfoListCount; ++i) {
    auto& info = infos.pidInfoList[i];
    memset(&info.data, 0, sizeof info.data);
    info.result = NV_OK;
    if (info.index == NV2080_CTRL_GPU_PID_INFO_INDEX_VIDEO_MEMORY_USAGE)
      info.data.vidMemUsage.memPrivate = accounting.used_by(static_cast<int>(info.pid), gpu);
  }
  return NV_OK;
}

template <class Order>
void order_sms(Order& order) {
  uint16_t sm_count = 0, tpc_count = 0;
  for (uint32_t gpc = 0; gpc < kGpcs; ++gpc) {
    for (uint32_t tpc = 0; tpc < kTpcsPerGpc; ++tpc) {
      if ((kTpcMasks[gpc] >> tpc & 1) == 0) continue;
      for (uint32_t sm = 0; sm < kSmsPerTpc; ++sm) {
        auto& id = order.globalSmId[sm_count++];
        id.gpcId = static_cast<uint16_t>(gpc);
        id.localTpcId = static_cast<uint16_t>(tpc);
        id.localSmId = static_cast<uint16_t>(sm);
        id.globalTpcId = tpc_count;
      }
      ++tpc_count;
    }
  }
  order.numSm = sm_count;
  order.numTpc = tpc_count;
}

void add_gpu_controls(Controls& t) {
  on<NV2080_CTRL_GPU_GET_INFO_V2_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_INFO_V2, [](const Call& call, auto& p) {
        return fill_list(p.gpuInfoList, p.gpuInfoListSize, gpu_info);
      });
  on<NV2080_CTRL_FB_GET_INFO_V2_PARAMS>(
      t, NV2080_CTRL_CMD_FB_GET_INFO_V2, [](const Call& call, auto& p) {
        return fill_list(p.fbInfoList, p.fbInfoListSize,
                         [&](uint32_t index) { return fb_info(call.gpu, index); });
      });
  on<NV2080_CTRL_FB_GET_INFO_PARAMS>(t, NV2080_CTRL_CMD_FB_GET_INFO, [](const Call& call, auto& p) {
    return fill_list<NV2080_CTRL_FB_INFO>(p.fbInfoList, p.fbInfoListSize,
                                          [&](uint32_t index) { return fb_info(call.gpu, index); });
  });
  on<NV2080_CTRL_BUS_GET_INFO_V2_PARAMS>(
      t, NV2080_CTRL_CMD_BUS_GET_INFO_V2, [](const Call& call, auto& p) {
        return fill_list(p.busInfoList, p.busInfoListSize,
                         [&](uint32_t index) { return bus_info(call.gpu, index); });
      });
  on<NV2080_CTRL_GPU_GET_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_INFO, [](const Call& call, auto& p) {
        return fill_list<NV2080_CTRL_GPU_INFO>(p.gpuInfoList, p.gpuInfoListSize, gpu_info);
      });
  on<NV2080_CTRL_BUS_GET_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_BUS_GET_INFO, [](const Call& call, auto& p) {
        return fill_list<NV2080_CTRL_BUS_INFO>(
            p.busInfoList, p.busInfoListSize,
            [&](uint32_t index) { return bus_info(call.gpu, index); });
      });
  on<NV2080_CTRL_GR_GET_INFO_PARAMS>(t, NV2080_CTRL_CMD_GR_GET_INFO, [](const Call& call, auto& p) {
    return fill_list<NV2080_CTRL_GR_INFO>(p.grInfoList, p.grInfoListSize, gr_info);
  });
  on<NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_NAME_STRING,
      [](const Call&, auto& p) { write_text(p.gpuNameString.ascii, chip().name); });
  on<NV2080_CTRL_GPU_GET_SHORT_NAME_STRING_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING,
      [](const Call&, auto& p) { write_text(p.gpuShortNameString, chip().short_name); });
  on<NV2080_CTRL_GPU_GET_GID_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_GID_INFO, [](const Call& call, auto& p) {
        p.length = write_uuid(p.data, call.gpu,
                              (p.flags & NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY) != 0);
      });
  on<NV2080_CTRL_GPU_GET_ID_PARAMS>(t, NV2080_CTRL_CMD_GPU_GET_ID,
                                    [](const Call& call, auto& p) { p.gpuId = id_of(call.gpu); });
  on<NV2080_CTRL_MC_GET_ARCH_INFO_PARAMS>(t, NV2080_CTRL_CMD_MC_GET_ARCH_INFO,
                                          [](const Call&, auto& p) {
                                            p.architecture = chip().architecture;
                                            p.implementation = chip().implementation;
                                            p.revision = 0xa1;
                                            p.subRevision = 0;
                                          });
  on<NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS>(t, NV2080_CTRL_CMD_BUS_GET_PCI_INFO,
                                          [](const Call&, auto& p) {
                                            constexpr uint32_t kSubsystem = 0x16f3;
                                            p.pciDeviceId = chip().pci_device << 16 | kPciVendor;
                                            p.pciSubSystemId = kSubsystem << 16 | kPciVendor;
                                            p.pciRevisionId = 0xa1;
                                            p.pciExtDeviceId = chip().pci_device;
                                          });
  on<NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_BUS_GET_PCI_BAR_INFO, [](const Call&, auto& p) {
        const auto bar = [&](int index, uint64_t size, uint64_t offset) {
          p.pciBarInfo[index].barSize = static_cast<uint32_t>(size >> 20);
          p.pciBarInfo[index].barSizeBytes = size;
          p.pciBarInfo[index].barOffset = offset;
        };
        p = {};
        p.pciBarCount = 3;
        bar(0, 16 << 20, 0xd0000000);
        bar(1, kBar1Size, 0x2000000000);
        bar(2, 32 << 20, 0x2800000000);
      });
  on<NV2080_CTRL_GR_GET_GPC_MASK_PARAMS>(
      t, NV2080_CTRL_CMD_GR_GET_GPC_MASK,
      [](const Call&, auto& p) { p.gpcMask = (1 << kGpcs) - 1; });
  on<NV2080_CTRL_GR_GET_TPC_MASK_PARAMS>(
      t, NV2080_CTRL_CMD_GR_GET_TPC_MASK,
      [](const Call&, auto& p) { p.tpcMask = p.gpcId < kGpcs ? kTpcMasks[p.gpcId] : 0; });
  on<NV2080_CTRL_GR_GET_GLOBAL_SM_ORDER_PARAMS>(
      t, NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER, [](const Call& call, auto& p) {
        if (call.size == sizeof(SmOrder470)) return order_sms(reinterpret_cast<SmOrder470&>(p));
        order_sms(p);
        for (auto& id : p.globalSmId) {
          id.virtualGpcId = id.gpcId;
          id.migratableTpcId = id.localTpcId;
        }
      });
  on<NV2080_CTRL_GR_GET_SM_ISSUE_RATE_MODIFIER_PARAMS>(
      t, NV2080_CTRL_CMD_GR_GET_SM_ISSUE_RATE_MODIFIER, [](const Call&, auto& p) {
        const auto route = p.grRouteInfo;
        p = {};
        p.grRouteInfo = route;
      });
  on<NV2080_CTRL_GR_GET_CTX_BUFFER_SIZE_PARAMS>(
      t, NV2080_CTRL_CMD_GR_GET_CTX_BUFFER_SIZE,
      [](const Call&, auto& p) { p.totalBufferSize = 6 << 20; });
  on<NV2080_CTRL_FLCN_GET_CTX_BUFFER_SIZE_PARAMS>(
      t, NV2080_CTRL_CMD_FLCN_GET_CTX_BUFFER_SIZE,
      [](const Call&, auto& p) { p.totalBufferSize = 4096; });
  on<NV2080_CTRL_CE_GET_CAPS_V2_PARAMS>(
      t, NV2080_CTRL_CMD_CE_GET_CAPS_V2, [](const Call&, auto& p) {
        copy_engine_capabilities(p.capsTbl, p.ceEngineType - NV2080_ENGINE_TYPE_COPY0);
      });
  on<NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS>(
      t, NV2080_CTRL_CMD_CE_GET_ALL_CAPS, [](const Call& call, auto& p) {
        if (call.size == sizeof(CopyEngines550))
          return describe_copy_engines(reinterpret_cast<CopyEngines550&>(p));
        describe_copy_engines(p);
      });
  on<NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS>(
      t, NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK, [](const Call&, auto& p) {
        p.pceMask = 1u << ((p.ceEngineType - NV2080_ENGINE_TYPE_COPY0) & 31);
      });
  on<NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS>(t, NV2080_CTRL_CMD_GPU_GET_ENGINES_V2,
                                            [](const Call&, auto& p) {
                                              const std::vector<uint32_t> list = engines();
                                              std::copy(list.begin(), list.end(), p.engineList);
                                              p.engineCount = static_cast<uint32_t>(list.size());
                                            });
  on<NV2080_CTRL_GPU_GET_ENGINES_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_ENGINES,
      [](const Call&, auto& p) { return write_list(p.engineList, p.engineCount, engines()); });
  on<NV2080_CTRL_GPU_GET_ENGINE_CLASSLIST_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_ENGINE_CLASSLIST, [](const Call&, auto& p) {
        return write_list(p.classList, p.numClasses,
                          p.engineType == NV2080_ENGINE_TYPE_GRAPHICS
                              ? std::vector<uint32_t>{chip().compute_class}
                          : NV2080_ENGINE_TYPE_IS_COPY(p.engineType)
                              ? std::vector<uint32_t>{AMPERE_DMA_COPY_B}
                              : std::vector<uint32_t>{});
      });
  on<NV2080_CTRL_GSP_GET_FEATURES_PARAMS>(t, NV2080_CTRL_CMD_GSP_GET_FEATURES,
                                          [](const Call&, auto& p) {
                                            p = {};
                                            p.gspFeatures = p.bValid = p.bDefaultGspRmGpu = 1;
                                            write_text(p.firmwareVersion, accounting.driver());
                                          });
  on<NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS>(t, NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS,
                                              [](const Call&, auto& p) {
                                                const uint32_t flags = p.flags;
                                                const auto route = p.grRouteInfo;
                                                p = {};
                                                p.flags = flags;
                                                p.grRouteInfo = route;
                                              });
  on<NV2080_CTRL_GPU_GET_PIDS_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_PIDS, [](const Call& call, auto& p) {
        p.pidTblCount = 0;
        if (p.idType != NV2080_CTRL_GPU_GET_PIDS_ID_TYPE_CLASS) return;
        for (const Process& process : accounting.processes()) {
          const Use& use = process.use[call.gpu];
          const bool asked = p.id == chip().compute_class    ? use.compute_objects != 0
                             : p.id == chip().graphics_class ? use.graphics_objects != 0
                                                             : p.id == NV20_SUBDEVICE_0 && use.used;
          if (asked && p.pidTblCount < std::size(p.pidTbl))
            p.pidTbl[p.pidTblCount++] = static_cast<uint32_t>(process.pid);
        }
      });
  on<NV2080_CTRL_GPU_GET_PID_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_GPU_GET_PID_INFO, [](const Call& call, auto& p) {
        return call.size == sizeof(ProcessInfos470)
                   ? describe_processes(call.gpu, reinterpret_cast<ProcessInfos470&>(p))
                   : describe_processes(call.gpu, p);
      });
  on<NV2080_CTRL_TIMER_GET_TIME_PARAMS>(t, NV2080_CTRL_CMD_TIMER_GET_TIME,
                                        [](const Call&, auto& p) { p.time_nsec = now(); });
  on<NV2080_CTRL_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO, [](const Call&, auto& p) {
        if (p.sampleCount > std::size(p.samples)) return NV_ERR_INVALID_ARGUMENT;
        for (uint32_t i = 0; i < p.sampleCount; ++i)
          p.samples[i].cpuTime = p.samples[i].gpuTime = now();
        return NV_OK;
      });
  on<NV2080_CTRL_RC_GET_WATCHDOG_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_RC_GET_WATCHDOG_INFO, [](const Call&, auto& p) {
        p.watchdogStatusFlags = NV2080_CTRL_RC_GET_WATCHDOG_INFO_FLAGS_DISABLED |
                                NV2080_CTRL_RC_GET_WATCHDOG_INFO_FLAGS_INITIALIZED;
      });
  on<NV2080_CTRL_GRMGR_GET_GR_FS_INFO_PARAMS>(
      t, NV2080_CTRL_CMD_GRMGR_GET_GR_FS_INFO, [](const Call&, auto& p) {
        if (p.numQueries > std::size(p.queries)) return NV_ERR_INVALID_ARGUMENT;
        for (uint32_t i = 0; i < p.numQueries; ++i) {
          auto& query = p.queries[i];
          auto& data = query.queryData;
          query.status = NV_OK;
          switch (query.queryType) {
            case NV2080_CTRL_GRMGR_GR_FS_INFO_QUERY_GPC_COUNT:
              data.gpcCountData.gpcCount = kGpcs;
              break;
            case NV2080_CTRL_GRMGR_GR_FS_INFO_QUERY_CHIPLET_GPC_MAP:
              data.chipletGpcMapData.chipletGpcMap = data.chipletGpcMapData.gpcId;
              break;
            case NV2080_CTRL_GRMGR_GR_FS_INFO_QUERY_TPC_MASK:
              data.tpcMaskData.tpcMask =
                  data.tpcMaskData.gpcId < kGpcs ? kTpcMasks[data.tpcMaskData.gpcId] : 0;
              break;
            case NV2080_CTRL_GRMGR_GR_FS_INFO_QUERY_PPC_MASK:
              data.ppcMaskData.ppcMask = 7;
              break;
            default:
              query.status = NV_ERR_NOT_SUPPORTED;
              break;
          }
        }
        return NV_OK;
      });
  answer_zeros(
      t,
      {NV2080_CTRL_CMD_GPU_GET_SIMULATION_INFO, NV2080_CTRL_CMD_GPU_QUERY_ECC_CONFIGURATION,
       NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES, NV2080_CTRL_CMD_GPU_GET_COMPUTE_POLICY_CONFIG,
       NV2080_CTRL_CMD_GPU_GET_ACTIVE_PARTITION_IDS, NV2080_CTRL_CMD_BUS_GET_C2C_INFO,
       NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS, NV2080_CTRL_CMD_NVLINK_GET_NVLINK_CAPS,
       NV2080_CTRL_CMD_NVLINK_GET_NVLINK_STATUS});
  accept(t, {NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE, NV2080_CTRL_CMD_TIMER_SET_GR_TICK_FREQ,
             NV2080_CTRL_CMD_RC_RELEASE_WATCHDOG_REQUESTS, NV2080_CTRL_CMD_RC_SOFT_DISABLE_WATCHDOG,
             NV2080_CTRL_CMD_PERF_BOOST, NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
             NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS});
}

void add_channel_controls(Controls& t) {
  on<NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS>(
      t, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, [](const Call& call, auto& p) {
        const Object* object = find_object(call.client, call.object);
        p.workSubmitToken =
            object != nullptr && object->channel != nullptr ? object->channel->id : 0;
      });
  const auto class_and_engine = [](const Call& call, auto& p) {
    const Object* object = find_object(call.client, p.hObject);
    p.classID = p.classEngineID = object == nullptr ? 0 : object->object_class;
    p.engineID = 1;
  };
  on<NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS>(t, NV906F_CTRL_GET_CLASS_ENGINEID, class_and_engine);
  on<NV906F_CTRL_GET_CLASS_ENGINEID_PARAMS>(t, NVC36F_CTRL_GET_CLASS_ENGINEID, class_and_engine);
  accept(t, {NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX,
             NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
             NV906F_CTRL_CMD_RESET_CHANNEL, NVA06C_CTRL_CMD_SET_TIMESLICE, NVA06C_CTRL_CMD_PREEMPT,
             NVA06F_CTRL_CMD_BIND, NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK,
             NV83DE_CTRL_CMD_DEBUG_SET_MODE_MMU_DEBUG, NV83DE_CTRL_CMD_DEBUG_SET_MODE_ERRBAR_DEBUG,
             NV83DE_CTRL_CMD_DEBUG_CLEAR_ALL_SM_ERROR_STATES, NV503C_CTRL_CMD_REGISTER_VA_SPACE,
             NV503C_CTRL_CMD_REGISTER_VIDMEM, NV503C_CTRL_CMD_UNREGISTER_VIDMEM});
  answer_zeros(t, {NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_CAPABILITIES,
                   NV_CONF_COMPUTE_CTRL_CMD_SYSTEM_GET_GPUS_STATE,
                   NV90E6_CTRL_CMD_MASTER_GET_VIRTUAL_FUNCTION_ERROR_CONT_INTR_MASK});
}

// Commands without a public name or layout, that the libraries send and whose success is all they
// look at.
void add_unnamed_controls(Controls& t) {
  accept(t, {0x20810107, 0x20808159, 0x20808161, 0x20808162, 0x00809909, 0x20800145, 0x20800146});
  accept(t, {0x00000289, 0x00801909, 0x20810108, 0x20810110});  // of 550
  accept(t, {0x20800159, 0x20800161});                          // of 470
}

// The parameters of 470 are shorter, by libcuda's and NVML's requests.
void shorten_controls(Controls& t) {
  t[NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS].size = 904;
  t[NV2080_CTRL_CMD_FB_GET_INFO_V2].size = 412;
  t[NV2080_CTRL_CMD_GPU_GET_SHORT_NAME_STRING].size = 64;
  t[NV2080_CTRL_CMD_GR_GET_GLOBAL_SM_ORDER].size = sizeof(SmOrder470);
  t[NV2080_CTRL_CMD_GPU_GET_PID_INFO].size = sizeof(ProcessInfos470);
}

// Which clocks there are, and how fast each is. Without an answer CUDA's runtime does not start. No
// layout is public: these are the words that a GPU answers.
void add_clock_controls(Controls& t) {
  const auto answer_words = [&](uint32_t command, auto words) {
    on<decltype(words)>(t, command, [words](const Call&, auto& p) { p = words; });
  };
  answer_words(0x20809001, std::array<uint32_t, 2>{0x03fc007f, 0});
  answer_words(0x20809009, std::array<uint32_t, 2>{0, 0xd});
  accept(t, {0x2080a001, 0x2080a026, 0x2080a084});
  answer_words(0x20809064, std::array<uint32_t, 10>{0, 2, 1, 1, 1, 100, 4, 16, 1, 100});
}

// What nvidia-smi asks of sensors, clocks, fans and power has no public name.
void add_refused_controls(Controls& t) {
  refuse(t, {NV2080_CTRL_CMD_GPU_GET_INFOROM_OBJECT_VERSION,
             NV2080_CTRL_CMD_GPU_QUERY_INFOROM_ECC_SUPPORT,
             NV2080_CTRL_CMD_GET_GPU_FABRIC_PROBE_INFO, 0x20802068, 0x2080852e, 0x20808513,
             0x2080a068, 0x2080a097, 0x2080a612, 0x2080a618, 0x2080a637});
  refuse(t, {0x20801352, 0x2080a0d1});  // of Vulkan and OpenGL 550
  // Of 470.
  refuse(t, {NV0073_CTRL_CMD_SYSTEM_GET_ACTIVE, NV208F_CTRL_CMD_GPU_VERIFY_INFOROM, 0x20800512,
             0x2080052e, 0x2080052f, 0x20801009, 0x20802612, 0x20802618, 0x20802637});
}

const Controls& controls() {
  static const Controls& table = *[] {
    auto* t = new Controls;
    add_client_controls(*t);
    add_device_controls(*t);
    add_graphics_controls(*t);
    add_memory_controls(*t);
    add_gpu_controls(*t);
    add_channel_controls(*t);
    add_unnamed_controls(*t);
    add_clock_controls(*t);
    add_refused_controls(*t);
    shorten_controls(*t);
    return t;
  }();
  return table;
}

}  // namespace

const Chip& chip() {
  return atoi(accounting.driver()) == 470 ? kGa102 : kAd102;
}

NV_STATUS rm_control(uint32_t client, uint32_t object, uint32_t command, NvP64 user,
                     uint32_t size) {
  constexpr uint32_t kLargest = 4 << 20;
  trace("RM_CONTROL %x %s, client %x, object %x, %u bytes", command,
        tracing() ? control_name(command) : "", client, object, size);
  const auto entry = controls().find(command);
  if (entry == controls().end()) {
    report_unknown("control", command, control_name(command), size);
    return NV_ERR_NOT_SUPPORTED;
  }
  if (size < entry->second.size || size > kLargest) {
    report_unknown("size of control", command, control_name(command), size);
    return NV_ERR_INVALID_PARAM_STRUCT;
  }
  // Aligned as any of them wants it, and with room for the parameters of a later release.
  std::vector<uint64_t> parameters((size + 7) / 8 + 128);
  if (!copy_from_user(parameters.data(), user_pointer(user), size)) return NV_ERR_INVALID_POINTER;
  const Object* const target = find_object(client, object);
  const int gpu = target != nullptr ? target->gpu : 0;
  const NV_STATUS status = entry->second.answer({client, object, size, gpu}, parameters.data());
  if (status != NV_OK) trace("  status %x", status);
  if (status == NV_OK && !copy_to_user(user_pointer(user), parameters.data(), size))
    return NV_ERR_INVALID_POINTER;
  return status;
}

}  // namespace rmsim
