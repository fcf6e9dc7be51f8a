// Whether the driver counts imported memory for the importer too: by IPC, VMM and pool. Without the
// library.
#include <unistd.h>

#include "tests/clients/token.h"
#include "tests/hardware/cuda.h"
#include "tests/hardware/observer.h"
#include "tests/hardware/probes.h"

namespace hardware {
namespace {

constexpr size_t kBytes = 256 * kMiB;

void* as_handle(int fd) {
  return reinterpret_cast<void*>(static_cast<intptr_t>(fd));
}

std::string export_ipc(Child&) {
  CUdeviceptr address = 0;
  CUipcMemHandle handle = {};
  cuda("cuMemAlloc_v2", &address, kBytes);
  cuda("cuIpcGetMemHandle", &handle, address);
  return client::hex(handle.reserved);
}

void import_ipc(Child&, const std::string& token) {
  CUipcMemHandle handle = {};
  CUdeviceptr address = 0;
  client::read_hex(token, handle.reserved);
  cuda("cuIpcOpenMemHandle_v2", &address, handle, 1u);
}

std::string export_vmm(Child& child) {
  const CUmemAllocationProp properties = device_memory(true);
  const CUmemAllocationProp* wanted = &properties;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  void* const out = &fd;
  cuda("cuMemCreate", &handle, kBytes, wanted, 0ull);
  cuda("cuMemExportToShareableHandle", out, handle, kPosixDescriptor, 0ull);
  child.give(fd);
  return "sent";
}

void import_vmm(Child& exporter, const std::string&) {
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr address = 0;
  cuda("cuMemImportFromShareableHandle", &handle, as_handle(exporter.take()), kPosixDescriptor);
  cuda("cuMemAddressReserve", &address, kBytes, size_t{0}, CUdeviceptr{0}, 0ull);
  cuda("cuMemMap", address, kBytes, size_t{0}, handle, 0ull);
}

std::string export_pool(Child& child) {
  const CUmemPoolProps properties = pool_memory(true);
  const CUmemPoolProps* wanted = &properties;
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  const CUstream stream = nullptr;
  CUmemPoolPtrExportData data = {};
  int fd = -1;
  void* const out = &fd;
  cuda("cuMemPoolCreate", &pool, wanted);
  cuda("cuMemAllocFromPoolAsync", &address, kBytes, pool, stream);
  cuda("cuStreamSynchronize", stream);
  cuda("cuMemPoolExportToShareableHandle", out, pool, kPosixDescriptor, 0ull);
  cuda("cuMemPoolExportPointer", &data, address);
  child.give(fd);
  return client::hex(data.reserved);
}

void import_pool(Child& exporter, const std::string& token) {
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  CUmemPoolPtrExportData data = {};
  cuda("cuMemPoolImportFromShareableHandle", &pool, as_handle(exporter.take()), kPosixDescriptor,
       0ull);
  client::read_hex(token, data.reserved);
  cuda("cuMemPoolImportPointer", &address, pool, &data);
}

uint64_t counted() {
  uint64_t bytes = 0;
  if (!nvml::bytes_of(getpid(), &bytes)) throw Unmeasured("NVML's list does not name this process");
  return bytes;
}

}  // namespace

void ask_sharing(const Options& options) {
  const std::string way = options.text("way");
  const auto exporting = way == "ipc" ? export_ipc : way == "vmm" ? export_vmm : export_pool;
  const auto importing = way == "ipc" ? import_ipc : way == "vmm" ? import_vmm : import_pool;
  const std::string key = "sharing." + way + "_importer_bytes";
  Child exporter([&](Child& child) {
    begin_cuda();
    child.answer(exporting(child));
    child.wait();
  });
  question({key.c_str()}, [&] {
    const std::string token = exporter.ask();
    begin_cuda();
    CUdeviceptr warm = 0;
    cuda("cuMemAlloc_v2", &warm, size_t{2 * kMiB});
    const uint64_t before = counted();
    importing(exporter, token);
    fact(key, static_cast<double>(counted()) - static_cast<double>(before));
  });
}

}  // namespace hardware
