// RM: the ioctls ("escapes") of /dev/nvidiactl and the GPUs' devices, and the objects that clients
// make with them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "diagnostics.h"
#include "kernel.h"
#include "page_tables.h"
#include "user_memory.h"

namespace rmsim {

std::recursive_mutex& kernel_lock = *new std::recursive_mutex;
std::map<int, Descriptor>& descriptors = *new std::map<int, Descriptor>;

namespace {

// NVOS64_PARAMETERS as it was before 535 (gVisor's nvproxy has both).
struct AllocateBefore535 {
  NvHandle hRoot, hObjectParent, hObjectNew;
  NvU32 hClass;
  NvP64 pAllocParms, pRightsRequested;
  NvU32 flags, status;
};

constexpr uint64_t kSmallPage = 4096, kBigPage = 64 << 10, kHugePage = 2 << 20;
constexpr uint64_t kRegisterBytes = 16 << 20;

// Escapes that the headers of 535 do not name.
constexpr uint32_t kEscapeNumaInfo = NV_IOCTL_BASE + 15;
constexpr uint32_t kEscapeWaitOpenComplete = NV_IOCTL_BASE + 18;  // NVML 550

using Handles = std::pair<uint32_t, uint32_t>;  // client, object
auto& objects = *new std::map<Handles, Object>;
uint32_t next_handle = 0xcaf00000;
uint32_t next_channel = 1;

uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool is_power_of_two(uint64_t value) {
  return value != 0 && (value & (value - 1)) == 0;
}

// ---- Allocations

// Addresses without memory, for those who map into them.
NV_STATUS allocate_addresses(Object& object, NV_MEMORY_ALLOCATION_PARAMS& p) {
  static uint64_t next = 0x4000000000;  // push buffers have addresses of 40 bits
  const uint64_t size = round_up(p.size, kSmallPage);
  if ((p.flags & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE) == 0) {
    p.offset =
        round_up(next, is_power_of_two(p.alignment) ? std::max<uint64_t>(p.alignment, kHugePage)
                                                    : kHugePage);
    next = p.offset + round_up(size, kHugePage);
  }
  object.memory = std::make_shared<Memory>(Kind::kVirtual, size, nullptr);
  object.gpu_address = p.offset;
  p.size = size;
  p.limit = p.offset + size - 1;
  return NV_OK;
}

// The pages decide how much an allocation takes: the driver asks for their size, or leaves it to
// RM.
uint64_t page_size(const NV_MEMORY_ALLOCATION_PARAMS& p) {
  switch (DRF_VAL(OS32, _ATTR, _PAGE_SIZE, p.attr)) {
    case NVOS32_ATTR_PAGE_SIZE_HUGE:
      return kHugePage;
    case NVOS32_ATTR_PAGE_SIZE_BIG:
      return kBigPage;
    case NVOS32_ATTR_PAGE_SIZE_4KB:
      return kSmallPage;
    default:
      return p.size >= kHugePage ? kHugePage : kBigPage;
  }
}

NV_STATUS allocate(Object& object, NV_MEMORY_ALLOCATION_PARAMS& p) {
  if ((p.flags & NVOS32_ALLOC_FLAGS_VIRTUAL) != 0) return allocate_addresses(object, p);
  const bool video = object.object_class == NV01_MEMORY_LOCAL_USER;
  const uint64_t page = video ? page_size(p) : kSmallPage;
  const uint64_t asked = p.size;
  if (asked > Accounting::kWindow) return NV_ERR_NO_MEMORY;
  const uint64_t size = std::max(round_up(asked, page), page);
  const uint64_t alignment =
      is_power_of_two(p.alignment) ? std::max<uint64_t>(p.alignment, page) : page;
  object.memory =
      allocate_memory(object.gpu, video ? Kind::kVideo : Kind::kSystem, size, alignment);
  trace("  %s memory: asked %llu, pages of %llu, %s", video ? "video" : "system",
        static_cast<unsigned long long>(asked), static_cast<unsigned long long>(page),
        object.memory ? "granted" : "refused");
  if (object.memory == nullptr) return NV_ERR_NO_MEMORY;
  if (video) note_allocation(object.memory, asked);
  p.size = size;
  p.limit = size - 1;
  p.offset = physical_address(*object.memory);
  if (DRF_VAL(OS32, _ATTR, _PAGE_SIZE, p.attr) == NVOS32_ATTR_PAGE_SIZE_DEFAULT) {
    const uint32_t chosen = page == kHugePage  ? NVOS32_ATTR_PAGE_SIZE_HUGE
                            : page == kBigPage ? NVOS32_ATTR_PAGE_SIZE_BIG
                                               : NVOS32_ATTR_PAGE_SIZE_4KB;
    p.attr = FLD_SET_DRF_NUM(OS32, _ATTR, _PAGE_SIZE, chosen, p.attr);
  }
  if (page == kHugePage) p.attr2 = FLD_SET_DRF(OS32, _ATTR2, _PAGE_SIZE_HUGE, _2MB, p.attr2);
  p.attr = video ? FLD_SET_DRF(OS32, _ATTR, _LOCATION, _VIDMEM, p.attr)
                 : FLD_SET_DRF(OS32, _ATTR, _LOCATION, _PCI, p.attr);
  object.memory->attr = p.attr;
  object.memory->attr2 = p.attr2;
  return NV_OK;
}

NV_STATUS allocate_channel(Object& object, NV_CHANNEL_ALLOC_PARAMS& p) {
  if (p.gpFifoEntries == 0) return NV_ERR_INVALID_ARGUMENT;
  const Object* control = find_object(object.client, p.hUserdMemory[0]);
  uint64_t offset = p.userdOffset[0];
  MemoryPtr page = control == nullptr ? nullptr : control->memory;
  if (page == nullptr) {
    page = object.memory = allocate_memory(object.gpu, Kind::kRegisters, kSmallPage, kSmallPage);
    offset = 0;
  }
  if (page->host == nullptr || offset > page->size || page->size - offset < sizeof(Nvc56fControl))
    return NV_ERR_INVALID_OFFSET;
  auto* channel = new Channel;
  channel->id = p.cid = next_channel++;
  channel->client = object.client;
  channel->handle = object.handle;
  channel->gpfifo = p.gpFifoOffset;
  channel->entries = p.gpFifoEntries;
  channel->control = reinterpret_cast<volatile Nvc56fControl*>(page->host + offset);
  if (object.memory == nullptr) object.memory = page;  // it must not go before the channel
  object.channel = channel;
  engine::add(channel);
  return NV_OK;
}

NV_STATUS choose_gpu(Object& object, NV0080_ALLOC_PARAMETERS& p) {
  if (p.deviceId >= static_cast<uint32_t>(accounting.gpus())) return NV_ERR_INVALID_DEVICE;
  object.gpu = static_cast<int>(p.deviceId);
  return NV_OK;
}

// Parameters that a class must have are copied in and out; what the others have says nothing that
// matters here.
template <class Parameters>
NV_STATUS with_parameters(Object& object, void* user, NV_STATUS (*make)(Object&, Parameters&)) {
  Parameters parameters{};
  if (user == nullptr || !copy_from_user(&parameters, user, sizeof parameters))
    return NV_ERR_INVALID_POINTER;
  const NV_STATUS status = make(object, parameters);
  if (status != NV_OK) return status;
  return copy_to_user(user, &parameters, sizeof parameters) ? NV_OK : NV_ERR_INVALID_POINTER;
}

// `size`: of the parameters, if the request names it.
NV_STATUS make_object(Object& object, void* user, uint32_t size) {
  constexpr uint64_t kDoorbells = 64 << 10;
  constexpr uint32_t kGridDisplayless = 0xa083;
  switch (object.object_class) {
    case NV01_DEVICE_0:
      if (user == nullptr) return NV_OK;  // the first one
      return with_parameters<NV0080_ALLOC_PARAMETERS>(object, user, choose_gpu);
    case NV01_MEMORY_LOCAL_USER:
    case NV01_MEMORY_SYSTEM:
      return with_parameters<NV_MEMORY_ALLOCATION_PARAMS>(object, user, allocate);
    case NV01_MEMORY_VIRTUAL:
    case NV50_MEMORY_VIRTUAL:
      object.memory = std::make_shared<Memory>(Kind::kVirtual, 0, nullptr);
      return NV_OK;
    case RM_USER_SHARED_DATA:
      object.memory = allocate_memory(object.gpu, Kind::kSystem, kDoorbells, kSmallPage);
      return NV_OK;
    case TURING_USERMODE_A:
    case VOLTA_USERMODE_A:
      object.memory = allocate_memory(object.gpu, Kind::kRegisters, kDoorbells, kDoorbells);
      return NV_OK;
    case AMPERE_CHANNEL_GPFIFO_A:
      return with_parameters<NV_CHANNEL_ALLOC_PARAMS>(object, user, allocate_channel);
    case NV20_SUBDEVICE_0:
    case NV2081_BINAPI:
    case NV01_EVENT_OS_EVENT:
    case GT200_DEBUGGER:
    case FERMI_CONTEXT_SHARE_A:
    case FERMI_VASPACE_A:
    case KEPLER_CHANNEL_GROUP_A:
    case AMPERE_DMA_COPY_B:
    case FERMI_TWOD_A:
    case KEPLER_INLINE_TO_MEMORY_B:
    case ADA_A:
    case AMPERE_B:
    case GF100_ZBC_CLEAR:
    case NV01_EVENT:
    case NV_CONFIDENTIAL_COMPUTE:
      return NV_OK;
    case ADA_COMPUTE_A:
    case AMPERE_COMPUTE_B:  // its registers can be mapped
      object.memory = allocate_memory(object.gpu, Kind::kRegisters, kSmallPage, kSmallPage);
      return NV_OK;
    case NV04_DISPLAY_COMMON:  // it has no display, is no vGPU, and is not diagnosed
    case NV30_GSYNC:
    case kGridDisplayless:
    case NV20_SUBDEVICE_DIAG:
      return NV_ERR_NOT_SUPPORTED;
    default:
      report_unknown("class", object.object_class, "RM_ALLOC", size);
      return NV_ERR_INVALID_CLASS;
  }
}

NV_STATUS allocate_object(int fd, uint32_t& client, uint32_t parent, uint32_t& handle,
                          uint32_t object_class, NvP64 parameters, uint32_t size) {
  trace("RM_ALLOC client %x, parent %x, object %x, class %x", client, parent, handle, object_class);
  if (object_class == NV01_ROOT || object_class == NV01_ROOT_NON_PRIV ||
      object_class == NV01_ROOT_CLIENT) {
    if (handle == 0) handle = accounting.new_client();
    client = handle;
    objects[{handle, handle}] = Object{handle, handle, 0, object_class, nullptr};
    descriptors[fd].clients.push_back(handle);
    return NV_OK;
  }
  if (find_object(client, parent) == nullptr) return NV_ERR_INVALID_OBJECT_PARENT;
  if (handle != 0 && find_object(client, handle) != nullptr) return NV_ERR_INSERT_DUPLICATE_NAME;
  Object* object = add_object(client, parent, handle, object_class);
  const NV_STATUS status = make_object(*object, user_pointer(parameters), size);
  if (status != NV_OK) free_object(client, handle);
  return status;
}

NV_STATUS allocate_on_heap(NVOS32_PARAMETERS& p) {
  auto& request = p.data.AllocSize;
  if (find_object(p.hRoot, p.hObjectParent) == nullptr) return NV_ERR_INVALID_OBJECT_PARENT;
  const bool video = DRF_VAL(OS32, _ATTR, _LOCATION, request.attr) == NVOS32_ATTR_LOCATION_VIDMEM;
  uint32_t handle = request.hMemory;
  Object* object = add_object(p.hRoot, p.hObjectParent, handle,
                              video ? NV01_MEMORY_LOCAL_USER : NV01_MEMORY_SYSTEM);
  NV_MEMORY_ALLOCATION_PARAMS q{};
  q.owner = request.owner;
  q.type = request.type;
  q.flags = request.flags;
  q.size = request.size;
  q.alignment = request.alignment;
  q.attr = request.attr;
  q.attr2 = request.attr2;
  q.offset = request.offset;
  const NV_STATUS status = allocate(*object, q);
  if (status != NV_OK) {
    free_object(p.hRoot, handle);
    return status;
  }
  request.hMemory = handle;
  request.size = q.size;
  request.offset = q.offset;
  request.limit = q.limit;
  request.attr = q.attr;
  request.attr2 = q.attr2;
  return NV_OK;
}

NV_STATUS heap_control(NVOS32_PARAMETERS& p) {
  NV_STATUS status = NV_OK;
  switch (p.function) {
    case NVOS32_FUNCTION_ALLOC_SIZE:
      status = allocate_on_heap(p);
      break;
    case NVOS32_FUNCTION_FREE:
      free_object(p.hRoot, p.data.Free.hMemory);
      return NV_OK;
    case NVOS32_FUNCTION_INFO:
      break;
    default:
      report_unknown("function of VID_HEAP_CONTROL", p.function, "RM", sizeof p);
      return NV_ERR_NOT_SUPPORTED;
  }
  p.total = accounting.total();
  const Object* const object = find_object(p.hRoot, p.hObjectParent);
  p.free = accounting.total() - accounting.used(object != nullptr ? object->gpu : 0);
  return status;
}

// Whether all of it is mapped, as it must be to be pinned.
bool is_mapped(const void* address, uint64_t size) {
  const auto start = reinterpret_cast<uintptr_t>(address) & ~(kSmallPage - 1);
  if (size > Accounting::kWindow || start + size < start) return false;
  const uint64_t length = round_up(reinterpret_cast<uintptr_t>(address) - start + size, kSmallPage);
  std::vector<unsigned char> pages(length / kSmallPage);
  return mincore(reinterpret_cast<void*>(start), length, pages.data()) == 0;
}

// Pinned memory: the program's own, or the host's.
NV_STATUS allocate_host_memory(int fd, NVOS02_PARAMETERS& p) {
  if (find_object(p.hRoot, p.hObjectParent) == nullptr) return NV_ERR_INVALID_OBJECT_PARENT;
  if (p.limit >= Accounting::kWindow) return NV_ERR_INVALID_LIMIT;
  Object* object = add_object(p.hRoot, p.hObjectParent, p.hObjectNew, p.hClass);
  const uint64_t size = p.limit + 1;
  if (p.hClass == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR) {
    if (!is_mapped(user_pointer(p.pMemory), size)) {
      free_object(p.hRoot, p.hObjectNew);
      return NV_ERR_INVALID_ADDRESS;
    }
    object->memory =
        std::make_shared<Memory>(Kind::kUser, size, static_cast<char*>(user_pointer(p.pMemory)));
    return NV_OK;
  }
  if (p.hClass == NV01_MEMORY_LOCAL_PRIVILEGED) {  // the registers, which read as 0
    object->memory = allocate_memory(object->gpu, Kind::kRegisters, kRegisterBytes, kSmallPage);
    return NV_OK;
  }
  if (p.hClass == NV01_MEMORY_LOCAL_USER) {  // all memory of the GPU, which takes none
    object->memory = std::make_shared<Memory>(Kind::kVirtual, 0, nullptr);
    p.limit = accounting.total() - 1;
    return NV_OK;
  }
  if (p.hClass != NV01_MEMORY_SYSTEM) {
    report_unknown("class", p.hClass, "RM_ALLOC_MEMORY", size);
    free_object(p.hRoot, p.hObjectNew);
    return NV_ERR_INVALID_CLASS;
  }
  object->memory = allocate_memory(object->gpu, Kind::kSystem, size, kSmallPage);
  p.pMemory = reinterpret_cast<NvP64>(physical_address(*object->memory));
  const auto descriptor = descriptors.find(fd);
  if (descriptor != descriptors.end()) {
    descriptor->second.mapping = object->memory;
    descriptor->second.mapping_offset = 0;
  }
  return NV_OK;
}

// Its client is named as its parent; its parent is the memory's.
NV_STATUS allocate_context_dma(NVOS39_PARAMETERS& p) {
  const uint32_t client = p.hObjectParent;
  const Object* memory = find_object(client, p.hMemory);
  if (memory == nullptr) return NV_ERR_INVALID_OBJECT;
  if (p.hClass != NV01_CONTEXT_DMA) {
    report_unknown("class", p.hClass, "RM_ALLOC_CONTEXT_DMA2", sizeof p);
    return NV_ERR_INVALID_CLASS;
  }
  add_object(client, memory->parent, p.hObjectNew, p.hClass);
  return NV_OK;
}

// ---- Mapping and sharing

NV_STATUS map_memory_of(int fd, NVOS33_PARAMETERS& p) {
  const Object* object = find_object(p.hClient, p.hMemory);
  const auto descriptor = descriptors.find(fd);
  if (object == nullptr || object->memory == nullptr || descriptor == descriptors.end())
    return NV_ERR_INVALID_OBJECT_HANDLE;
  descriptor->second.mapping = object->memory;
  descriptor->second.mapping_offset = p.offset;
  p.pLinearAddress = reinterpret_cast<NvP64>(physical_address(*object->memory) + p.offset);
  return NV_OK;
}

NV_STATUS map_for_gpu(NVOS46_PARAMETERS& p) {
  static uint64_t next = 0x120000000;
  const Object* object = find_object(p.hClient, p.hMemory);
  if (object == nullptr || object->memory == nullptr || object->memory->host == nullptr)
    return NV_ERR_INVALID_OBJECT_HANDLE;
  if (p.offset > object->memory->size || p.length > object->memory->size - p.offset)
    return NV_ERR_INVALID_LIMIT;
  const Object* target = find_object(p.hClient, p.hDma);
  const bool fixed = DRF_VAL(OS46, _FLAGS, _DMA_OFFSET_FIXED, p.flags) != 0;
  if (target != nullptr && target->gpu_address != 0 && !fixed) {
    if (p.dmaOffset > target->memory->size || p.length > target->memory->size - p.dmaOffset)
      return NV_ERR_INVALID_OFFSET;
    p.dmaOffset += target->gpu_address;  // it is relative
  } else if (p.dmaOffset == 0) {
    p.dmaOffset = next;
    next += round_up(p.length, kHugePage);
  }
  page_tables::map(p.dmaOffset, p.length, object->memory->host + p.offset, object->memory);
  return NV_OK;
}

NV_STATUS duplicate(NVOS55_PARAMETERS& p) {
  if (const Object* source = find_object(p.hClientSrc, p.hObjectSrc)) {
    const Object copy = *source;
    add_object(p.hClient, p.hParent, p.hObject, copy.object_class)->memory = copy.memory;
    return NV_OK;
  }
  SharedObject shared{};
  if (!accounting.find_shared(p.hClientSrc, p.hObjectSrc, shared)) return NV_ERR_INVALID_OBJECT;
  MemoryPtr memory = import_memory(shared.record, shared.generation);
  if (memory == nullptr) return NV_ERR_INVALID_OBJECT;
  memory->attr = shared.attr;
  memory->attr2 = shared.attr2;
  add_object(p.hClient, p.hParent, p.hObject, shared.object_class)->memory = memory;
  return NV_OK;
}

NV_STATUS allow_duplicates(const NVOS57_PARAMETERS& p) {
  Object* object = find_object(p.hClient, p.hObject);
  if (object == nullptr) return NV_ERR_INVALID_OBJECT;
  const MemoryPtr& memory = object->memory;
  if (memory == nullptr || memory->record < 0) return NV_OK;
  const SharedObject shared{p.hClient,     p.hObject,      object->object_class, memory->attr,
                            memory->attr2, memory->record, memory->generation,   0};
  if (!accounting.share(shared)) return NV_ERR_INSUFFICIENT_RESOURCES;
  object->shared = true;
  return NV_OK;
}

// ---- Escapes

// Most have parameters of one type and size, with a status in them.
template <class Parameters, class Answer>
int answer(void* argument, uint32_t size, Answer&& fill) {
  if (size != sizeof(Parameters)) return EINVAL;
  Parameters parameters{};
  if (!copy_from_user(&parameters, argument, sizeof parameters)) return EFAULT;
  fill(parameters);
  return copy_to_user(argument, &parameters, sizeof parameters) ? 0 : EFAULT;
}

// One of the structures by which drivers of several releases request an object.
int allocate_by(int fd, void* argument, uint32_t size) {
  const auto allocate = [fd](auto& p) {
    uint32_t of_parameters = 0;
    if constexpr (requires { p.paramsSize; }) of_parameters = p.paramsSize;
    p.status = allocate_object(fd, p.hRoot, p.hObjectParent, p.hObjectNew, p.hClass, p.pAllocParms,
                               of_parameters);
  };
  switch (size) {
    case sizeof(NVOS21_PARAMETERS):
      return answer<NVOS21_PARAMETERS>(argument, size, allocate);
    case sizeof(AllocateBefore535):
      return answer<AllocateBefore535>(argument, size, allocate);
    default:
      return answer<NVOS64_PARAMETERS>(argument, size, allocate);
  }
}

int card_info(void* argument, uint32_t size) {
  std::vector<nv_ioctl_card_info_t> cards(size / sizeof(nv_ioctl_card_info_t));
  if (cards.size() < static_cast<size_t>(accounting.gpus())) return EINVAL;
  for (int gpu = 0; gpu < accounting.gpus(); ++gpu) {
    nv_ioctl_card_info_t& card = cards[static_cast<size_t>(gpu)];
    card.valid = 1;
    card.pci_info.bus = static_cast<NvU8>(bus_of(gpu));
    card.pci_info.vendor_id = kPciVendor;
    card.pci_info.device_id = chip().pci_device;
    card.gpu_id = id_of(gpu);
    card.minor_number = static_cast<NvU32>(gpu);
    card.interrupt_line = 16;
    card.reg_address = 0xd0000000 + static_cast<uint64_t>(gpu) * kRegisterBytes;
    card.reg_size = kRegisterBytes;
    card.fb_address = 0x2000000000 + (static_cast<uint64_t>(gpu) << 36);
    card.fb_size = 32ull << 30;
  }
  return copy_to_user(argument, cards.data(), cards.size() * sizeof cards[0]) ? 0 : EFAULT;
}

void count_engine_object(const Object& object, int by) {
  if (object.object_class == chip().compute_class) accounting.count_objects(object.gpu, by, 0);
  if (object.object_class == chip().graphics_class) accounting.count_objects(object.gpu, 0, by);
}

}  // namespace

int gpu_of_id(uint32_t id) {
  for (int gpu = 0; gpu < accounting.gpus(); ++gpu) {
    if (id_of(gpu) == id) return gpu;
  }
  return -1;
}

void forget_objects() {
  new (&objects) std::map<Handles, Object>;
}

Object* find_object(uint32_t client, uint32_t handle) {
  const auto entry = objects.find({client, handle});
  return entry == objects.end() ? nullptr : &entry->second;
}

Object* add_object(uint32_t client, uint32_t parent, uint32_t& handle, uint32_t object_class) {
  if (handle == 0) handle = ++next_handle;
  free_object(client, handle);
  Object& object = objects[{client, handle}];
  object = Object{client, handle, parent, object_class, nullptr};
  if (const Object* const owner = find_object(client, parent); owner != nullptr)
    object.gpu = owner->gpu;
  count_engine_object(object, 1);
  return &object;
}

void free_object(uint32_t client, uint32_t handle) {
  const auto entry = objects.find({client, handle});
  if (entry == objects.end()) return;
  std::vector<uint32_t> children;
  for (const auto& [handles, object] : objects) {
    if (handles.first == client && object.parent == handle && handles.second != handle)
      children.push_back(handles.second);
  }
  const Object object = entry->second;
  objects.erase(entry);
  for (const uint32_t child : children) free_object(client, child);
  if (object.channel != nullptr) engine::remove(object.channel);
  if (object.gpu_address != 0) page_tables::unmap(object.gpu_address, object.memory->size);
  if (object.shared) accounting.unshare(client, handle);
  count_engine_object(object, -1);
}

int rm_ioctl(int fd, uint32_t number, void* argument, uint32_t size) {
  trace("escape %u, %u bytes", number, size);
  switch (number) {
    case NV_ESC_CARD_INFO:
      return card_info(argument, size);
    case NV_ESC_CHECK_VERSION_STR:
      return answer<nv_ioctl_rm_api_version_t>(argument, size, [](auto& p) {
        snprintf(p.versionString, sizeof p.versionString, "%s", accounting.driver());
        p.reply = NV_RM_API_VERSION_REPLY_RECOGNIZED;
      });
    case NV_ESC_SYS_PARAMS:
      return answer<nv_ioctl_sys_params_t>(argument, size, [](auto&) {});
    case NV_ESC_REGISTER_FD:
      return answer<nv_ioctl_register_fd_t>(argument, size, [](auto&) {});
    case NV_ESC_ATTACH_GPUS_TO_FD:
      return 0;
    case NV_ESC_ALLOC_OS_EVENT:
      return answer<nv_ioctl_alloc_os_event_t>(argument, size, [](auto& p) {
        const bool ours = descriptors.count(static_cast<int>(p.fd)) != 0;
        if (ours) add_event_descriptor(static_cast<int>(p.fd));
        p.Status = ours ? NV_OK : NV_ERR_INVALID_ARGUMENT;
      });
    case NV_ESC_FREE_OS_EVENT:
      return answer<nv_ioctl_free_os_event_t>(argument, size, [](auto& p) { p.Status = NV_OK; });
    case NV_ESC_STATUS_CODE:
      return answer<nv_ioctl_status_code_t>(argument, size, [](auto& p) { p.status = NV_OK; });
    case kEscapeNumaInfo: {  // no public layout; the first words say: no NUMA node, no memory of
                             // one
      const int32_t words[2] = {-1, 0};
      return size < sizeof words                           ? EINVAL
             : copy_to_user(argument, words, sizeof words) ? 0
                                                           : EFAULT;
    }
    case kEscapeWaitOpenComplete: {  // nv_ioctl_wait_open_complete_t of 550: rc and adapter status
      const int32_t words[2] = {0, NV_OK};
      return size != sizeof words                          ? EINVAL
             : copy_to_user(argument, words, sizeof words) ? 0
                                                           : EFAULT;
    }
    case NV_ESC_RM_ALLOC:
      return allocate_by(fd, argument, size);
    case NV_ESC_RM_FREE:
      return answer<NVOS00_PARAMETERS>(argument, size, [](auto& p) {
        trace("RM_FREE client %x, object %x", p.hRoot, p.hObjectOld);
        free_object(p.hRoot, p.hObjectOld);
        p.status = NV_OK;
      });
    case NV_ESC_RM_CONTROL:
      return answer<NVOS54_PARAMETERS>(argument, size, [](auto& p) {
        p.status = rm_control(p.hClient, p.hObject, p.cmd, p.params, p.paramsSize);
      });
    case NV_ESC_RM_VID_HEAP_CONTROL:
      return answer<NVOS32_PARAMETERS>(argument, size, [](auto& p) { p.status = heap_control(p); });
    case NV_ESC_RM_ALLOC_MEMORY:
      return answer<nv_ioctl_nvos02_parameters_with_fd>(
          argument, size, [](auto& p) { p.params.status = allocate_host_memory(p.fd, p.params); });
    case NV_ESC_RM_MAP_MEMORY:
      return answer<nv_ioctl_nvos33_parameters_with_fd>(
          argument, size, [](auto& p) { p.params.status = map_memory_of(p.fd, p.params); });
    case NV_ESC_RM_UNMAP_MEMORY:
      return answer<NVOS34_PARAMETERS>(argument, size, [](auto& p) { p.status = NV_OK; });
    case NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO:
      return answer<NVOS56_PARAMETERS>(argument, size, [](auto& p) { p.status = NV_OK; });
    case NV_ESC_RM_MAP_MEMORY_DMA:
      return answer<NVOS46_PARAMETERS>(argument, size, [](auto& p) { p.status = map_for_gpu(p); });
    case NV_ESC_RM_UNMAP_MEMORY_DMA:
      return answer<NVOS47_PARAMETERS>(argument, size, [](auto& p) {
        page_tables::unmap_at(p.dmaOffset);
        p.status = NV_OK;
      });
    case NV_ESC_RM_DUP_OBJECT:
      return answer<NVOS55_PARAMETERS>(argument, size, [](auto& p) { p.status = duplicate(p); });
    case NV_ESC_RM_ALLOC_CONTEXT_DMA2:
      return answer<NVOS39_PARAMETERS>(argument, size,
                                       [](auto& p) { p.status = allocate_context_dma(p); });
    case NV_ESC_RM_IDLE_CHANNELS:
      return answer<NVOS30_PARAMETERS>(argument, size, [](auto& p) { p.status = NV_OK; });
    case NV_ESC_RM_SHARE:
      return answer<NVOS57_PARAMETERS>(argument, size,
                                       [](auto& p) { p.status = allow_duplicates(p); });
    case NV_ESC_RM_GET_EVENT_DATA:
      return answer<NVOS41_PARAMETERS>(argument, size, [](auto& p) {
        p.MoreEvents = 0;
        p.status = NV_OK;
      });
    default:
      report_unknown("escape", number, "RM", size);
      return EINVAL;
  }
}

}  // namespace rmsim
