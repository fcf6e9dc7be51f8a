#include "engine.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <mutex>

#include "diagnostics.h"
#include "page_tables.h"

namespace rmsim {

char* gpu_bytes(uint64_t address, uint64_t length) {
  uint64_t left = 0;
  char* bytes = page_tables::find(address, left);
  if (bytes != nullptr && left >= length) return bytes;
  trace("GPU fault at %llx, %llu bytes", static_cast<unsigned long long>(address),
        static_cast<unsigned long long>(length));
  return nullptr;
}

void gpu_copy(uint64_t to, uint64_t from, uint64_t length) {
  while (length != 0) {
    uint64_t to_left = 0, from_left = 0;
    char* target = page_tables::find(to, to_left);
    const char* source = page_tables::find(from, from_left);
    if (target == nullptr || source == nullptr) {
      trace("GPU fault in a copy from %llx to %llx", static_cast<unsigned long long>(from),
            static_cast<unsigned long long>(to));
      return;
    }
    const uint64_t piece = std::min({length, to_left, from_left});
    memmove(target, source, piece);
    to += piece;
    from += piece;
    length -= piece;
  }
}

void gpu_fill(uint64_t to, const void* pattern, uint32_t pattern_size, uint64_t count) {
  const auto* bytes = static_cast<const unsigned char*>(pattern);
  const bool same = std::all_of(bytes, bytes + pattern_size,
                                [&](unsigned char byte) { return byte == bytes[0]; });
  uint64_t done = 0;
  const uint64_t length = count * pattern_size;
  while (done < length) {
    uint64_t left = 0;
    char* target = page_tables::find(to + done, left);
    if (target == nullptr) {
      trace("GPU fault in a fill at %llx", static_cast<unsigned long long>(to + done));
      return;
    }
    const uint64_t piece = std::min(length - done, left);
    if (same && bytes[0] == 0) {
      clear_memory(target, piece);
    } else if (same) {
      memset(target, bytes[0], piece);
    } else {
      for (uint64_t i = 0; i < piece; ++i)
        target[i] = static_cast<char>(bytes[(done + i) % pattern_size]);
    }
    done += piece;
  }
}

namespace {

using Registers = Channel::Registers;

std::mutex mutex;
auto& channels = *new std::vector<Channel*>;
bool started = false;

uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
}

constexpr uint32_t kUpper8 = 0xff,
                   kUpper17 = 0x1ffff;  // the bits of an address that its upper method has

uint64_t address_in(Registers& registers, uint32_t upper, uint32_t lower, uint32_t mask) {
  return static_cast<uint64_t>(registers[upper] & mask) << 32 | registers[lower];
}

// By the host's numbers (NVC56F_SEM_EXECUTE_REDUCTION); the copy engine has the same.
uint64_t reduced(uint32_t operation, uint64_t memory, uint64_t value) {
  switch (operation) {
    case NVC56F_SEM_EXECUTE_REDUCTION_IMIN:
      return std::min(memory, value);
    case NVC56F_SEM_EXECUTE_REDUCTION_IMAX:
      return std::max(memory, value);
    case NVC56F_SEM_EXECUTE_REDUCTION_IXOR:
      return memory ^ value;
    case NVC56F_SEM_EXECUTE_REDUCTION_IAND:
      return memory & value;
    case NVC56F_SEM_EXECUTE_REDUCTION_IOR:
      return memory | value;
    case NVC56F_SEM_EXECUTE_REDUCTION_IADD:
      return memory + value;
    case NVC56F_SEM_EXECUTE_REDUCTION_INC:
      return memory >= value ? 0 : memory + 1;
    case NVC56F_SEM_EXECUTE_REDUCTION_DEC:
      return memory == 0 || memory > value ? value : memory - 1;
    default:
      report_unknown("reduction", operation, "of a semaphore");
      return value;
  }
}

// The compute class numbers them otherwise (NVC7C0_SET_REPORT_SEMAPHORE_D_REDUCTION_OP).
uint32_t host_reduction(uint32_t compute_reduction) {
  static const uint8_t kHost[] = {
      NVC56F_SEM_EXECUTE_REDUCTION_IADD, NVC56F_SEM_EXECUTE_REDUCTION_IMIN,
      NVC56F_SEM_EXECUTE_REDUCTION_IMAX, NVC56F_SEM_EXECUTE_REDUCTION_INC,
      NVC56F_SEM_EXECUTE_REDUCTION_DEC,  NVC56F_SEM_EXECUTE_REDUCTION_IAND,
      NVC56F_SEM_EXECUTE_REDUCTION_IOR,  NVC56F_SEM_EXECUTE_REDUCTION_IXOR};
  return kHost[compute_reduction & 7];
}

void reduce32(uint64_t address, uint32_t operation, uint32_t value) {
  auto* word = reinterpret_cast<volatile uint32_t*>(gpu_bytes(address, 4));
  if (word != nullptr) *word = static_cast<uint32_t>(reduced(operation, *word, value));
}

// A release with a time writes four words: payload, and the time into the last two.
void release(uint64_t address, uint64_t payload, bool wide, bool with_time) {
  char* bytes = gpu_bytes(address, with_time ? 16 : wide ? 8 : 4);
  if (bytes == nullptr) return;
  trace("  release %llx = %llx", static_cast<unsigned long long>(address),
        static_cast<unsigned long long>(payload));
  if (with_time) *reinterpret_cast<volatile uint64_t*>(bytes + 8) = now();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (wide) {
    *reinterpret_cast<volatile uint64_t*>(bytes) = payload;
  } else {
    *reinterpret_cast<volatile uint32_t*>(bytes) = static_cast<uint32_t>(payload);
  }
}

// ---- The host: semaphores. false: the channel must wait.

bool old_semaphore(Registers& host, uint32_t data) {
  const uint64_t address = address_in(host, NVC56F_SEMAPHOREA, NVC56F_SEMAPHOREB, kUpper8);
  const uint32_t payload = host[NVC56F_SEMAPHOREC];
  const uint32_t operation = DRF_VAL(C56F, _SEMAPHORED, _OPERATION, data);
  if (operation == NVC56F_SEMAPHORED_OPERATION_RELEASE) {
    release(address, payload, false, !DRF_VAL(C56F, _SEMAPHORED, _RELEASE_SIZE, data));
    return true;
  }
  auto* word = reinterpret_cast<volatile uint32_t*>(gpu_bytes(address, 4));
  if (word == nullptr) return true;
  switch (operation) {
    case NVC56F_SEMAPHORED_OPERATION_ACQUIRE:
      return *word == payload;
    case NVC56F_SEMAPHORED_OPERATION_ACQ_GEQ:
      return static_cast<int32_t>(*word - payload) >= 0;
    case NVC56F_SEMAPHORED_OPERATION_ACQ_AND:
      return (*word & payload) != 0;
    case NVC56F_SEMAPHORED_OPERATION_REDUCTION:
      *word = static_cast<uint32_t>(
          reduced(DRF_VAL(C56F, _SEMAPHORED, _REDUCTION, data), *word, payload));
      return true;
    default:
      report_unknown("operation", operation, "NVC56F_SEMAPHORED");
      return true;
  }
}

bool semaphore(Registers& host, uint32_t data) {
  const uint64_t address = address_in(host, NVC56F_SEM_ADDR_HI, NVC56F_SEM_ADDR_LO, kUpper17);
  const bool wide = DRF_VAL(C56F, _SEM_EXECUTE, _PAYLOAD_SIZE, data) != 0;
  uint64_t payload = host[NVC56F_SEM_PAYLOAD_LO];
  if (wide) payload |= static_cast<uint64_t>(host[NVC56F_SEM_PAYLOAD_HI]) << 32;
  const uint32_t operation = DRF_VAL(C56F, _SEM_EXECUTE, _OPERATION, data);
  if (operation == NVC56F_SEM_EXECUTE_OPERATION_RELEASE) {
    release(address, payload, wide, DRF_VAL(C56F, _SEM_EXECUTE, _RELEASE_TIMESTAMP, data));
    return true;
  }
  char* bytes = gpu_bytes(address, wide ? 8 : 4);
  if (bytes == nullptr) return true;
  auto* word = reinterpret_cast<volatile uint32_t*>(bytes);
  auto* wide_word = reinterpret_cast<volatile uint64_t*>(bytes);
  const uint64_t value = wide ? *wide_word : *word;
  const uint64_t mask = wide ? ~0ull : 0xffffffffull;
  switch (operation) {
    case NVC56F_SEM_EXECUTE_OPERATION_ACQUIRE:
      return value == payload;
    case NVC56F_SEM_EXECUTE_OPERATION_ACQ_STRICT_GEQ:
      return value >= payload;
    case NVC56F_SEM_EXECUTE_OPERATION_ACQ_CIRC_GEQ:
      return wide ? static_cast<int64_t>(value - payload) >= 0
                  : static_cast<int32_t>(static_cast<uint32_t>(value - payload)) >= 0;
    case NVC56F_SEM_EXECUTE_OPERATION_ACQ_AND:
      return (value & payload) != 0;
    case NVC56F_SEM_EXECUTE_OPERATION_ACQ_NOR:
      return (~(value | payload) & mask) != 0;
    case NVC56F_SEM_EXECUTE_OPERATION_REDUCTION: {
      const uint64_t result =
          reduced(DRF_VAL(C56F, _SEM_EXECUTE, _REDUCTION, data), value, payload);
      if (wide) {
        *wide_word = result;
      } else {
        *word = static_cast<uint32_t>(result);
      }
      return true;
    }
    default:
      report_unknown("operation", operation, "NVC56F_SEM_EXECUTE");
      return true;
  }
}

bool host_method(Channel& channel, uint32_t method, uint32_t data) {
  channel.host[method] = data;
  switch (method) {
    case NVC56F_NON_STALL_INTERRUPT:
      notify_events();
      return true;
    case NVC56F_SEMAPHORED:
      return old_semaphore(channel.host, data);
    case NVC56F_SEM_EXECUTE:
      return semaphore(channel.host, data);
    // What the above read, and what changes nothing that can be seen here.
    case NVC56F_NOP:
    case NVC56F_SEMAPHOREA:
    case NVC56F_SEMAPHOREB:
    case NVC56F_SEMAPHOREC:
    case NVC56F_FB_FLUSH:
    case NVC56F_MEM_OP_A:
    case NVC56F_MEM_OP_B:
    case NVC56F_MEM_OP_C:
    case NVC56F_MEM_OP_D:
    case NVC56F_SET_REFERENCE:
    case NVC56F_SEM_ADDR_LO:
    case NVC56F_SEM_ADDR_HI:
    case NVC56F_SEM_PAYLOAD_LO:
    case NVC56F_SEM_PAYLOAD_HI:
    case NVC56F_WFI:
    case NVC56F_YIELD:
      return true;
    default:
      report_unknown("method", method, "of the host");
      return true;
  }
}

// ---- The copy engine

// Each line is made of elements of up to four components, each of which comes from the source, from
// one of two constants, or is left as it is.
void copy_remapped(Registers& dma, uint64_t to, uint64_t from, uint64_t elements) {
  const uint32_t remap = dma[NVC7B5_SET_REMAP_COMPONENTS];
  const uint32_t size = DRF_VAL(C7B5, _SET_REMAP_COMPONENTS, _COMPONENT_SIZE, remap) + 1;
  const uint32_t source_count =
      DRF_VAL(C7B5, _SET_REMAP_COMPONENTS, _NUM_SRC_COMPONENTS, remap) + 1;
  const uint32_t count = DRF_VAL(C7B5, _SET_REMAP_COMPONENTS, _NUM_DST_COMPONENTS, remap) + 1;
  uint32_t origin[4];
  char pattern[16] = {};
  bool constant = true;
  for (uint32_t i = 0; i < count; ++i) {
    origin[i] = remap >> (4 * i) & 7;  // NVC7B5_SET_REMAP_COMPONENTS_DST_X and its neighbours
    const uint32_t value = origin[i] == NVC7B5_SET_REMAP_COMPONENTS_DST_X_CONST_B
                               ? dma[NVC7B5_SET_REMAP_CONST_B]
                               : dma[NVC7B5_SET_REMAP_CONST_A];
    memcpy(pattern + i * size, &value, size);
    constant = constant && (origin[i] == NVC7B5_SET_REMAP_COMPONENTS_DST_X_CONST_A ||
                            origin[i] == NVC7B5_SET_REMAP_COMPONENTS_DST_X_CONST_B);
  }
  if (constant) return gpu_fill(to, pattern, size * count, elements);
  for (uint64_t element = 0; element < elements; ++element) {
    char* target = gpu_bytes(to + element * size * count, size * count);
    const char* source = gpu_bytes(from + element * size * source_count, size * source_count);
    if (target == nullptr || source == nullptr) return;
    for (uint32_t i = 0; i < count; ++i) {
      if (origin[i] <= NVC7B5_SET_REMAP_COMPONENTS_DST_X_SRC_W) {
        memcpy(target + i * size, source + origin[i] * size, size);
      } else if (origin[i] != NVC7B5_SET_REMAP_COMPONENTS_DST_X_NO_WRITE) {
        memcpy(target + i * size, pattern + i * size, size);
      }
    }
  }
}

void launch_dma(Registers& dma, uint32_t launch) {
  const uint64_t from = address_in(dma, NVC7B5_OFFSET_IN_UPPER, NVC7B5_OFFSET_IN_LOWER, kUpper17);
  const uint64_t to = address_in(dma, NVC7B5_OFFSET_OUT_UPPER, NVC7B5_OFFSET_OUT_LOWER, kUpper17);
  const uint64_t length = dma[NVC7B5_LINE_LENGTH_IN];
  const bool lines = DRF_VAL(C7B5, _LAUNCH_DMA, _MULTI_LINE_ENABLE, launch) != 0;
  const uint64_t count = lines ? dma[NVC7B5_LINE_COUNT] : 1;
  // Block-linear memory is kept line by line, as all that use it go through this engine.
  const bool from_blocks = !DRF_VAL(C7B5, _LAUNCH_DMA, _SRC_MEMORY_LAYOUT, launch);
  const bool to_blocks = !DRF_VAL(C7B5, _LAUNCH_DMA, _DST_MEMORY_LAYOUT, launch);
  const uint64_t from_pitch =
      from_blocks ? length : static_cast<uint64_t>(static_cast<int32_t>(dma[NVC7B5_PITCH_IN]));
  const uint64_t to_pitch =
      to_blocks ? length : static_cast<uint64_t>(static_cast<int32_t>(dma[NVC7B5_PITCH_OUT]));
  if (DRF_VAL(C7B5, _LAUNCH_DMA, _DATA_TRANSFER_TYPE, launch) !=
      NVC7B5_LAUNCH_DMA_DATA_TRANSFER_TYPE_NONE) {
    trace("  copy engine: %llx to %llx, %llu bytes, %llu lines",
          static_cast<unsigned long long>(from), static_cast<unsigned long long>(to),
          static_cast<unsigned long long>(length), static_cast<unsigned long long>(count));
    const bool remap = DRF_VAL(C7B5, _LAUNCH_DMA, _REMAP_ENABLE, launch) != 0;
    for (uint64_t line = 0; line < count; ++line) {
      if (remap) {
        copy_remapped(dma, to + line * to_pitch, from + line * from_pitch, length);
      } else {
        gpu_copy(to + line * to_pitch, from + line * from_pitch, length);
      }
    }
  }
  const uint32_t type = DRF_VAL(C7B5, _LAUNCH_DMA, _SEMAPHORE_TYPE, launch);
  if (type != NVC7B5_LAUNCH_DMA_SEMAPHORE_TYPE_NONE) {
    const uint64_t address =
        address_in(dma, NVC7B5_SET_SEMAPHORE_A, NVC7B5_SET_SEMAPHORE_B, kUpper17);
    const uint32_t payload = dma[NVC7B5_SET_SEMAPHORE_PAYLOAD];
    if (DRF_VAL(C7B5, _LAUNCH_DMA, _SEMAPHORE_REDUCTION_ENABLE, launch) != 0) {
      reduce32(address, DRF_VAL(C7B5, _LAUNCH_DMA, _SEMAPHORE_REDUCTION, launch), payload);
    } else {
      release(address, payload, false,
              type == NVC7B5_LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_FOUR_WORD_SEMAPHORE);
    }
  }
  if (DRF_VAL(C7B5, _LAUNCH_DMA, _INTERRUPT_TYPE, launch) != NVC7B5_LAUNCH_DMA_INTERRUPT_TYPE_NONE)
    notify_events();
}

// ---- The compute engine

// A queue meta data record describes one launch. NVIDIA has published no header of it for this
// chip; these are the fields of version 3.0 (clc6c0qmd.h of NVIDIA's open-gpu-doc) with which a
// finished kernel tells others, by their bits.
struct Qmd {
  const uint32_t* words;
  uint64_t bits(int high, int low) const {
    uint64_t value = 0;
    for (int bit = high; bit >= low; --bit)
      value = value << 1 | (words[bit / 32] >> (bit % 32) & 1);
    return value;
  }
  bool bit(int number) const { return bits(number, number) != 0; }
};

constexpr int kLongestChain = 1 << 16;

void run_kernels(uint64_t address) {
  for (int i = 0; i < kLongestChain; ++i) {
    const Qmd qmd{reinterpret_cast<const uint32_t*>(gpu_bytes(address, 256))};
    if (qmd.words == nullptr) return;
    run_driver_kernel(qmd.bits(1072, 1024), qmd.bits(1584, 1536));
    const bool releases = qmd.bit(823), wide = qmd.bit(829);
    const uint64_t semaphore = qmd.bits(807, 800) << 32 | qmd.bits(799, 768);
    const uint64_t payload = qmd.bits(wide ? 895 : 863, 832);
    if (releases && qmd.bit(826)) {  // a node of a graph with several parents counts them so
      reduce32(semaphore, host_reduction(static_cast<uint32_t>(qmd.bits(822, 820))),
               static_cast<uint32_t>(payload));
    } else if (releases) {
      release(semaphore, payload, wide, qmd.bits(831, 830) == 0);
    }
    const bool has_dependent = qmd.bit(512);
    constexpr uint64_t kSchedule = 1;
    if (!has_dependent || qmd.bits(515, 513) != kSchedule) return;
    address = qmd.bits(511, 480) << 8;
  }
}

void load_inline_data(Channel& channel, Registers& compute, uint32_t data) {
  const uint64_t to = address_in(compute, NVC7C0_OFFSET_OUT_UPPER, NVC7C0_OFFSET_OUT, kUpper17);
  const uint32_t length = compute[NVC7C0_LINE_LENGTH_IN];
  const uint32_t lines = std::max(compute[NVC7C0_LINE_COUNT], 1u);
  const uint32_t padded = (length + 3) & ~3u;  // each line begins with a word of its own
  if (padded == 0) return;
  const uint32_t line = channel.inline_offset / padded, column = channel.inline_offset % padded;
  const uint64_t pitch = lines > 1 ? compute[NVC7C0_PITCH_OUT] : 0;
  if (line < lines) {
    const uint32_t size = std::min(length - column, 4u);
    if (char* bytes = gpu_bytes(to + line * pitch + column, size)) memcpy(bytes, &data, size);
  }
  channel.inline_offset += 4;
  const uint32_t launch = compute[NVC7C0_LAUNCH_DMA];
  if (channel.inline_offset >= padded * lines &&
      DRF_VAL(C7C0, _LAUNCH_DMA, _COMPLETION_TYPE, launch) ==
          NVC7C0_LAUNCH_DMA_COMPLETION_TYPE_RELEASE_SEMAPHORE) {
    release(address_in(compute, NVC7C0_SET_I2M_SEMAPHORE_A, NVC7C0_SET_I2M_SEMAPHORE_B, kUpper8),
            compute[NVC7C0_SET_I2M_SEMAPHORE_C], false,
            !DRF_VAL(C7C0, _LAUNCH_DMA, _SEMAPHORE_STRUCT_SIZE, launch));
  }
}

void report_semaphore(Registers& compute, uint32_t data) {
  const uint64_t address =
      address_in(compute, NVC7C0_SET_REPORT_SEMAPHORE_A, NVC7C0_SET_REPORT_SEMAPHORE_B, kUpper8);
  const uint32_t payload = compute[NVC7C0_SET_REPORT_SEMAPHORE_C];
  const uint32_t operation = DRF_VAL(C7C0, _SET_REPORT_SEMAPHORE_D, _OPERATION, data);
  if (operation == NVC7C0_SET_REPORT_SEMAPHORE_D_OPERATION_RELEASE) {
    if (DRF_VAL(C7C0, _SET_REPORT_SEMAPHORE_D, _REDUCTION_ENABLE, data) != 0) {
      reduce32(address, host_reduction(DRF_VAL(C7C0, _SET_REPORT_SEMAPHORE_D, _REDUCTION_OP, data)),
               payload);
    } else {
      release(address, payload, false,
              !DRF_VAL(C7C0, _SET_REPORT_SEMAPHORE_D, _STRUCTURE_SIZE, data));
    }
  }
  if (operation == NVC7C0_SET_REPORT_SEMAPHORE_D_OPERATION_TRAP ||
      DRF_VAL(C7C0, _SET_REPORT_SEMAPHORE_D, _AWAKEN_ENABLE, data) != 0) {
    notify_events();
  }
}

// Four words: the time, information and a status, of which 0 says that it is done.
void write_notification(Registers& compute, uint32_t type) {
  const uint64_t address = address_in(compute, NVC7C0_SET_NOTIFY_A, NVC7C0_SET_NOTIFY_B, kUpper8);
  char* bytes = gpu_bytes(address, 16);
  if (bytes == nullptr) return;
  trace("  notify %llx", static_cast<unsigned long long>(address));
  *reinterpret_cast<volatile uint64_t*>(bytes) = now();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  *reinterpret_cast<volatile uint64_t*>(bytes + 8) = 0;
  if (type == NVC7C0_NOTIFY_TYPE_WRITE_THEN_AWAKEN) notify_events();
}

// Graphics and inline-to-memory have the same methods for what is done here.
void compute_method(Channel& channel, Registers& compute, uint32_t method, uint32_t data) {
  constexpr uint32_t kInlineQmdWords = 64;
  const uint32_t first = NVC7C0_LOAD_INLINE_QMD_DATA(0),
                 last = NVC7C0_LOAD_INLINE_QMD_DATA(kInlineQmdWords - 1);
  if (method >= first && method <= last) {
    const uint64_t qmd = (static_cast<uint64_t>(compute[NVC7C0_SET_INLINE_QMD_ADDRESS_A]) << 32 |
                          compute[NVC7C0_SET_INLINE_QMD_ADDRESS_B])
                         << 8;
    if (char* bytes = gpu_bytes(qmd + (method - first), 4)) memcpy(bytes, &data, 4);
    if (method == last) run_kernels(qmd);
    return;
  }
  const uint64_t qmd = static_cast<uint64_t>(compute[NVC7C0_SEND_PCAS_A]) << 8;
  switch (method) {
    case NVC7C0_LAUNCH_DMA:
      channel.inline_offset = 0;
      break;
    case NVC7C0_LOAD_INLINE_DATA:
      load_inline_data(channel, compute, data);
      break;
    case NVC7C0_NOTIFY:
      write_notification(compute, data);
      break;
    case NVC7C0_SET_REPORT_SEMAPHORE_D:
      report_semaphore(compute, data);
      break;
    case NVC7C0_SEND_SIGNALING_PCAS_B:
      if (DRF_VAL(C7C0, _SEND_SIGNALING_PCAS_B, _SCHEDULE, data) != 0) run_kernels(qmd);
      break;
    case NVC7C0_SEND_SIGNALING_PCAS2_B: {
      const uint32_t action = DRF_VAL(C7C0, _SEND_SIGNALING_PCAS2_B, _PCAS_ACTION, data);
      if (action == NVC7C0_SEND_SIGNALING_PCAS2_B_PCAS_ACTION_SCHEDULE ||
          action == NVC7C0_SEND_SIGNALING_PCAS2_B_PCAS_ACTION_INVALIDATE_COPY_SCHEDULE ||
          action >= NVC7C0_SEND_SIGNALING_PCAS2_B_PCAS_ACTION_PREFETCH_SCHEDULE) {
        run_kernels(qmd);
      }
      break;
    }
    default:
      break;
  }
}

// Vulkan and OpenGL set the engine up, and use it for nothing here.
void twod_method(uint32_t method) {
  switch (method) {
    case NV902D_SET_NOTIFY_A:
    case NV902D_SET_NOTIFY_B:
    case NV902D_SET_CLIP_ENABLE:
    case NV902D_SET_OPERATION:
    case NV902D_SET_PIXELS_FROM_MEMORY_CORRAL_SIZE:
      break;
    default:
      report_unknown("method", method, "of the 2D engine");
  }
}

// ---- Push buffers

bool run_method(Channel& channel, uint32_t subchannel, uint32_t method, uint32_t data) {
  constexpr uint32_t kFirstOfEngines = 0x100;  // methods below are the host's
  if (method == NVC56F_SET_OBJECT) {
    // 550 leaves the class out: its subchannels always have the same.
    constexpr uint32_t kCompute = 1, kCopy = 4;
    uint32_t object_class = DRF_VAL(C56F, _SET_OBJECT, _NVCLASS, data);
    if (object_class == 0 && subchannel == kCompute) object_class = ADA_COMPUTE_A;
    if (object_class == 0 && subchannel == kCopy) object_class = AMPERE_DMA_COPY_B;
    channel.classes[subchannel] = object_class;
    return true;
  }
  if (method < kFirstOfEngines) return host_method(channel, method, data);
  Registers& registers = channel.methods[subchannel];
  registers[method] = data;
  switch (channel.classes[subchannel]) {
    case AMPERE_DMA_COPY_B:
      if (method == NVC7B5_LAUNCH_DMA) launch_dma(registers, data);
      break;
    case ADA_COMPUTE_A:
    case AMPERE_COMPUTE_B:
    case ADA_A:
    case AMPERE_B:
    case KEPLER_INLINE_TO_MEMORY_B:
      compute_method(channel, registers, method, data);
      break;
    case FERMI_TWOD_A:
      twod_method(method);
      break;
    default:
      report_unknown("class", channel.classes[subchannel], "of a subchannel");
      break;
  }
  return true;
}

// Goes on where the channel is. false: it waits.
bool run_push_buffer(Channel& channel) {
  while (channel.position < channel.push.size()) {
    const size_t start = channel.position;
    const uint32_t header = channel.push[start];
    uint32_t method = DRF_VAL(C56F, _DMA_METHOD, _ADDRESS, header) << 2;
    const uint32_t subchannel = DRF_VAL(C56F, _DMA_METHOD, _SUBCHANNEL, header);
    uint32_t count = DRF_VAL(C56F, _DMA_METHOD, _COUNT, header);
    const uint32_t operation = DRF_VAL(C56F, _DMA, _SEC_OP, header);
    switch (operation) {
      case NVC56F_DMA_SEC_OP_IMMD_DATA_METHOD:
        if (!run_method(channel, subchannel, method, count)) return false;
        ++channel.position;
        continue;
      case NVC56F_DMA_SEC_OP_GRP0_USE_TERT:
        count = DRF_VAL(C56F, _DMA_METHOD, _COUNT_OLD, header);
        method = DRF_VAL(C56F, _DMA_METHOD, _ADDRESS_OLD, header) << 2;
        if (header != NVC56F_DMA_NOP &&
            DRF_VAL(C56F, _DMA, _TERT_OP, header) == NVC56F_DMA_TERT_OP_GRP0_INC_METHOD)
          break;
        ++channel.position;
        continue;
      case NVC56F_DMA_SEC_OP_INC_METHOD:
      case NVC56F_DMA_SEC_OP_NON_INC_METHOD:
      case NVC56F_DMA_SEC_OP_ONE_INC:
        break;
      default:
        trace("channel %u: unknown header %x", channel.id, header);
        ++channel.position;
        continue;
    }
    for (; channel.word < count && start + 1 + channel.word < channel.push.size(); ++channel.word) {
      uint32_t step = channel.word;
      if (operation == NVC56F_DMA_SEC_OP_NON_INC_METHOD) step = 0;
      if (operation == NVC56F_DMA_SEC_OP_ONE_INC) step = std::min(step, 1u);
      if (!run_method(channel, subchannel, method + 4 * step,
                      channel.push[start + 1 + channel.word]))
        return false;
    }
    channel.word = 0;
    channel.position = start + 1 + count;
  }
  channel.push.clear();
  channel.position = 0;
  return true;
}

void advance(Channel& channel) {
  channel.get = (channel.get + 1) % channel.entries;
  channel.control->GPGet = channel.get;
}

// Fetches one entry of the ring. false: it cannot be read.
bool fetch(Channel& channel) {
  const char* bytes =
      gpu_bytes(channel.gpfifo + static_cast<uint64_t>(NVC56F_GP_ENTRY__SIZE) * channel.get,
                NVC56F_GP_ENTRY__SIZE);
  if (bytes == nullptr) return false;
  uint32_t entry[2];
  memcpy(entry, bytes, sizeof entry);
  const uint64_t address =
      static_cast<uint64_t>(DRF_VAL(C56F, _GP_ENTRY1, _GET_HI, entry[1])) << 32 | (entry[0] & ~3u);
  const uint64_t words = DRF_VAL(C56F, _GP_ENTRY1, _LENGTH, entry[1]);
  trace("channel %u: entry %u, %llu words at %llx", channel.id, channel.get,
        static_cast<unsigned long long>(words), static_cast<unsigned long long>(address));
  channel.push.resize(words);
  channel.position = channel.word = 0;
  for (uint64_t done = 0; done < words * 4;) {
    uint64_t left = 0;
    const char* source = page_tables::find(address + done, left);
    if (source == nullptr) {
      trace("GPU fault in a push buffer at %llx", static_cast<unsigned long long>(address + done));
      channel.push.clear();
      return true;
    }
    const uint64_t piece = std::min(words * 4 - done, left);
    memcpy(reinterpret_cast<char*>(channel.push.data()) + done, source, piece);
    done += piece;
  }
  return true;
}

// Does what can be done. Whether anything was.
bool step(Channel& channel) {
  bool done = false;
  if (channel.waits) {
    const size_t position = channel.position;
    const uint32_t word = channel.word;
    if (!run_push_buffer(channel)) return channel.position != position || channel.word != word;
    channel.waits = false;
    done = true;
    advance(channel);
  }
  while (channel.get != channel.control->GPPut && channel.control->GPPut < channel.entries) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!fetch(channel)) return done;
    done = true;
    if (!run_push_buffer(channel)) {
      channel.waits = true;
      return true;
    }
    advance(channel);
  }
  return done;
}

// A real doorbell is a register; here it is memory, so that the engine must look. It looks less
// often the longer nothing was to be done. libcuda's threads spin while they wait for the
// engine. On a busy processor, an engine that yields runs again only after their time slices. An
// engine that sleeps runs as soon as it wakes up.
// Random calls of eight processes took 67 s of processor time with 200 naps of 1 us, then 2,000 of
// 50 us, then 500 us, and 35 s with these.
void* run(void*) {
  constexpr int kLeastNaps = 20, kShortNaps = 1000;
  prctl(PR_SET_TIMERSLACK, 1);  // by default each sleep lasts up to 50 us longer (prctl(2))
  for (int idle = 0;; ++idle) {
    {
      const std::lock_guard<std::mutex> guard(mutex);
      for (Channel* channel : channels) {
        if (step(*channel)) idle = 0;
      }
    }
    usleep(idle < kLeastNaps ? 1 : idle < kShortNaps ? 100 : 1000);
  }
}

}  // namespace

void engine::add(Channel* channel) {
  const std::lock_guard<std::mutex> guard(mutex);
  channels.push_back(channel);
  if (started) return;
  started = true;
  sigset_t all, old;  // the program's signals are not for this thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, run, nullptr) == 0) pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void engine::remove(Channel* channel) {
  const std::lock_guard<std::mutex> guard(mutex);
  channels.erase(std::find(channels.begin(), channels.end(), channel));
  delete channel;
}

void engine::forget_all() {
  new (&mutex) std::mutex;
  new (&channels) std::vector<Channel*>;
  started = false;
}

}  // namespace rmsim
