// Images: how much memory their data needs, and handles that name nothing on a device. Data is laid
// out in rows of a multiple of 256 bytes; real tilings differ, but programs only pass the size on.
#include <algorithm>

#include "sim/hsa/chunk.h"
#include "sim/hsa/runtime.h"

using sim::Runtime;

namespace {

constexpr size_t kRowAlignment = 256;
constexpr size_t kAlignment = 4096;

size_t channels(const hsa_ext_image_format_t& format) {
  switch (format.channel_order) {
    case HSA_EXT_IMAGE_CHANNEL_ORDER_RG:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_RA:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_RGX:
      return 2;
    case HSA_EXT_IMAGE_CHANNEL_ORDER_RGB:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_SRGB:
      return 3;
    case HSA_EXT_IMAGE_CHANNEL_ORDER_RGBA:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_BGRA:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_ARGB:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_ABGR:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_SRGBX:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_SRGBA:
    case HSA_EXT_IMAGE_CHANNEL_ORDER_SBGRA:
      return 4;
    default:
      return 1;
  }
}

size_t texel_bytes(const hsa_ext_image_format_t& format) {
  switch (format.channel_type) {
    case HSA_EXT_IMAGE_CHANNEL_TYPE_SNORM_INT8:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNORM_INT8:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_SIGNED_INT8:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNSIGNED_INT8:
      return channels(format);
    case HSA_EXT_IMAGE_CHANNEL_TYPE_SIGNED_INT32:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNSIGNED_INT32:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_FLOAT:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNORM_INT24:
      return 4 * channels(format);
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNORM_SHORT_555:
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNORM_SHORT_565:
      return 2;
    case HSA_EXT_IMAGE_CHANNEL_TYPE_UNORM_SHORT_101010:
      return 4;
    default:
      return 2 * channels(format);
  }
}

hsa_status_t size_of(hsa_agent_t agent, const hsa_ext_image_descriptor_t* image, size_t row,
                     size_t slice, hsa_ext_image_data_info_t* out) {
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (image == nullptr || out == nullptr || image->width == 0)
    return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  row = std::max(row, sim::round_up(image->width * texel_bytes(image->format), kRowAlignment));
  slice = std::max(slice, row * std::max<size_t>(image->height, 1));
  out->size = slice * std::max<size_t>(image->depth, 1) * std::max<size_t>(image->array_size, 1);
  out->alignment = kAlignment;
  return HSA_STATUS_SUCCESS;
}

// Handles are only ever given back.
hsa_status_t make(hsa_agent_t agent, const void* description, uint64_t* out) {
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (description == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  // The first words are the device's description of the image, which HIP reads and stores.
  *out = reinterpret_cast<uint64_t>(new (std::nothrow) uint32_t[64]());
  return *out != 0 ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
}

hsa_status_t unmake(hsa_agent_t agent, uint64_t handle) {
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  delete[] reinterpret_cast<uint32_t*>(handle);
  return HSA_STATUS_SUCCESS;
}

}  // namespace

SIM_API hsa_status_t hsa_ext_image_get_capability(hsa_agent_t agent, hsa_ext_image_geometry_t,
                                                  const hsa_ext_image_format_t* format,
                                                  uint32_t* out) {
  SIM_CALL(hsa_ext_image_get_capability);
  if (Runtime::get().find(agent) == nullptr) return HSA_STATUS_ERROR_INVALID_AGENT;
  if (format == nullptr || out == nullptr) return HSA_STATUS_ERROR_INVALID_ARGUMENT;
  *out = HSA_EXT_IMAGE_CAPABILITY_READ_ONLY | HSA_EXT_IMAGE_CAPABILITY_WRITE_ONLY |
         HSA_EXT_IMAGE_CAPABILITY_READ_WRITE;
  return HSA_STATUS_SUCCESS;
}

SIM_API hsa_status_t hsa_ext_image_get_capability_with_layout(hsa_agent_t agent,
                                                              hsa_ext_image_geometry_t geometry,
                                                              const hsa_ext_image_format_t* format,
                                                              hsa_ext_image_data_layout_t,
                                                              uint32_t* out) {
  SIM_CALL(hsa_ext_image_get_capability_with_layout);
  return hsa_ext_image_get_capability(agent, geometry, format, out);
}

SIM_API hsa_status_t hsa_ext_image_data_get_info(hsa_agent_t agent,
                                                 const hsa_ext_image_descriptor_t* image,
                                                 hsa_access_permission_t,
                                                 hsa_ext_image_data_info_t* out) {
  SIM_CALL(hsa_ext_image_data_get_info);
  return size_of(agent, image, 0, 0, out);
}

SIM_API hsa_status_t hsa_ext_image_data_get_info_with_layout(
    hsa_agent_t agent, const hsa_ext_image_descriptor_t* image, hsa_access_permission_t,
    hsa_ext_image_data_layout_t, size_t row, size_t slice, hsa_ext_image_data_info_t* out) {
  SIM_CALL(hsa_ext_image_data_get_info_with_layout);
  return size_of(agent, image, row, slice, out);
}

SIM_API hsa_status_t hsa_ext_image_create(hsa_agent_t agent,
                                          const hsa_ext_image_descriptor_t* image,
                                          const void* /*data*/, hsa_access_permission_t,
                                          hsa_ext_image_t* out) {
  SIM_CALL(hsa_ext_image_create);
  return make(agent, image, out != nullptr ? &out->handle : nullptr);
}

SIM_API hsa_status_t hsa_ext_image_create_with_layout(hsa_agent_t agent,
                                                      const hsa_ext_image_descriptor_t* image,
                                                      const void* /*data*/, hsa_access_permission_t,
                                                      hsa_ext_image_data_layout_t, size_t, size_t,
                                                      hsa_ext_image_t* out) {
  SIM_CALL(hsa_ext_image_create_with_layout);
  return make(agent, image, out != nullptr ? &out->handle : nullptr);
}

SIM_API hsa_status_t hsa_amd_image_create(hsa_agent_t agent,
                                          const hsa_ext_image_descriptor_t* image,
                                          const hsa_amd_image_descriptor_t*, const void* /*data*/,
                                          hsa_access_permission_t, hsa_ext_image_t* out) {
  SIM_CALL(hsa_amd_image_create);
  return make(agent, image, out != nullptr ? &out->handle : nullptr);
}

SIM_API hsa_status_t hsa_ext_image_destroy(hsa_agent_t agent, hsa_ext_image_t image) {
  SIM_CALL(hsa_ext_image_destroy);
  return unmake(agent, image.handle);
}

SIM_API hsa_status_t hsa_ext_sampler_create(hsa_agent_t agent,
                                            const hsa_ext_sampler_descriptor_t* sampler,
                                            hsa_ext_sampler_t* out) {
  SIM_CALL(hsa_ext_sampler_create);
  return make(agent, sampler, out != nullptr ? &out->handle : nullptr);
}

// Since ROCm 7.0, with a larger description.
SIM_API hsa_status_t hsa_ext_sampler_create_v2(hsa_agent_t agent, const void* sampler,
                                               hsa_ext_sampler_t* out) {
  SIM_CALL(hsa_ext_sampler_create_v2);
  return make(agent, sampler, out != nullptr ? &out->handle : nullptr);
}

SIM_API hsa_status_t hsa_ext_sampler_destroy(hsa_agent_t agent, hsa_ext_sampler_t sampler) {
  SIM_CALL(hsa_ext_sampler_destroy);
  return unmake(agent, sampler.handle);
}
