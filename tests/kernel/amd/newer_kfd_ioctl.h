// Ioctls that Linux 6.1's linux/kfd_ioctl.h lacks: newer ones, from later headers, and those of
// AMD's own kernel builds that libhsakmt 5.2 uses, from its public source.
#pragma once

#include <linux/kfd_ioctl.h>

#ifndef AMDKFD_IOC_EXPORT_DMABUF
struct kfd_ioctl_export_dmabuf_args {
  __u64 handle;
  __u32 flags;
  __u32 dmabuf_fd;
};
#define AMDKFD_IOC_EXPORT_DMABUF AMDKFD_IOWR(0x24, struct kfd_ioctl_export_dmabuf_args)
#endif

#ifndef AMDKFD_IOC_RUNTIME_ENABLE
struct kfd_ioctl_runtime_enable_args {
  __u64 r_debug;
  __u32 mode_mask;
  __u32 capabilities_mask;
};
#define AMDKFD_IOC_RUNTIME_ENABLE AMDKFD_IOWR(0x25, struct kfd_ioctl_runtime_enable_args)
#endif

#ifndef KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID
#define KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID 0x4
#endif

struct kfd_ioctl_ipc_export_handle_args {
  __u64 handle;
  __u32 share_handle[4];
  __u32 gpu_id;
  __u32 flags;
};
struct kfd_ioctl_ipc_import_handle_args {
  __u64 handle;
  __u64 va_addr;
  __u64 mmap_offset;
  __u32 share_handle[4];
  __u32 gpu_id;
  __u32 flags;
};
#define AMDKFD_IOC_IPC_IMPORT_HANDLE AMDKFD_IOWR(0x80, struct kfd_ioctl_ipc_import_handle_args)
#define AMDKFD_IOC_IPC_EXPORT_HANDLE AMDKFD_IOWR(0x81, struct kfd_ioctl_ipc_export_handle_args)

// Only in AMD's builds; the mainline kernel refuses it.
struct kfd_ioctl_dbg_trap_args {
  __u64 words[5];
};
#define AMDKFD_IOC_DBG_TRAP_OF_AMD AMDKFD_IOWR(0x82, struct kfd_ioctl_dbg_trap_args)
