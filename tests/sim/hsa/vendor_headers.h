// The vendor's headers, of whatever release is installed.
//
// Those after 5.2 declare more functions. The simulated runtime defines these with types of its
// own, so that it is compiled alike with every header: what a header says of them gets another
// name.
#pragma once

#define hsa_amd_memory_async_copy_on_engine header_memory_async_copy_on_engine
#define hsa_amd_vmem_handle_create header_vmem_handle_create
#define hsa_amd_vmem_handle_release header_vmem_handle_release
#define hsa_amd_vmem_map header_vmem_map
#define hsa_amd_vmem_set_access header_vmem_set_access
#define hsa_amd_vmem_export_shareable_handle header_vmem_export_shareable_handle
#define hsa_amd_vmem_import_shareable_handle header_vmem_import_shareable_handle
#define hsa_amd_vmem_retain_alloc_handle header_vmem_retain_alloc_handle
#define hsa_amd_vmem_get_alloc_properties_from_handle header_vmem_get_properties_from_handle

#include <hsa/amd_hsa_queue.h>
#include <hsa/amd_hsa_signal.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ext_finalize.h>
#include <hsa/hsa_ext_image.h>
#include <hsa/hsa_ven_amd_loader.h>

#undef hsa_amd_memory_async_copy_on_engine
#undef hsa_amd_vmem_handle_create
#undef hsa_amd_vmem_handle_release
#undef hsa_amd_vmem_map
#undef hsa_amd_vmem_set_access
#undef hsa_amd_vmem_export_shareable_handle
#undef hsa_amd_vmem_import_shareable_handle
#undef hsa_amd_vmem_retain_alloc_handle
#undef hsa_amd_vmem_get_alloc_properties_from_handle
