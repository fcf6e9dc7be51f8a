// Linear memory, memory behind handles, memory of other processes, arrays, and what is told of
// them.
#include <unistd.h>

#include "measurement.h"

namespace client {
namespace {

CUdeviceptr pointer, mapped;
CUdeviceptr_v1 low;
CUmemGenericAllocationHandle handle, second_handle, team;
CUarray array;
CUmipmappedArray mipmap;
size_t bytes, total;
unsigned low_bytes, low_total;
int descriptor;

template <typename Descriptor>
Descriptor form_of(size_t width, size_t height, unsigned flags = 0) {
  using Extent = decltype(Descriptor::Width);
  Descriptor form = {};
  form.Format = 0x01;  // UNSIGNED_INT8
  form.NumChannels = 1;
  form.Width = static_cast<Extent>(width);
  form.Height = static_cast<Extent>(height);
  if constexpr (requires { form.Flags; }) form.Flags = flags;
  return form;
}

// Of device memory that can be exported.
const CUmemAllocationProp* properties() {
  static CUmemAllocationProp wanted = {};
  wanted.type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  wanted.requestedHandleTypes = kPosixDescriptor;
  wanted.location = {.type = kLocationDevice, .id = 0};
  return &wanted;
}

void measure_handles(AllCounts& all) {
  Measurement()
      .step("cuMemCreate", [] { call("cuMemCreate", &handle, kPage, properties(), 0ull); })
      .step("cuMemMap", [] { call("cuMemMap", mapped, kPage, size_t{0}, handle, 0ull); })
      .step("cuMemRetainAllocationHandle",
            [] {
              call("cuMemRetainAllocationHandle", &second_handle, reinterpret_cast<void*>(mapped));
            })
      .unmeasured([] { call("cuMemRelease", second_handle); })
      .step("cuMemUnmap", [] { call("cuMemUnmap", mapped, kPage); })
      .step("cuMemRelease", [] { call("cuMemRelease", handle); })
      .run(all);
  Measurement()
      .unmeasured([] { call("cuMemCreate", &handle, kPage, properties(), 0ull); })
      .step("cuMemExportToShareableHandle",
            [] {
              call("cuMemExportToShareableHandle", static_cast<void*>(&descriptor), handle,
                   kPosixDescriptor, 0ull);
            })
      .step("cuMemImportFromShareableHandle",
            [] {
              call("cuMemImportFromShareableHandle", &second_handle,
                   reinterpret_cast<void*>(static_cast<intptr_t>(descriptor)), kPosixDescriptor);
            })
      .unmeasured([] { close(descriptor); })
      .step("cuMemRelease (imported)", [] { call("cuMemRelease", second_handle); })
      .unmeasured([] { call("cuMemRelease", handle); })
      .run(all);
}

void measure_multicast(AllCounts& all) {
  struct {
    unsigned devices = 1;
    size_t bytes = kPage;
    unsigned long long handle_types = 0, flags = 0;
  } static const form;  // CUmulticastObjectProp
  const auto unbind = [] { call("cuMulticastUnbind", team, 0, size_t{0}, kPage); };
  call("cuMemCreate", &handle, kPage, properties(), 0ull);
  call("cuMemMap", mapped, kPage, size_t{0}, handle, 0ull);
  Measurement()
      .step("cuMulticastCreate",
            [] { call("cuMulticastCreate", &team, static_cast<const void*>(&form)); })
      .unmeasured([] { call("cuMulticastAddDevice", team, 0); })
      .step("cuMulticastBindMem",
            [] { call("cuMulticastBindMem", team, size_t{0}, handle, size_t{0}, kPage, 0ull); })
      .step("cuMulticastUnbind", unbind)
      .step(
          "cuMulticastBindMem_v2",
          [] { call("cuMulticastBindMem_v2", team, 0, size_t{0}, handle, size_t{0}, kPage, 0ull); })
      .unmeasured(unbind)
      .step("cuMulticastBindAddr",
            [] { call("cuMulticastBindAddr", team, size_t{0}, mapped, kPage, 0ull); })
      .unmeasured(unbind)
      .step("cuMulticastBindAddr_v2",
            [] { call("cuMulticastBindAddr_v2", team, 0, size_t{0}, mapped, kPage, 0ull); })
      .unmeasured(unbind)
      .unmeasured([] { call("cuMemRelease", team); })
      .run(all);
  call("cuMemUnmap", mapped, kPage);
  call("cuMemRelease", handle);
}

// One tile of a sparse array.
CUarrayMapInfo tile(int operation) {
  CUarrayMapInfo info = {};
  info.resource.array = array;
  auto& level = info.subresource.sparseLevel;
  level.extentWidth = level.extentHeight = 256;
  level.extentDepth = 1;
  info.memOperationType = operation;
  info.memHandle.memHandle = operation == kOperationMap ? handle : 0;
  info.deviceBitMask = 1;
  return info;
}

void measure_sparse(AllCounts& all) {
  const auto form = form_of<CUDA_ARRAY3D_DESCRIPTOR>(4096, 4096, kArraySparse);
  call("cuArray3DCreate_v2", &array, &form);
  call("cuMemCreate", &handle, kPage, properties(), 0ull);
  for (const char* name : {"cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"}) {
    const auto map = [=](int operation) {
      CUarrayMapInfo info = tile(operation);
      call(name, &info, 1u, shared.stream);
    };
    Measurement()
        .step(name, [=] { map(kOperationMap); })
        .step(std::string(name) + " (unmaps)", [=] { map(kOperationUnmap); })
        .run(all);
  }
  call("cuArrayDestroy", array);
  call("cuMemRelease", handle);
}

template <typename Descriptor>
void measure_array(AllCounts& all, const char* make, const char* which, size_t width,
                   size_t height) {
  Measurement()
      .step(std::string(make) + which,
            [=] {
              const auto form = form_of<Descriptor>(width, height);
              const Descriptor* const descriptor = &form;
              call(make, &array, descriptor);
            })
      .step(std::string("cuArrayDestroy") + which, [] { call("cuArrayDestroy", array); })
      .run(all);
}

}  // namespace

void measure_linear(AllCounts& all) {
  Measurement()
      .step("cuMemAlloc_v2", [] { call("cuMemAlloc_v2", &pointer, kPage); })
      .step("cuMemFree_v2", [] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemAlloc_v2 (small)", [] { call("cuMemAlloc_v2", &pointer, kSmall); })
      .step("cuMemFree_v2 (small)", [] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemAlloc", [] { call("cuMemAlloc", &low, unsigned{kPage}); })
      .step("cuMemFree", [] { call("cuMemFree", low); })
      .step(
          "cuMemAllocPitch",
          [] { call("cuMemAllocPitch", &low, &low_bytes, unsigned{kSmall}, unsigned{kSmall}, 4u); })
      .unmeasured([] { call("cuMemFree", low); })
      .run(all);
  Measurement()
      .step("cuMemAllocPitch_v2",
            [] { call("cuMemAllocPitch_v2", &pointer, &bytes, kSmall, kSmall, 4u); })
      .unmeasured([] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemAllocManaged", [] { call("cuMemAllocManaged", &pointer, kSmall, 1u); })
      .unmeasured([] { call("cuMemFree_v2", pointer); })
      .run(all);
  Measurement()
      .step("cuMemGetInfo_v2", [] { call("cuMemGetInfo_v2", &bytes, &total); })
      .step("cuMemGetInfo", [] { call("cuMemGetInfo", &low_bytes, &low_total); })
      .step("cuDeviceTotalMem_v2", [] { call("cuDeviceTotalMem_v2", &total, 0); })
      .step("cuDeviceTotalMem", [] { call("cuDeviceTotalMem", &low_total, 0); })
      .run(all);
}

void measure_vmm(AllCounts& all) {
  call("cuMemAddressReserve", &mapped, kPage, size_t{0}, CUdeviceptr{0}, 0ull);
  measure_handles(all);
  measure_multicast(all);
}

void measure_ipc(AllCounts& all, const Exporter& exporter) {
  static CUipcMemHandle own;
  call("cuMemAlloc_v2", &pointer, kPage);
  Measurement()
      .step("cuIpcGetMemHandle", [] { call("cuIpcGetMemHandle", &own, pointer); })
      .step("cuMemGetHandleForAddressRange",
            [] {
              call("cuMemGetHandleForAddressRange", static_cast<void*>(&descriptor), pointer, kPage,
                   1, 0ull);
            })
      .unmeasured([] { close(descriptor); })
      .run(all);
  call("cuMemFree_v2", pointer);
  for (const char* name : {"cuIpcOpenMemHandle_v2", "cuIpcOpenMemHandle"}) {
    Measurement()
        .step(name, [&, name] { call(name, &pointer, exporter.memory(), 1u); })
        .step("cuIpcCloseMemHandle", [] { call("cuIpcCloseMemHandle", pointer); })
        .run(all);
  }
}

void measure_arrays(AllCounts& all) {
  measure_array<CUDA_ARRAY3D_DESCRIPTOR>(all, "cuArray3DCreate_v2", "", 4096, 4096);
  measure_array<CUDA_ARRAY3D_DESCRIPTOR>(all, "cuArray3DCreate_v2", " (small)", 4096, 0);
  measure_array<CUDA_ARRAY3D_DESCRIPTOR_v1>(all, "cuArray3DCreate", "", 4096, 4096);
  measure_array<CUDA_ARRAY_DESCRIPTOR>(all, "cuArrayCreate_v2", "", 4096, 4096);
  measure_array<CUDA_ARRAY_DESCRIPTOR_v1>(all, "cuArrayCreate", "", 4096, 4096);
  Measurement()
      .step("cuMipmappedArrayCreate",
            [] {
              const auto form = form_of<CUDA_ARRAY3D_DESCRIPTOR>(4096, 4096);
              call("cuMipmappedArrayCreate", &mipmap, &form, 4u);
            })
      .step("cuMipmappedArrayDestroy", [] { call("cuMipmappedArrayDestroy", mipmap); })
      .run(all);
  measure_sparse(all);
}

}  // namespace client
