// The rows of functions.inc as an array, for the dlsym interposer, and the loaded library's
// version.
#include "hooks/smi/amdsmi/library.h"

#include "shim/base/report.h"

namespace fracgpu::amdsmi {

#define FRACGPU_TABLE "hooks/smi/amdsmi/functions.inc"
#include "shim/vendor/function_table.inc"

// The second name is the library in the wheel of its Python interface.
constinit VendorLibrary library("amdsmi_", {"libamd_smi.so", "libamd_smi_python.so"}, functions);

namespace {

std::atomic<bool> said_version{false}, said_device{false};

bool first(std::atomic<bool>& reported) {
  return !reported.exchange(true, std::memory_order_relaxed);
}

uint32_t version() {
  static std::atomic<uint32_t> cached{0};
  uint32_t number = cached.load(std::memory_order_relaxed);
  if (number == 0) {
    unsigned char info[256] = {};  // the struct has 24 bytes and has changed once
    if (real::amdsmi_get_lib_version(info) == kSuccess) number = number_at<uint32_t>(info, 0);
    cached.store(number, std::memory_order_relaxed);
  }
  return number;
}

}  // namespace

uint32_t known_version() {
  const uint32_t number = version();
  if (is_known(number)) return number;
  // An uninitialized library reports neither a version nor anything else.
  if (number != 0 && first(said_version)) {
    report(Level::warn,
           "{} is of version {}, and only {} to {} are known: what it tells is not "
           "changed to the tenant's view",
           library.soname(), number, kFirstVersion, kLastVersion);
  }
  return 0;
}

bool key_of(amdsmi_processor_handle handle, kfd::Key& key) {
  unsigned char info[256] = {};  // the struct has 64 bytes; the first are KFD's number
  if (real::amdsmi_get_gpu_kfd_info(handle, info) == kSuccess &&
      kfd::key_of_gpu_id(number_at<uint64_t>(info, 0), key)) {
    return true;
  }
  uint64_t bdf = 0;
  if (real::amdsmi_get_gpu_bdf_id(handle, &bdf) != kSuccess)
    return false;  // not a device by itself
  if (kfd::key_of_bdf(bdf, key)) return true;
  if (first(said_device)) {
    report(Level::warn,
           "{} does not tell which device of /sys/class/kfd it means: what it tells of it is not "
           "changed to the tenant's view",
           library.soname());
  }
  return false;
}

}  // namespace fracgpu::amdsmi
