// Answers from the node's accounting. The amount of a process is never on disk: each opening makes
// a file of its own in memory. The folders of processes are on disk, so that every way to list them
// works; whoever looks at one makes or removes it first, by renaming, so that nobody sees half of
// it.
#include "sim/kfd/process_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/kfd/paths.h"
#include "sim/kfd/topology_files.h"
#include "sim/kfd/tree.h"
#include "sim/node/amd_partitions.h"
#include "sim/node/container.h"

namespace sim {
namespace {

namespace fs = std::filesystem;

std::atomic<KfdProcessFiles*> the_files{nullptr};

void write(const fs::path& path, const char* text) {
  std::ofstream(path) << text;
  chmod(path.c_str(), 0444);
}

void make_folder(const fs::path& path) {
  mkdir(path.c_str(), 0777);
  chmod(path.c_str(), 0777);  // whoever finds the process dead removes it
}

// A descriptor of a file in memory that nobody can change.
int sealed_file(const std::string& text, int flags) {
  const auto length = static_cast<ssize_t>(text.size());
  const int fd = memfd_create("vram", MFD_ALLOW_SEALING | ((flags & O_CLOEXEC) ? MFD_CLOEXEC : 0));
  if (fd < 0) return -1;
  if (pwrite(fd, text.data(), text.size(), 0) != length ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) != 0) {
    ::close(fd);
    errno = EIO;
    return -1;
  }
  return fd;
}

// An empty folder of this call alone.
std::string workshop(const std::string& tree) {
  std::string path = tree + kKfdWorkshop + "/XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return "";
  chmod(path.c_str(), 0777);
  return path;
}

}  // namespace

KfdProcessFiles::KfdProcessFiles(std::unique_ptr<Node> node)
    : node_(std::move(node)), tree_(kfd_tree_of(node_->path())) {}

KfdProcessFiles* KfdProcessFiles::found() {
  return the_files.load(std::memory_order_acquire);
}

KfdProcessFiles* KfdProcessFiles::find() {
  if (KfdProcessFiles* there = found()) {
    there->follow_partitions();
    return there;
  }
  const char* path = std::getenv(kNodeVariable);
  if (path == nullptr || *path == '\0') return nullptr;
  std::unique_ptr<Node> node = Node::from_environment();
  if (node == nullptr || node->device_count(Vendor::kAmd) == 0) return nullptr;
  // Never freed: another thread may be using it at the end of the program.
  auto* mine = new KfdProcessFiles(std::move(node));
  KfdProcessFiles* first = nullptr;
  if (!mine->follow_partitions()) {
    delete mine;
    return nullptr;
  }
  if (the_files.compare_exchange_strong(first, mine)) return mine;
  delete mine;
  return first;
}

bool KfdProcessFiles::follow_partitions() {
  settle_modes(node_->path(), node_->file());
  const int64_t now = node_->file()->header.generation.load();
  if (generation_.load() == now) return true;
  if (!make_kfd_tree(node_->path(), *node_->file())) return false;
  generation_.store(now);
  return true;
}

int KfdProcessFiles::device(uint32_t gpu_id) const {
  for (const int dev : node_->devices(Vendor::kAmd)) {
    if (node_->device(dev).kfd_gpu_id == gpu_id) return dev;
  }
  return -1;
}

bool KfdProcessFiles::forbids_node(uint32_t node) const {
  for (const int dev : node_->devices(Vendor::kAmd)) {
    if (node_->device(dev).kfd_node == node) return is_forbidden(dev);
  }
  return false;
}

bool KfdProcessFiles::lacks_render(uint32_t minor) const {
  for (const int dev : node_->devices(Vendor::kAmd)) {
    if (render_minor(*node_->file(), dev) == minor) return lacks_render_node(dev);
  }
  return true;
}

bool KfdProcessFiles::alive(int pid) {
  uint64_t bytes = 0;
  return node_->kfd_count(pid, 0, &bytes);
}

int KfdProcessFiles::open_vram(int pid, uint32_t gpu_id, int flags) {
  const int dev = device(gpu_id);
  uint64_t bytes = 0;
  if (dev < 0 || !node_->kfd_count(pid, dev, &bytes) || !node_->kfd_lists(pid, dev)) {
    errno = ENOENT;
    return -1;
  }
  if ((flags & O_DIRECTORY) != 0) {
    errno = ENOTDIR;
    return -1;
  }
  if ((flags & O_ACCMODE) != O_RDONLY) {
    errno = EACCES;
    return -1;
  }
  return sealed_file(std::to_string(bytes) + "\n", flags);
}

// As amdgpu_mem_info_vram_used_show prints it: of the whole GPU, whose partitions share a memory
// manager, and with what dead processes still hold.
int KfdProcessFiles::open_used(const KfdName& gpu, int flags) {
  uint64_t bytes = 0;
  bool found = false;
  for (const int dev : node_->devices(Vendor::kAmd)) {
    const DeviceRow& device = node_->device(dev);
    if (device.pci_domain != gpu.pci_domain || device.pci_bus != gpu.pci_bus ||
        device.pci_device != gpu.pci_device)
      continue;
    found = true;
    bytes += node_->used(dev);
  }
  if (!found || (flags & O_ACCMODE) != O_RDONLY) {
    errno = found ? EACCES : ENOENT;
    return -1;
  }
  return sealed_file(std::to_string(bytes) + "\n", flags);
}

// As amdgpu_show_fdinfo prints it (ROCm's kernel driver 6.x and Linux 6.x), less the engines.
int KfdProcessFiles::open_fdinfo(uint32_t descriptor, int flags) {
  constexpr const char kNode[] = "/dev/dri/renderD";
  char file[2 * kPathBytes] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  syscall(SYS_readlinkat, AT_FDCWD, link.c_str(), file, sizeof file - 1);
  // Of the tree as it is, or as it was before the GPUs were divided anew.
  const char* const node = std::strstr(file, kNode);
  if (node == nullptr || std::strncmp(file, tree_.c_str(), tree_.size()) != 0) return -2;
  const auto minor = static_cast<uint32_t>(std::atoi(node + sizeof kNode - 1));
  for (const int dev : node_->devices(Vendor::kAmd)) {
    if (render_minor(*node_->file(), dev) != minor) continue;
    const std::string kib = std::to_string(node_->mapped_by_self(dev) >> 10);
    return sealed_file(
        "pos:\t0\nflags:\t02100002\nmnt_id:\t24\nino:\t614\n"
        "drm-driver:\tamdgpu\ndrm-client-id:\t" +
            std::to_string(minor) + "\ndrm-pdev:\t" + node_->bus_id(dev) + "\npasid:\t32784\n" +
            "drm-memory-vram:\t" + kib + " KiB\ndrm-memory-gtt: \t8192 KiB\n" +
            "drm-memory-cpu: \t0 KiB\n",
        flags);
  }
  return -2;
}

void KfdProcessFiles::show_process(int pid) {
  const std::string folder = tree_ + kKfdProcesses + "/" + std::to_string(pid);
  const bool shown = access(folder.c_str(), F_OK) == 0;
  if (alive(pid) == shown) return;
  const std::string aside = workshop(tree_);
  if (aside.empty()) return;
  std::error_code ignored;
  if (shown) {
    ::rename(folder.c_str(), aside.c_str());
  } else {
    make_folder(aside + "/queues");
    write(aside + "/pasid", "0\n");
    for (const int dev : node_->devices(Vendor::kAmd)) {
      if (!node_->kfd_lists(pid, dev)) continue;
      const std::string id = std::to_string(node_->device(dev).kfd_gpu_id);
      const fs::path at = aside;
      write(at / ("vram_" + id), "");
      write(at / ("sdma_" + id), "0\n");
      make_folder(at / ("stats_" + id));
      write(at / ("stats_" + id) / "cu_occupancy", "0\n");
      write(at / ("stats_" + id) / "evicted_ms", "0\n");
    }
    if (::rename(aside.c_str(), folder.c_str()) == 0) return;
  }
  fs::remove_all(aside, ignored);
}

void KfdProcessFiles::show_processes() {
  std::set<int> pids;
  for (const ProcessInfo& process : node_->processes()) {
    if (process.vendor == Vendor::kAmd) pids.insert(process.pid);
  }
  for (const StaleRow& row : node_->file()->stale) {
    if (row.until_ns.load() != 0) pids.insert(row.pid.load());
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(tree_ + kKfdProcesses, error))
    pids.insert(std::atoi(entry.path().filename().c_str()));
  for (const int pid : pids) show_process(pid);
}

}  // namespace sim
