// Calls libamd_smi; see smi_setter.h. Numbers are those of amdsmi.h.
#include "tools/partition/smi_setter.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "hooks/smi/amdsmi/abi.h"
#include "hooks/smi/amdsmi/layout.h"
#include "tools/partition/smi_layout.h"

namespace fracgpu::tools {
namespace {

constexpr int kNotSupported = 2, kNoPermission = 10, kBusy = 30, kReloadFailed = 54,
              kUnavailable = 55;
constexpr int kNoFunction = -1;

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

void check(int status, const Board& board, const std::string& mode) {
  switch (status) {
    case amdsmi::kSuccess:
      return;
    case kBusy:
      refuse(fmt::format(
          "the driver says that {} is busy: every process that has opened /dev/kfd has all its "
          "GPUs open; end those first",
          board.label()));
    case kReloadFailed:
      refuse("the kernel driver cannot be reloaded: something uses a GPU, perhaps a display");
    case kNoPermission:
      refuse(fmt::format("only root may set {} to {}", board.label(), mode));
    case kUnavailable:
    case kNotSupported:
      refuse(fmt::format("the driver does not give {} the mode {} now (libamd_smi: {})",
                         board.label(), mode, status));
    default:
      refuse(fmt::format("libamd_smi could not set {} to {}: it answers {}", board.label(), mode,
                         status));
  }
}

}  // namespace

template <typename... Parameters>
int SmiSetter::call(const char* name, Parameters... arguments) const {
  const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library_, name));
  return function == nullptr ? kNoFunction : function(arguments...);
}

SmiSetter::SmiSetter() {
  constexpr uint64_t kInitGpus = 2;
  for (const char* const name :
       {"libamd_smi.so", "libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25"}) {
    library_ = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (library_ != nullptr) break;
  }
  if (library_ == nullptr) {
    refuse(
        "there is no libamd_smi.so here, which changes modes; install AMD SMI of ROCm 6.4 or "
        "later, or put its folder into LD_LIBRARY_PATH");
  }
  if (dlsym(library_, "amdsmi_get_gpu_accelerator_partition_profile_config") == nullptr) {
    refuse("the libamd_smi here is too old to change modes; that of ROCm 6.4 or later is needed");
  }
  if (const int status = call("amdsmi_init", kInitGpus); status != 0) {
    refuse(fmt::format("libamd_smi cannot be initialised: it answers {}", status));
  }
}

SmiSetter::~SmiSetter() {
  // The library stays mapped: unloading a driver's library may do harm.
  call("amdsmi_shut_down");
}

// The handle of the GPU's first partition, which alone can change the modes.
// amdsmi_get_gpu_kfd_info writes KFD's number first.
void* SmiSetter::handle_of(const Board& board) const {
  uint32_t socket_count = 0;
  call("amdsmi_get_socket_handles", &socket_count, static_cast<void**>(nullptr));
  std::vector<void*> sockets(socket_count);
  call("amdsmi_get_socket_handles", &socket_count, sockets.data());
  for (void* const socket : sockets) {
    uint32_t count = 0;
    call("amdsmi_get_processor_handles", socket, &count, static_cast<void**>(nullptr));
    std::vector<void*> devices(count);
    call("amdsmi_get_processor_handles", socket, &count, devices.data());
    for (void* const device : devices) {
      uint64_t info[32] = {};
      if (call("amdsmi_get_gpu_kfd_info", device, static_cast<void*>(info)) != 0) continue;
      if (board.partitions[0].key == fmt::format("AMD-{}", info[0])) return devices[0];
    }
  }
  refuse(fmt::format("libamd_smi does not show {}", board.label()));
}

// A compute mode is set by the index of a profile; the library lists the profiles of each GPU. The
// older call by the mode's own number is to go (AMD SMI's changelog), and its numbers have changed.
uint32_t SmiSetter::profile_of(void* device, const Board& board, const std::string& mode) const {
  using namespace smi_layout;
  std::vector<unsigned char> config(2 * (kFirstProfile + kMostProfiles * kProfileBytes));
  check(call("amdsmi_get_gpu_accelerator_partition_profile_config", device,
             static_cast<void*>(config.data())),
        board, mode);
  const auto number = [&](size_t at) { return amdsmi::number_at<uint32_t>(config.data(), at); };
  for (size_t i = 0; i < std::min<size_t>(number(kProfileCount), kMostProfiles); ++i) {
    const size_t at = kFirstProfile + i * kProfileBytes;
    const uint32_t type = number(at + kMode);
    if (type >= std::size(kModes) || mode != kModes[type]) continue;
    // A layout other than the known one would not have the right number there.
    if (number(at + kPartitions) == board.partitions_in(mode)) return number(at + kIndex);
  }
  refuse(fmt::format("this libamd_smi tells of no profile for {} of {}", mode, board.label()));
}

void SmiSetter::set_compute(const Board& board, const std::string& mode) {
  void* const device = handle_of(board);
  check(
      call("amdsmi_set_gpu_accelerator_partition_profile", device, profile_of(device, board, mode)),
      board, mode);
}

void SmiSetter::set_memory(const Board& board, const std::string& mode) {
  const int ranges = mode.back() - '0';  // amdsmi_memory_partition_type_t
  check(call("amdsmi_set_gpu_memory_partition_mode", handle_of(board), ranges), board, mode);
  const int reloaded = call("amdsmi_gpu_driver_reload");
  if (reloaded != kNoFunction) check(reloaded, board, mode);
}

}  // namespace fracgpu::tools
