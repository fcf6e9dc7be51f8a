// The simulated physical node as tests and observers see it: create, open, look, remove.
// Reading is exact: before an answer is given, the memory of dead processes is returned, as the
// kernel would have done when it closed their device files. Nothing here uses or resembles the code
// under test.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/node/node_layout.h"

namespace sim {

inline constexpr const char* kNodeVariable = "FRACGPU_SIM_NODE";
inline constexpr const char* kProfileVariable = "FRACGPU_SIM_PROFILE";
inline constexpr const char* kTenantVariable = "FRACGPU_SIM_TENANT";
inline constexpr const char* kContextVariable = "FRACGPU_SIM_CONTEXT_MIB";
inline constexpr const char* kLingerVariable = "FRACGPU_SIM_LINGER_MS";
inline constexpr const char* kWatchVariable = "FRACGPU_SIM_WATCH";  // see watch.cc
inline constexpr const char* kClientsVariable = "FRACGPU_SIM_RM_CLIENTS";

// Where the node's /proc/driver/nvidia/version is; libsimkfd shows it under its real name.
inline std::string driver_file_of(const std::string& node_path) {
  return node_path + ".nvidia-version";
}

struct NodeOptions {
  int64_t context_mib = -1;  // -1: the profile's own
  int64_t total_mib = -1;    // -1: the profile's own
  uint64_t linger_ms = 0;
  std::string driver = "580.65.06";  // of NVIDIA
  bool open_modules = true;
};

struct ProcessInfo {
  int pid = 0;                // in its own namespace, whose inode is beside it
  int host_pid = 0;           // as far out as the process can see itself
  int tid = 0, host_tid = 0;  // of the thread that opened the driver
  int clients = 1;            // how often the process did
  uint64_t pid_namespace = 0;
  uint64_t mig_device = 0;  // serial of the compute instance that it uses
  Vendor vendor =
      Vendor::kNvidia;  // whose driver it has opened; a process may appear once for each
  std::string tenant;
  std::string command;
  bool lingering = false;  // dead, its memory not yet returned
  struct Use {
    uint64_t context_bytes = 0, allocation_bytes = 0, contexts = 0;
    uint64_t managed_bytes = 0;  // of allocation_bytes
    uint64_t pinned_bytes = 0;   // of host memory
    uint64_t total() const { return context_bytes + allocation_bytes; }
  };
  std::vector<Use> device;
};

class Node {
 public:
  // False and a message when the file exists already or cannot be made.
  static bool create(const std::string& path, std::string_view profile,
                     const NodeOptions& options = {}, std::string* error = nullptr);
  static bool remove(const std::string& path);
  static std::unique_ptr<Node> open(const std::string& path, std::string* error = nullptr);
  // The node named by the environment, made by the first process that asks. Null when no node is
  // named.
  static std::unique_ptr<Node> from_environment(std::string* error = nullptr);

  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int device_count() const { return static_cast<int>(file_->header.device_count); }
  // A vendor's libraries see its own devices alone, numbered among themselves. MIG instances are
  // not among them: each stands behind its GPU.
  int device_count(Vendor vendor) const { return static_cast<int>(devices(vendor).size()); }
  std::vector<int> devices(Vendor vendor) const;
  int ordinal(int dev) const;  // its number among its vendor's, or among its GPU's instances
  std::vector<int> mig_instances(int dev) const;  // GPU instances, by their ids
  int mig_parent(int dev) const;                  // -1: no instance
  // False: a row that is reserved for a GPU instance.
  bool is_there(int dev) const { return mig_parent(dev) < 0 || device(dev).mig_serial.load() != 0; }
  std::string profile() const { return file_->header.profile; }
  const char* driver() const { return file_->header.driver; }
  bool open_modules() const { return file_->header.open_modules; }
  const DeviceRow& device(int dev) const { return file_->device[dev]; }
  // "GPU-…" or "MIG-…", for a GPU instance that of its first compute instance: of the usual form,
  // or of 16 digits for AMD, whose partitions may share it.
  std::string uuid(int dev) const;
  std::string bus_id(int dev) const;  // "0000:18:00.0"
  uint64_t total(int dev) const { return file_->device[dev].total; }

  // Each of these reaps first.
  uint64_t used(int dev);
  uint64_t free(int dev) { return total(dev) - used(dev); }
  // Contexts, allocations, what it made and shares, and what is handed on to it.
  uint64_t used_by_pid(int dev, int pid);
  // Of that, what others made and have left behind.
  uint64_t handed_on_to_pid(int dev, int pid);
  // What the node's KFD tells of a process; false if it does not list it. One that has ended is
  // listed until its memory is freed, unless the kernel is one that unlists it first.
  bool kfd_count(int pid, int dev, uint64_t* bytes);
  // Whether it knows the process on the device: not if a container keeps the whole GPU from it.
  bool kfd_lists(int pid, int dev) const;
  // What is mapped in the calling process's own address space on the device, which fdinfo of its
  // render node tells: its own memory and what it has imported of others'.
  uint64_t mapped_by_self(int dev);
  // By all processes, also of their own memory: what is imported twice counts twice.
  uint64_t imported(int dev) const;
  uint64_t context_bytes(int dev, int pid);
  uint64_t tenant_used(int dev, std::string_view tag);
  uint64_t tenant_high_water(int dev, std::string_view tag);
  std::vector<std::string> tenants();
  std::vector<ProcessInfo> processes();
  // Memory that its makers have left behind, kept by other processes or by open descriptors.
  uint64_t orphaned(int dev);

  // Every mark starts again from what is in use now.
  void reset_high_water();

  // Returns the memory of dead processes, and shared memory that nobody holds any more; the number
  // of rows given back. `tenant` < 0: look for the dead of every tenant.
  int reap(int tenant = -1, int except_row = -1);
  // Makes the tenant's peak a mark, if the living held it.
  void confirm_mark(int tenant, int dev, int except_row = -1);
  // After a climb to a new peak: keeps evidence when it passed the height that is watched.
  void watch_height(int tenant, int dev, int climber);
  // True if sum of the rows equals every total: for tests, when no process is running.
  bool consistent(std::string* difference = nullptr);

  NodeFile* file() { return file_; }
  const std::string& path() const { return path_; }

 private:
  friend class Account;
  friend class ReapLock;
  Node(std::string path, NodeFile* file) : path_(std::move(path)), file_(file) {}

  struct Dead;
  bool any_dead(int tenant, int except_row);
  bool find_dead(const class NodeDescriptor& file, int except_row, Dead* dead);
  bool unheld(const class NodeDescriptor& file, int object, bool take);
  template <typename Counts>
  uint64_t sum_of_objects(int dev, Counts counts) const;
  // What the process has shared and not freed.
  uint64_t shared_by(uint64_t creator, int dev) const;
  // What others have freed or have died with, and is counted for this process, which imported it.
  uint64_t handed_on_to(const ProcessRow& process, int dev) const;
  bool is_held_by_creator(const ObjectRow& object) const;
  uint64_t first_importer(const ObjectRow& object) const;  // its serial, or 0
  bool is_process(uint64_t serial) const;
  void add_importer(ObjectRow& object, uint64_t serial) const;
  void recount();
  void wait_for_recount();
  int find_tenant(std::string_view tag) const;

  std::string path_;
  NodeFile* file_;
};

// The names that create() takes: [<n>x]a30, a100-40gb, a100-80gb, h100-80gb, h100-80gb-mig, h200,
// b200, gb200, each of these with -mig-empty behind it (in MIG mode, nothing made yet) or -mig-off
// (can be put into MIG mode), rtx6000-ada, rtx-pro-6000, gb10, tiny, mi300x, mi325x, mi355x, mi210,
// mi250x, gfx1100, tiny-amd, tiny-svm, tiny-cwsr; with -fn or -xcp at the end or nothing,
// mi300x-dpx, -qpx, -cpx-nps4, -cpx-nps1, mi325x-cpx-nps4, mi355x-cpx-nps2, tiny-apu and tiny-cpx;
// several of them joined by '+'; and behind '@' what is peculiar to the machine's KFD (see
// profiles.cc).
bool fill_profile(NodeFile* file, std::string_view profile, const NodeOptions& options,
                  std::string* error);

}  // namespace sim
