// Which path of a call belongs to AMD's kernel driver, and where it lies in the node's tree. No
// memory is allocated here: the calls come from anywhere in a program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

// More than any name the driver has, and little of a small thread's stack.
inline constexpr size_t kPathBytes = 512;

enum class KfdKind {
  kOther,      // not the driver's
  kFixed,      // never changes
  kNode,       // below a node of the topology; never changes either
  kRender,     // a render node in /dev/dri
  kFdInfo,     // /proc/self/fdinfo of a descriptor, perhaps of a render node
  kProcesses,  // the folder of all processes
  kProcess,    // something of one process
  kVram,       // how much a process holds on a device
  kUsed        // how much everybody holds on a GPU: mem_info_vram_used of its PCI device
};

struct KfdName {
  KfdKind kind = KfdKind::kOther;
  int pid = -1;         // kProcess and kVram; -1: no number
  uint32_t number = 0;  // kNode: which; kRender: its minor number; kFdInfo: the descriptor
  uint32_t gpu_id = 0;  // kVram
  uint32_t pci_domain = 0, pci_bus = 0, pci_device = 0;  // kUsed
  char path[kPathBytes];
};

// Whether it is worth reading.
bool may_be_kfd(const char* path);
// Reads an absolute path, and writes it in its shortest form. Everything is kOther unless it is the
// driver's, under /sys, /dev/dri or /proc/self/fdinfo.
KfdKind read_kfd_name(const char* path, KfdName* name);

}  // namespace sim
