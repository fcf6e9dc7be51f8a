// What the node's accounting says, in the form of AMD's kernel driver: a folder for each process
// that has opened it, and how much it holds on each device.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "sim/kfd/paths.h"
#include "sim/node/node.h"

namespace sim {

class KfdProcessFiles {
 public:
  // Those of the node that the environment names; null when it names none, or one without AMD
  // devices.
  static KfdProcessFiles* find();
  // The same, if anybody has found them before.
  static KfdProcessFiles* found();

  const std::string& tree() const { return tree_; }
  // A descriptor of "<bytes>\n" as they are now; -1 and errno when there is no such process or
  // device, or it is opened for writing.
  int open_vram(int pid, uint32_t gpu_id, int flags);
  // The same of what everybody holds on the GPU at a place on the PCI bus, with all its partitions.
  int open_used(const KfdName& gpu, int flags);
  // The same of what fdinfo tells of a descriptor; -2 when it is of no render node.
  int open_fdinfo(uint32_t descriptor, int flags);
  // Whether a container keeps the device of a node of the topology, or of a render node, from this
  // process.
  bool forbids_node(uint32_t node) const;
  bool lacks_render(uint32_t minor) const;
  // Bring the folders in the tree up to date: of one process, or of all.
  void show_process(int pid);
  void show_processes();

 private:
  explicit KfdProcessFiles(std::unique_ptr<Node> node);
  // Makes the tree anew where the GPUs' partitions have changed; false if it cannot.
  bool follow_partitions();
  int device(uint32_t gpu_id) const;
  bool alive(int pid);

  std::unique_ptr<Node> node_;
  std::string tree_;
  std::atomic<int64_t> generation_{-1};  // of the tree, when this process saw to it last
};

}  // namespace sim
