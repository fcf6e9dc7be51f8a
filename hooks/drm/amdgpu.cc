// Stands between libdrm, Mesa's drivers and the C library's ioctl; see amdgpu.h.
//
// The drivers hold their own locks during these calls. This code calls none of their functions.
// Requests and their structures are the kernel's public interface (drm/drm.h, drm/amdgpu_drm.h).
#include "hooks/drm/amdgpu.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "hooks/hsa/hook.h"
#include "hooks/usage/kfd_topology.h"
#include "shim/base/folder.h"
#include "shim/base/held_objects.h"
#include "shim/base/import_slot.h"
#include "shim/charge/driver_memory.h"
#include "shim/charge/overhead.h"
#include "shim/charge/refusal.h"
#include "shim/charge/vmm_calls.h"

namespace fracgpu::drm {
namespace {

constexpr uint8_t kType = 'd';
constexpr uint8_t kCloseHandle = 0x09, kExport = 0x2d, kImport = 0x2e, kDestroyDumb = 0xb4;
constexpr uint8_t kCreate = 0x40, kInfo = 0x45, kOperation = 0x50;  // amdgpu's own
constexpr uint32_t kMajor = 226;

constexpr uint64_t kInHostMemory = 1 << 1;    // AMDGPU_GEM_DOMAIN_GTT
constexpr uint64_t kInDeviceMemory = 1 << 2;  // AMDGPU_GEM_DOMAIN_VRAM

// drm_amdgpu_gem_create
union Create {
  struct {
    uint64_t bytes, alignment, domains, flags;
  } wanted;
  uint32_t handle;  // written
};

// drm_prime_handle
struct Prime {
  uint32_t handle;
  uint32_t flags;
  int32_t fd;
};

// drm_amdgpu_gem_op
struct Operation {
  uint32_t handle;
  uint32_t operation;
  uint64_t value;
};
constexpr uint32_t kSetPlacement = 1;  // AMDGPU_GEM_OP_SET_PLACEMENT

// drm_amdgpu_info
struct Info {
  uint64_t answer;
  uint32_t answer_size;
  uint32_t query;
  uint32_t more[4];
};
constexpr uint32_t kUsage = 0x10, kSizes = 0x14, kVisibleUsage = 0x17, kMemory = 0x19;

// drm_amdgpu_info_vram_gtt
struct Sizes {
  uint64_t device, visible, host;
};

// drm_amdgpu_memory_info. `visible`: the part of the device's memory that the processor reaches.
struct Heap {
  uint64_t total, usable, used, largest;
};
struct Memory {
  Heap device, visible, host;
};

// The original functions.
using Ioctl = int (*)(int fd, unsigned long request, void* argument);
using Close = int (*)(int fd);
std::atomic<void*> next_ioctl{nullptr}, next_close{nullptr};

int ask_kernel(int fd, unsigned long request, void* argument) {
  return reinterpret_cast<Ioctl>(next_ioctl.load(std::memory_order_acquire))(fd, request, argument);
}

constexpr unsigned size_of(unsigned long request) {
  return request >> 16 & 0x3fff;
}

constexpr const char* kApi = "AMD graphics driver allocation";
// Drivers retry after they have emptied their caches. Only the first refusal is reported.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool was_refused = false;

// A GEM handle belongs to an open file. The descriptor stands for the file.
constexpr uint64_t key_of(int fd, uint32_t handle) {
  return uint64_t{static_cast<uint32_t>(fd)} << 32 | handle;
}
constexpr int file_of(uint64_t key) {
  return static_cast<int>(key >> 32);
}

bool status_of(int fd, struct statx& status) {
  const int code = errno;
  const bool known = statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO, &status) == 0;
  errno = code;
  return known;
}

// The minor number of a DRM device; negative if the descriptor is none.
int minor_of(int fd) {
  struct statx status;
  const bool is_drm =
      status_of(fd, status) && S_ISCHR(status.stx_mode) && status.stx_rdev_major == kMajor;
  return is_drm ? static_cast<int>(status.stx_rdev_minor) : -1;
}

// The ledger's index of the GPU that the descriptor is open for. Negative: not capped, or kFault.
int device_index_of(Process& process, int fd) {
  // By the minor number: 0 not known, 1 another driver's, otherwise the slot and kFirst.
  constexpr int kOther = 1, kFirst = 2;
  static constinit std::array<std::atomic<int>, 256> known{};
  const int minor = minor_of(fd);
  if (minor < 0) return Process::kNotCapped;
  std::atomic<int>* const entry =
      minor < static_cast<int>(known.size()) ? &known[static_cast<size_t>(minor)] : nullptr;
  const int kept = entry != nullptr ? entry->load(std::memory_order_relaxed) : 0;
  if (kept == kOther) return Process::kNotCapped;
  if (kept >= kFirst) {
    const int device_index = process.cached_device_index(kept - kFirst);
    if (device_index != Process::kUnknownDevice) return device_index;
  }
  kfd::Key key;
  const bool is_amd = kfd::key_of_drm_node(static_cast<uint32_t>(minor), key);
  int index = hsa::kMostOfMachine;  // KFD does not show it
  if (is_amd && (!kfd::index_of(key.c_str(), index) || index >= hsa::kMostOfMachine))
    index = hsa::kMostOfMachine + minor % hsa::kMostOfMachine;
  const int slot = hsa::slot_of(index);
  if (entry != nullptr) entry->store(is_amd ? slot + kFirst : kOther, std::memory_order_relaxed);
  return is_amd ? process.index_of_device(slot, key.c_str(), 0) : Process::kNotCapped;
}

// GEM buffers.

// An import's key in Process::physical. No driver has a handle or an address that is so large.
constexpr uint64_t import_key(const DriverBuffers::Entry& import) {
  return uint64_t{1} << 63 | import.number;
}

// The kernel has closed the buffer's handle, if there is an entry.
void give_back(Process& process, const DriverBuffers::Entry& buffer) {
  if (buffer.key == 0) return;
  if (!buffer.is_import) return release_uncounted(process, buffer, OpenExports::Of::gem_buffer);
  give_back_import(process, import_key(buffer));
  // It may have been the last handle of a buffer of this process.
  give_back_closed_exports(process);
}

template <typename Ask>
int create(int fd, Create& request, Ask ask) {
  if ((request.wanted.domains & kInDeviceMemory) == 0) return ask();
  Process* const process = Process::self();
  if (process == nullptr) return ask();
  const int device_index = device_index_of(*process, fd);
  if (device_index == Process::kFault) {
    report_fault(*process, kApi);
    errno = ENOMEM;
    return -1;
  }
  if (device_index < 0) return ask();
  const uint64_t bytes = request.wanted.bytes;
  DriverMemory memory(*process, device_index, hsa::page_units(bytes));
  if (!memory) {
    if (!was_refused) report_refusal(*process, device_index, {kApi, bytes}, memory.refusal());
    was_refused = true;
    errno = ENOMEM;
    return -1;
  }
  const int result = ask();
  if (result != 0) return result;
  was_refused = false;
  // If there is an entry, its file was closed unseen.
  give_back(*process, process->gem_buffers.take(key_of(fd, request.handle)));
  memory.taken_uncounted(process->gem_buffers, key_of(fd, request.handle));
  return result;
}

template <typename Ask>
int close_handle(int fd, uint32_t handle, Ask ask) {
  Process* const process = Process::known();
  // This must precede the call: the kernel may give the handle to another thread at once.
  const DriverBuffers::Entry buffer =
      process != nullptr ? process->gem_buffers.take(key_of(fd, handle)) : DriverBuffers::Entry{};
  if (buffer.key == 0) return ask();
  const int result = ask();
  if (result == 0) {
    give_back(*process, buffer);
  } else {
    process->gem_buffers.enter(buffer);
  }
  return result;
}

// A buffer has one dma-buf. Each handle that was exported or imported holds it until it is closed,
// in any process (drm_prime.c), as each descriptor does. So the exporter's watch on the dma-buf
// shows how long the kernel keeps the memory (open_exports.h).

template <typename Ask>
int export_buffer(int fd, Prime& request, Ask ask) {
  const int result = ask();
  Process* const process = Process::known();
  if (result != 0 || process == nullptr) return result;
  note_exported_buffer(*process, process->gem_buffers, key_of(fd, request.handle), request.fd,
                       OpenExports::Of::gem_buffer);
  return result;
}

// Imported memory is charged to its exporter, or to the exporter's tenant while this process has
// it.
template <typename Ask>
int import_buffer(int fd, Prime& request, Ask ask) {
  Process* const process = Process::self();
  const int device_index = process != nullptr ? device_index_of(*process, fd) : Process::kNotCapped;
  if (device_index < 0) return ask();
  ImportCall call(*process, request.fd);
  const int result = ask();
  if (result != 0) return result;
  // The kernel returns the handle that the file has of the buffer, if there is one.
  const DriverBuffers::Entry import =
      process->gem_buffers.enter_new({.key = key_of(fd, request.handle),
                                      .device_index = device_index,
                                      .is_charged = false,
                                      .is_import = true});
  if (import.key != 0) call.imported(import_key(import), device_index, 0);
  return result;
}

// Host memory was never charged, so it must not move to the device. An import may be host memory.
template <typename Ask>
int change_placement(int fd, Operation& request, Ask ask) {
  const bool moves = request.operation == kSetPlacement && (request.value & kInDeviceMemory) != 0;
  Process* const process = moves ? Process::self() : nullptr;
  if (process == nullptr) return ask();
  const DriverBuffers::Entry buffer = process->gem_buffers.find(key_of(fd, request.handle));
  const bool is_charged = buffer.key != 0 && !buffer.is_import;
  if (!is_charged && device_index_of(*process, fd) != Process::kNotCapped)
    request.value = (request.value & ~kInDeviceMemory) | kInHostMemory;
  return ask();
}

// Files. The kernel gives a file's buffers back when its last descriptor is closed.

constexpr int kNone = -1, kNotKnown = -2;

// Another descriptor of the same open file, kNone or kNotKnown: a sandbox may forbid the
// comparison.
int duplicate_of(int fd, int minor) {
  constexpr int kOpenFiles = 0;  // KCMP_FILE
  const pid_t self = getpid();
  int duplicate = kNone;
  for_each_entry("/proc/self/fd", [&](const char* name) {
    const int other = static_cast<int>(strtol(name, nullptr, 10));
    if (duplicate >= 0 || other == fd || minor_of(other) != minor) return;
    const long order = syscall(SYS_kcmp, self, self, kOpenFiles, fd, other);
    if (order == 0) duplicate = other;
    if (order < 0) duplicate = kNotKnown;
  });
  return duplicate;
}

// Stands for a file that is being closed. No descriptor is negative.
int number_of_closing_file() {
  static constinit std::atomic<int> last{-1};
  return last.fetch_sub(1, std::memory_order_relaxed) - 1;
}

DriverBuffers::Entry take_one_of(DriverBuffers& buffers, int file) {
  return buffers.take_if(
      [file](const DriverBuffers::Entry& each) { return file_of(each.key) == file; });
}

void move_buffers(DriverBuffers& buffers, int from, int to) {
  for (;;) {
    DriverBuffers::Entry buffer = take_one_of(buffers, from);
    if (buffer.key == 0) return;
    buffer.key = key_of(to, static_cast<uint32_t>(buffer.key));
    buffers.enter(buffer);
  }
}

int watched_close(int fd) {
  const auto close_it = [fd] {
    return reinterpret_cast<Close>(next_close.load(std::memory_order_acquire))(fd);
  };
  Process* const process = Process::known();
  const int minor = process != nullptr ? minor_of(fd) : -1;
  if (minor < 0) return close_it();
  DriverBuffers& buffers = process->gem_buffers;
  const auto is_of_file = [fd](const DriverBuffers::Entry& each) {
    return file_of(each.key) == fd;
  };
  if (buffers.find_if(is_of_file).key == 0) return close_it();
  const int code = errno;
  const int duplicate = duplicate_of(fd, minor);
  errno = code;
  // Charged until this process ends, or until the number stands for another file.
  if (duplicate == kNotKnown) return close_it();
  // This must precede the call: the number may be another file's at once.
  const int file = duplicate >= 0 ? duplicate : number_of_closing_file();
  move_buffers(buffers, fd, file);
  const int result = close_it();
  if (duplicate >= 0) return result;
  for (;;) {
    const DriverBuffers::Entry buffer = take_one_of(buffers, file);
    if (buffer.key == 0) return result;
    give_back(*process, buffer);
  }
}

// Sizes.

// Makes a heap of the device look like that of a device of the cap's size.
void show_cap(Heap& heap, uint64_t cap, uint64_t held) {
  const uint64_t total = std::min(heap.total, cap);
  const uint64_t left =
      std::min(heap.total - std::min(heap.total, heap.used), cap - std::min(cap, held));
  heap = {.total = total,
          .usable = std::min(heap.usable, total),
          .used = total - std::min(total, left),
          .largest = std::min(heap.largest, total)};
}

// Changes the kernel's answer. The caller may have room for its beginning only.
template <typename Answer, typename Change>
void change_answer(const Info& request, Change change) {
  Answer answer{};
  void* const given = reinterpret_cast<void*>(request.answer);
  const size_t size = std::min<size_t>(request.answer_size, sizeof answer);
  memcpy(&answer, given, size);
  change(answer);
  memcpy(given, &answer, size);
}

template <typename Ask>
int show_cap_in(int fd, unsigned long number, Info& request, Ask ask) {
  const bool is_of_memory = request.query == kUsage || request.query == kSizes ||
                            request.query == kVisibleUsage || request.query == kMemory;
  const int result = ask();
  Process* const process = is_of_memory && result == 0 ? Process::self() : nullptr;
  const int device_index = process != nullptr ? device_index_of(*process, fd) : Process::kNotCapped;
  if (device_index < 0 || request.answer == 0) return result;
  const uint64_t cap = process->ledger.cap(device_index) * layout::kUnit;
  const uint64_t held = process->tenant_held(device_index);
  if (request.query == kSizes) {
    change_answer<Sizes>(request, [&](Sizes& sizes) {
      sizes.device = std::min(sizes.device, cap);
      sizes.visible = std::min(sizes.visible, cap);
    });
    return result;
  }
  const auto show = [&](Memory& memory) {
    show_cap(memory.device, cap, held);
    show_cap(memory.visible, cap, held);
  };
  if (request.query == kMemory) {
    change_answer<Memory>(request, show);
    return result;
  }
  Memory memory{};
  Info all{.answer = reinterpret_cast<uint64_t>(&memory),
           .answer_size = sizeof memory,
           .query = kMemory,
           .more = {}};
  if (ask_kernel(fd, number, &all) != 0) return result;
  show(memory);
  change_answer<uint64_t>(request, [&](uint64_t& used) {
    used = request.query == kUsage ? memory.device.used : memory.visible.used;
  });
  return result;
}

int watched_ioctl(int fd, unsigned long request, void* argument) {
  const auto ask = [&] { return ask_kernel(fd, request, argument); };
  if ((request >> 8 & 0xff) != kType || argument == nullptr) return ask();
  const auto is = [&](uint8_t number, size_t size) {
    return (request & 0xff) == number && size_of(request) >= size;
  };
  if (is(kCreate, sizeof(Create))) return create(fd, *static_cast<Create*>(argument), ask);
  if (is(kCloseHandle, sizeof(uint32_t)) || is(kDestroyDumb, sizeof(uint32_t)))
    return close_handle(fd, *static_cast<const uint32_t*>(argument), ask);
  if (is(kExport, sizeof(Prime))) return export_buffer(fd, *static_cast<Prime*>(argument), ask);
  if (is(kImport, sizeof(Prime))) return import_buffer(fd, *static_cast<Prime*>(argument), ask);
  if (is(kInfo, sizeof(Info))) return show_cap_in(fd, request, *static_cast<Info*>(argument), ask);
  if (is(kOperation, sizeof(Operation)))
    return change_placement(fd, *static_cast<Operation*>(argument), ask);
  return ask();
}

// Which objects are watched. Drivers make most requests through libdrm, and some themselves.

constexpr bool has_any(std::string_view name, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != name.npos; });
}

// Mesa's drivers for OpenCL and Direct3D 9 contain those for the GPUs.
bool is_watched(std::string_view name) {
  return has_any(name, {"libdrm.so", "libdrm_amdgpu", "radeon", "gallium", "amdvlk",
                        "RusticlOpenCL", "MesaOpenCL", "d3dadapter9"});
}

// Drivers that programs load by path may have no soname.
bool is_watched(const elf::Loaded& object) {
  return is_watched(object.soname) || is_watched(elf::file_name(object.path));
}

void watch(const elf::Loaded& object) {
  static constinit std::atomic<bool> has_warned{false};
  elf::replace_import(object, "close", reinterpret_cast<void*>(&watched_close), next_close);
  elf::watch_requests(object, reinterpret_cast<void*>(&watched_ioctl), next_ioctl, has_warned);
}

}  // namespace

bool may_be_graphics_driver(std::string_view file) {
  const std::string_view name = elf::file_name(file);
  // GLVND opens Mesa's EGL and GLX, and programs open GBM, which open the drivers.
  return is_watched(name) || has_any(name, {"mesa", "gbm"});
}

void watch_graphics_drivers() {
  elf::visit_held_objects([](const elf::Loaded& object) { return is_watched(object); }, watch);
}

}  // namespace fracgpu::drm
