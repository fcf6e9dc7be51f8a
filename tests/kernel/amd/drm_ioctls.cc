// Render node ioctls, by libdrm's headers.
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "ioctl.h"
#include "newer_amdgpu_drm.h"
#include "user_memory.h"

namespace kfd {
namespace {

bool copy_text(char* to, size_t& room, const char* text) {
  const size_t length = std::strlen(text);
  const bool copied =
      to == nullptr || copy_to_user(reinterpret_cast<uint64_t>(to), text, std::min(room, length));
  room = length;
  return copied;
}

long version(Caller&, drm_version& args) {
  args.version_major = 3;
  args.version_minor = 57;
  args.version_patchlevel = 0;
  size_t name = args.name_len, date = args.date_len, description = args.desc_len;
  if (!copy_text(args.name, name, "amdgpu") || !copy_text(args.date, date, "20150101") ||
      !copy_text(args.desc, description, "AMD GPU"))
    return -EFAULT;
  args.name_len = name;
  args.date_len = date;
  args.desc_len = description;
  return 0;
}

long get_capability(Caller&, drm_get_cap& args) {
  switch (args.capability) {
    case DRM_CAP_PRIME:
      args.value = DRM_PRIME_CAP_IMPORT | DRM_PRIME_CAP_EXPORT;
      break;
    case DRM_CAP_SYNCOBJ:
    case DRM_CAP_SYNCOBJ_TIMELINE:
      args.value = 1;
      break;
    default:
      args.value = 0;
  }
  return 0;
}

// GEM buffers.

Buffer& buffer_of(Caller& caller, uint32_t handle) {
  return caller.accounting.buffer[caller.accounting.handle[handle].buffer];
}

long gem_close(Caller& caller, drm_gem_close& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, true);
  if (handle == 0) return -EINVAL;
  caller.process.release_handle(handle);
  return 0;
}

long handle_to_descriptor(Caller& caller, drm_prime_handle& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, true);
  if (handle == 0) return -ENOENT;
  args.fd = caller.process.export_handle(handle);
  return std::min(args.fd, 0);
}

// Importing a buffer twice returns the same handle.
long descriptor_to_handle(Caller& caller, drm_prime_handle& args) {
  const Lock lock(&caller.accounting);
  const int buffer = buffer_of_descriptor(caller.accounting, args.fd);
  if (buffer < 0) return buffer;
  const int process = caller.process.place();
  if (process < 0) return process;
  for (uint32_t i = 1; i < caller.accounting.handles_end; ++i) {
    if (handle_of_caller(caller, i, true) != 0 &&
        caller.accounting.handle[i].buffer == static_cast<uint32_t>(buffer)) {
      args.handle = i;
      return 0;
    }
  }
  const int handle = add_handle(caller.accounting, static_cast<uint32_t>(process),
                                static_cast<uint32_t>(buffer), false, caller.file);
  if (handle < 0) return handle;
  caller.process.hold_dma_buf(static_cast<uint32_t>(handle), args.fd);
  args.handle = static_cast<uint32_t>(handle);
  return 0;
}

long gem_create(Caller& caller, drm_amdgpu_gem_create& args) {
  const drm_amdgpu_gem_create_in wanted = args.in;
  if (wanted.bo_size == 0) return -EINVAL;
  const Lock lock(&caller.accounting);
  const int process = caller.process.place();
  if (process < 0) return process;
  const bool vram = (wanted.domains & AMDGPU_GEM_DOMAIN_VRAM) != 0;
  const int buffer = add_buffer(caller.accounting, caller.card, wanted.bo_size, 0,
                                vram ? Domain::kVram : Domain::kHost);
  if (buffer < 0) return buffer;
  const int handle = add_handle(caller.accounting, static_cast<uint32_t>(process),
                                static_cast<uint32_t>(buffer), false, caller.file);
  if (handle < 0) return handle;
  args.out.handle = static_cast<uint32_t>(handle);
  return 0;
}

long gem_mmap(Caller& caller, drm_amdgpu_gem_mmap& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.in.handle, true);
  if (handle == 0) return -ENOENT;
  args.out.addr_ptr = buffer_of(caller, handle).offset;
  return 0;
}

long gem_metadata(Caller& caller, drm_amdgpu_gem_metadata& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, true);
  if (handle == 0) return -ENOENT;
  Buffer& buffer = buffer_of(caller, handle);
  if (args.op == AMDGPU_GEM_METADATA_OP_SET_METADATA) {
    if (args.data.data_size_bytes > sizeof buffer.metadata) return -EINVAL;
    buffer.metadata_size = args.data.data_size_bytes;
    std::memcpy(buffer.metadata, args.data.data, buffer.metadata_size);
  } else {
    args.data.flags = args.data.tiling_info = 0;
    args.data.data_size_bytes = buffer.metadata_size;
    std::memcpy(args.data.data, buffer.metadata, buffer.metadata_size);
  }
  return 0;
}

long gem_op(Caller& caller, drm_amdgpu_gem_op& args) {
  const Lock lock(&caller.accounting);
  const uint32_t handle = handle_of_caller(caller, args.handle, true);
  if (handle == 0) return -ENOENT;
  const Buffer& buffer = buffer_of(caller, handle);
  if (args.op == AMDGPU_GEM_OP_SET_PLACEMENT) {
    // The real kernel moves it when it is used next.
    const bool moves = (args.value & AMDGPU_GEM_DOMAIN_VRAM) != 0 && buffer.domain == Domain::kHost;
    if (moves) move_to_card(caller.accounting, caller.accounting.handle[handle].buffer);
    return 0;
  }
  if (args.op != AMDGPU_GEM_OP_GET_GEM_CREATE_INFO) return -EINVAL;
  drm_amdgpu_gem_create_in info{};
  info.bo_size = buffer.size;
  info.alignment = kPage;
  info.domains = buffer.domain == Domain::kVram ? AMDGPU_GEM_DOMAIN_VRAM : AMDGPU_GEM_DOMAIN_GTT;
  return copy_to_user(args.value, &info, sizeof info) ? 0 : -EFAULT;
}

long gem_map(Caller& caller, drm_amdgpu_gem_va& args) {
  const Lock lock(&caller.accounting);
  const bool has_buffer =
      args.operation != AMDGPU_VA_OP_CLEAR && (args.flags & AMDGPU_VM_PAGE_PRT) == 0;
  return !has_buffer || handle_of_caller(caller, args.handle, true) != 0 ? 0 : -ENOENT;
}

long virtual_memory(Caller&, drm_amdgpu_vm&) {
  return 0;
}

// Contexts hold nothing, and no device ever hangs.
long context(Caller&, drm_amdgpu_ctx& args) {
  const uint32_t operation = args.in.op;
  std::memset(&args, 0, sizeof args);
  switch (operation) {
    case AMDGPU_CTX_OP_ALLOC_CTX:
      args.out.alloc.ctx_id = 1;
      return 0;
    case AMDGPU_CTX_OP_FREE_CTX:
    case AMDGPU_CTX_OP_QUERY_STATE:
    case AMDGPU_CTX_OP_QUERY_STATE2:
    case AMDGPU_CTX_OP_GET_STABLE_PSTATE:
    case AMDGPU_CTX_OP_SET_STABLE_PSTATE:
      return 0;
    default:
      return -EINVAL;
  }
}

// Properties of the cards. None of them affects how much memory the kernel takes.

constexpr uint32_t kNavi31 = 0x744c;

NewerDevice device_facts(const Card& card) {
  NewerDevice newer{};
  drm_amdgpu_info_device& facts = newer.older;
  facts.device_id = card.device_id;
  facts.pci_rev = card.pci_revision;
  facts.chip_rev = 1;
  facts.num_rb_pipes = 16;
  facts.gpu_counter_freq = 100'000;
  facts.virtual_address_offset = 0x200000;
  facts.virtual_address_max = 1ull << 47;
  facts.virtual_address_alignment = kPage;
  facts.pte_fragment_size = kLargePage;
  facts.gart_page_size = kPage;
  facts.num_tcc_blocks = 32;
  facts.high_va_offset = 0xffff800000000000;
  facts.high_va_max = 0xffffffffffe00000;
  if (card.device_id == kNavi31) {
    facts.external_rev = 1;
    facts.family = kFamilyGc11;
    facts.num_shader_engines = 6;
    facts.num_shader_arrays_per_engine = 2;
    facts.max_engine_clock = 2'304'000;
    facts.max_memory_clock = 1'249'000;
    facts.cu_active_number = 96;
    // Engines 4 and 5 follow in the columns behind those of 0 and 1.
    for (uint32_t engine = 0; engine < facts.num_shader_engines; ++engine) {
      for (uint32_t array = 0; array < facts.num_shader_arrays_per_engine; ++array)
        facts.cu_bitmap[engine % 4][array + engine / 4 * 2] = 0xff;
    }
    facts.num_rb_pipes = 24;
    facts.enabled_rb_pipes_mask = 0xffffff;
    facts.num_hw_gfx_contexts = 8;
    facts.vram_type = AMDGPU_VRAM_TYPE_GDDR6;
    facts.vram_bit_width = 384;
    facts.num_cu_per_sh = 8;
    facts.wave_front_size = 32;
    facts.num_tcc_blocks = 24;
    newer.mall_size = 96u << 20;
    return newer;
  }
  facts.external_rev = 0x3d;
  facts.family = AMDGPU_FAMILY_AI;
  facts.num_shader_engines = 8;
  facts.num_shader_arrays_per_engine = 1;
  facts.max_engine_clock = 1'700'000;
  facts.max_memory_clock = 1'600'000;
  facts.cu_active_number = 104;
  facts.vram_type = AMDGPU_VRAM_TYPE_HBM;
  facts.vram_bit_width = 4096;
  facts.num_cu_per_sh = 14;
  facts.wave_front_size = 64;
  return newer;
}

// Rings for graphics, compute, copies and video, of a card that has them.
drm_amdgpu_info_hw_ip ring_facts(const Card& card, uint32_t type) {
  drm_amdgpu_info_hw_ip facts{};
  if (card.device_id != kNavi31) return facts;
  facts.ib_start_alignment = facts.ib_size_alignment = 32;
  switch (type) {
    case AMDGPU_HW_IP_GFX:
      facts.hw_ip_version_major = 11;
      facts.available_rings = 1;
      return facts;
    case AMDGPU_HW_IP_COMPUTE:
      facts.hw_ip_version_major = 11;
      facts.available_rings = 0xf;
      return facts;
    case AMDGPU_HW_IP_DMA:
      facts.hw_ip_version_major = 6;
      facts.available_rings = 3;
      return facts;
    case AMDGPU_HW_IP_VCN_ENC:  // decodes too, since version 4
      facts.hw_ip_version_major = 4;
      facts.available_rings = 1;
      return facts;
    default:
      return {};
  }
}

drm_amdgpu_memory_info memory_facts(const Card& card) {
  drm_amdgpu_memory_info facts{};
  facts.vram = {card.total, card.total, card.resident(), card.total};
  facts.cpu_accessible_vram = facts.vram;
  facts.gtt = {kHostLimit, kHostLimit, 0, kHostLimit};
  return facts;
}

// GB_ADDR_CONFIG describes how addresses interleave. Of this chip 32 pipes with 32 packers, which
// no GPU has confirmed.
uint32_t register_of(const Card& card, uint32_t number) {
  constexpr uint32_t kGbAddrConfig = 0x263e;
  return card.device_id == kNavi31 && number == kGbAddrConfig ? 0x545 : 0;
}

long info(Caller& caller, drm_amdgpu_info& args) {
  const Card& card = caller.accounting.card[caller.card];
  const auto answer = [&](const auto& value) {
    return copy_to_user(args.return_pointer, &value,
                        std::min<size_t>(args.return_size, sizeof value))
               ? 0l
               : -EFAULT;
  };
  const Lock lock(&caller.accounting);
  switch (args.query) {
    case AMDGPU_INFO_ACCEL_WORKING:
      return answer(uint32_t{1});
    case AMDGPU_INFO_HW_IP_COUNT:
      return answer(uint32_t{1});
    case AMDGPU_INFO_DEV_INFO:
      return answer(device_facts(card));
    case AMDGPU_INFO_VRAM_GTT:
      return answer(drm_amdgpu_info_vram_gtt{card.total, card.total, kHostLimit});
    case AMDGPU_INFO_VRAM_USAGE:
      return answer(card.resident());
    case AMDGPU_INFO_MEMORY:
      return answer(memory_facts(card));
    case AMDGPU_INFO_FW_VERSION:
      return answer(drm_amdgpu_info_firmware{});
    case AMDGPU_INFO_HW_IP_INFO:
      return answer(ring_facts(card, args.query_hw_ip.type));
    case AMDGPU_INFO_VIS_VRAM_USAGE:
      return answer(card.resident());
    case AMDGPU_INFO_GTT_USAGE:
      return answer(caller.accounting.host_used);
    case kInfoMaxIbs:
      return answer(std::array<uint32_t, 10>{192, 125, 50, 16, 16, 16, 16, 16, 16, 16});
    case AMDGPU_INFO_VIDEO_CAPS:
      return answer(drm_amdgpu_info_video_caps{});
    case AMDGPU_INFO_TIMESTAMP:
    case AMDGPU_INFO_NUM_BYTES_MOVED:
    case AMDGPU_INFO_NUM_EVICTIONS:
    case AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS:
      return answer(uint64_t{0});
    case AMDGPU_INFO_VRAM_LOST_COUNTER:
    case AMDGPU_INFO_SENSOR:
      return answer(uint32_t{0});
    case AMDGPU_INFO_READ_MMR_REG:
      for (uint32_t i = 0; i < args.read_mmr_reg.count && (i + 1) * 4 <= args.return_size; ++i) {
        const uint32_t value = register_of(card, args.read_mmr_reg.dword_offset + i);
        if (!copy_to_user(args.return_pointer + i * 4, &value, sizeof value)) return -EFAULT;
      }
      return 0;
    default:
      report_unknown(caller.accounting, "a query of AMDGPU_INFO", args.query, args.return_size);
      return -EINVAL;
  }
}

constexpr Ioctl kTable[] = {
    IOCTL(DRM_IOCTL_VERSION, version),
    IOCTL(DRM_IOCTL_GET_CAP, get_capability),
    IOCTL(DRM_IOCTL_GEM_CLOSE, gem_close),
    IOCTL(DRM_IOCTL_PRIME_HANDLE_TO_FD, handle_to_descriptor),
    IOCTL(DRM_IOCTL_PRIME_FD_TO_HANDLE, descriptor_to_handle),
    IOCTL(DRM_IOCTL_AMDGPU_GEM_CREATE, gem_create),
    IOCTL(DRM_IOCTL_AMDGPU_GEM_MMAP, gem_mmap),
    IOCTL(DRM_IOCTL_AMDGPU_CTX, context),
    IOCTL(DRM_IOCTL_AMDGPU_INFO, info),
    IOCTL(DRM_IOCTL_AMDGPU_GEM_METADATA, gem_metadata),
    IOCTL(DRM_IOCTL_AMDGPU_GEM_VA, gem_map),
    IOCTL(DRM_IOCTL_AMDGPU_GEM_OP, gem_op),
    NOT_SIMULATED(DRM_IOCTL_AMDGPU_GEM_USERPTR),
    IOCTL(DRM_IOCTL_AMDGPU_VM, virtual_memory),
    NOT_SIMULATED(DRM_IOCTL_AMDGPU_SCHED),
};

}  // namespace

long drm_ioctl(Caller& caller, unsigned long request, void* arguments) {
  if (_IOC_TYPE(request) != DRM_IOCTL_BASE) return -ENOTTY;
  const std::span<const Ioctl> submissions = submission_ioctls();
  const bool is_submission =
      std::ranges::find(submissions, _IOC_NR(request), &Ioctl::number) != submissions.end();
  return call_ioctl(is_submission ? submissions : kTable, "an ioctl of a render node", caller,
                    request, arguments);
}

}  // namespace kfd
