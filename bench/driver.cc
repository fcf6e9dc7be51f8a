// Opens the driver for driver.h. A benchmark without a driver means nothing, so any failure ends
// the program.
#include "driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bench {
namespace {

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::exit(1);
}

void check(const char* what, int result) {
  if (result == 0) return;
  char why[32];
  std::snprintf(why, sizeof why, "error %d", result);
  give_up(what, why);
}

template <typename Function>
void set(Function& function, void* address, const char* name) {
  if (address == nullptr) give_up(name, "not found");
  std::memcpy(&function, &address, sizeof address);
}

Driver open_driver() {
  Driver driver{};
  driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver.library == nullptr) give_up("libcuda.so.1", dlerror());
  set(driver.get_proc_address, dlsym(driver.library, "cuGetProcAddress_v2"), "cuGetProcAddress_v2");
  const auto find = [&](auto& function, const char* name) {
    void* address = nullptr;
    check(name, driver.get_proc_address(name, &address, 12000, 0, nullptr));
    set(function, address, name);
  };
  find(driver.init, "cuInit");
  find(driver.device_get, "cuDeviceGet");
  find(driver.device_total, "cuDeviceTotalMem");
  find(driver.retain, "cuDevicePrimaryCtxRetain");
  find(driver.set_current, "cuCtxSetCurrent");
  find(driver.allocate, "cuMemAlloc");
  find(driver.free, "cuMemFree");
  find(driver.memory_info, "cuMemGetInfo");
  find(driver.load_module, "cuModuleLoadData");
  find(driver.get_function, "cuModuleGetFunction");
  find(driver.launch, "cuLaunchKernel");
  find(driver.create_stream, "cuStreamCreate");
  find(driver.allocate_async, "cuMemAllocAsync");
  find(driver.free_async, "cuMemFreeAsync");
  find(driver.begin_capture, "cuStreamBeginCapture");
  find(driver.end_capture, "cuStreamEndCapture");
  find(driver.instantiate, "cuGraphInstantiateWithFlags");
  find(driver.launch_graph, "cuGraphLaunch");
  check("cuInit", driver.init(0));
  int device = 0;
  void* context = nullptr;
  check("cuDeviceGet", driver.device_get(&device, 0));
  check("cuDevicePrimaryCtxRetain", driver.retain(&context, device));
  check("cuCtxSetCurrent", driver.set_current(context));
  return driver;
}

}  // namespace

const Driver& Driver::get() {
  static const Driver driver = open_driver();
  return driver;
}

}  // namespace bench
