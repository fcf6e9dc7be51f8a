// Making, opening and reading the simulated node's file.
// A new file is built under a temporary name and linked into place, so that nobody ever maps a
// half-made node and one of several racing creators wins. Everything that reads totals reaps first
// (see reap.cc).
#include "sim/node/node.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "sim/kfd/tree.h"
#include "sim/node/amd_partitions.h"
#include "sim/node/mig.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

bool fail(std::string* error, std::string text) {
  if (error != nullptr) *error = std::move(text);
  return false;
}

NodeFile* map_file(int fd) {
  void* at = mmap(nullptr, sizeof(NodeFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : static_cast<NodeFile*>(at);
}

int64_t number_from(const char* variable, int64_t fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr && *text != '\0' ? std::strtoll(text, nullptr, 10) : fallback;
}

bool has(const NodeFile& file, Vendor vendor) {
  return std::any_of(file.device, file.device + file.header.device_count,
                     [vendor](const DeviceRow& device) { return device.vendor == vendor; });
}

// The two forms of the line are those that the modules of either flavour print.
bool write_driver_file(const std::string& node_path, const Header& header) {
  const std::string path = driver_file_of(node_path);
  std::ofstream file(path);
  file << "NVRM version: NVIDIA UNIX "
       << (header.open_modules ? "Open Kernel Module for x86_64  " : "x86_64 Kernel Module  ")
       << header.driver << "  Release Build\nGCC version:  gcc version 12.2.0 (Debian 12.2.0)\n";
  file.close();
  return chmod(path.c_str(), 0444) == 0 && file.good();
}

}  // namespace

bool Node::create(const std::string& path, std::string_view profile, const NodeOptions& options,
                  std::string* error) {
  static std::atomic<unsigned> attempt{0};
  const std::string temporary =
      path + "." + std::to_string(getpid()) + "." + std::to_string(attempt.fetch_add(1)) + ".new";
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return fail(error, temporary + ": " + std::strerror(errno));
  fchmod(fd, 0666);  // other users' processes share the node, whatever this one's umask
  bool good = ftruncate(fd, sizeof(NodeFile)) == 0;
  NodeFile* file = good ? map_file(fd) : nullptr;
  ::close(fd);
  if (file == nullptr) {
    unlink(temporary.c_str());
    return fail(error, "no room for the node's file");
  }
  good = fill_profile(file, profile, options, error);
  if (good) {
    file->header.version = kLayoutVersion;
    file->header.file_size = sizeof(NodeFile);
    std::strncpy(file->header.driver, options.driver.c_str(), sizeof file->header.driver - 1);
    file->header.open_modules = options.open_modules;
    file->header.linger_ns = options.linger_ms * 1000000ULL;
    file->header.identity = monotonic_ns() ^ static_cast<uint64_t>(getpid()) << 48;
    file->header.magic = kMagic;
    if (link(temporary.c_str(), path.c_str()) != 0) {
      good = fail(error, path + ": " + std::strerror(errno));
    } else if (has(*file, Vendor::kAmd) && !make_kfd_tree(path, *file)) {
      remove(path);
      good = fail(error, "cannot write " + kfd_tree_of(path));
    } else if (has(*file, Vendor::kNvidia) && !write_driver_file(path, file->header)) {
      remove(path);
      good = fail(error, "cannot write " + driver_file_of(path));
    }
  }
  munmap(file, sizeof(NodeFile));
  unlink(temporary.c_str());
  return good;
}

bool Node::remove(const std::string& path) {
  const bool removed = unlink(path.c_str()) == 0;
  remove_kfd_tree(path);
  unlink(driver_file_of(path).c_str());
  return removed;
}

std::unique_ptr<Node> Node::open(const std::string& path, std::string* error) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    fail(error, path + ": " + std::strerror(errno));
    return nullptr;
  }
  struct stat about {};
  NodeFile* file = nullptr;
  if (fstat(fd, &about) == 0 && about.st_size == static_cast<off_t>(sizeof(NodeFile)))
    file = map_file(fd);
  ::close(fd);
  if (file == nullptr || file->header.magic != kMagic || file->header.version != kLayoutVersion) {
    if (file != nullptr) munmap(file, sizeof(NodeFile));
    fail(error, path + ": not a simulated node of this version");
    return nullptr;
  }
  settle_modes(path, file);
  return std::unique_ptr<Node>(new Node(path, file));
}

std::unique_ptr<Node> Node::from_environment(std::string* error) {
  const char* path = std::getenv(kNodeVariable);
  if (path == nullptr || *path == '\0') {
    fail(error, std::string(kNodeVariable) + " is not set");
    return nullptr;
  }
  if (access(path, F_OK) != 0) {
    const char* profile = std::getenv(kProfileVariable);
    NodeOptions options;
    options.context_mib = number_from(kContextVariable, -1);
    options.linger_ms = static_cast<uint64_t>(number_from(kLingerVariable, 0));
    // Losing the race to another creator is as good as winning it.
    if (!create(path, profile != nullptr && *profile != '\0' ? profile : "h100-80gb", options,
                error) &&
        access(path, F_OK) != 0) {
      return nullptr;
    }
  }
  return open(path, error);
}

Node::~Node() {
  munmap(file_, sizeof(NodeFile));
}

std::vector<int> Node::devices(Vendor vendor) const {
  settle_modes(path_, file_);
  std::vector<int> found;
  for (int dev = 0; dev < device_count(); ++dev) {
    if (device(dev).vendor == vendor && mig_parent(dev) < 0 && device(dev).absent == 0)
      found.push_back(dev);
  }
  // Partitions that came later have rows at the end.
  if (vendor == Vendor::kAmd) {
    std::ranges::stable_sort(
        found, {}, [this](int dev) { return std::pair(device(dev).board, device(dev).partition); });
  }
  return found;
}

int Node::mig_parent(int dev) const {
  return static_cast<int>(device(dev).mig_parent) - 1;
}

std::vector<int> Node::mig_instances(int dev) const {
  std::vector<int> found;
  for (int i = 0; i < device_count(); ++i) {
    if (mig_parent(i) == dev && is_there(i)) found.push_back(i);
  }
  std::ranges::sort(found, {}, [this](int i) { return device(i).gpu_instance; });
  return found;
}

int Node::ordinal(int dev) const {
  if (mig_parent(dev) >= 0) {
    const std::vector<int> instances = mig_instances(mig_parent(dev));
    return static_cast<int>(std::ranges::find(instances, dev) - instances.begin());
  }
  const std::vector<int> all = devices(device(dev).vendor);
  return static_cast<int>(std::ranges::find(all, dev) - all.begin());
}

std::string Node::uuid(int dev) const {
  if (device(dev).vendor == Vendor::kAmd) {
    char text[64];
    std::snprintf(text, sizeof text, "GPU-%016" PRIx64, device(dev).unique_id);
    return text;
  }
  if (mig_parent(dev) < 0) return uuid_text("GPU", device(dev).uuid);
  const std::vector<MigDevice> made = compute_instances(*this, dev);
  return made.empty() ? "" : mig_uuid(*this, made.front());
}

std::string Node::bus_id(int dev) const {
  const DeviceRow& device = file_->device[dev];
  char text[64];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.%x", device.pci_domain, device.pci_bus,
                device.pci_device, device.location_id & 7);
  return text;
}

int Node::find_tenant(std::string_view tag) const {
  for (int i = 0; i < kMaxTenants; ++i) {
    if (file_->tenant[i].in_use.load(std::memory_order_acquire) != 0 && tag == file_->tenant[i].tag)
      return i;
  }
  return -1;
}

uint64_t Node::used(int dev) {
  reap();
  return file_->device[dev].used.load();
}

uint64_t Node::used_by_pid(int dev, int pid) {
  uint64_t sum = 0;
  for (const ProcessInfo& process : processes()) {
    if (process.pid == pid) sum += process.device[static_cast<size_t>(dev)].total();
  }
  return sum;
}

uint64_t Node::handed_on_to_pid(int dev, int pid) {
  reap();
  uint64_t sum = 0;
  for (const ProcessRow& row : file_->process) {
    if (in_use(row) && row.pid == pid) sum += handed_on_to(row, dev);
  }
  return sum;
}

bool Node::kfd_count(int pid, int dev, uint64_t* bytes) {
  reap();
  const bool lists_the_dead = (file_->header.kfd_quirks & kUnlistsFirst) == 0;
  bool found = false;
  *bytes = 0;
  for (const ProcessRow& row : file_->process) {
    if (!in_use(row) || row.pid != pid || row.vendor != Vendor::kAmd ||
        (row.dead_since.load() != 0 && !lists_the_dead))
      continue;
    found = true;
    const ProcessDevice& use = row.device[dev];
    *bytes += use.context_bytes.load() + use.allocation_bytes.load() + shared_by(row.serial, dev) -
              use.host_freed.load();
  }
  for (const StaleRow& row : file_->stale) {
    if (row.pid.load() != pid || row.until_ns.load() <= monotonic_ns()) continue;
    found = true;
    *bytes += row.bytes[dev].load();
  }
  return found;
}

bool Node::kfd_lists(int pid, int dev) const {
  return std::ranges::none_of(file_->process, [&](const ProcessRow& row) {
    return in_use(row) && row.pid == pid && row.vendor == Vendor::kAmd &&
           (row.excluded_boards >> device(dev).board & 1) != 0;
  });
}

uint64_t Node::imported(int dev) const {
  uint64_t sum = 0;
  for (const ProcessRow& row : file_->process) {
    if (in_use(row)) sum += row.device[dev].imported.load() + row.device[dev].imported_own.load();
  }
  return sum;
}

uint64_t Node::mapped_by_self(int dev) {
  struct stat name_space {};
  stat("/proc/self/ns/pid", &name_space);
  uint64_t sum = 0;
  for (const ProcessRow& row : file_->process) {
    if (!in_use(row) || row.pid != getpid() || row.pid_namespace != name_space.st_ino ||
        row.vendor != Vendor::kAmd)
      continue;
    const ProcessDevice& use = row.device[dev];
    sum += use.context_bytes.load() + use.allocation_bytes.load() + use.imported.load() +
           shared_by(row.serial, dev);
  }
  return sum;
}

uint64_t Node::context_bytes(int dev, int pid) {
  uint64_t sum = 0;
  for (const ProcessInfo& process : processes()) {
    if (process.pid == pid) sum += process.device[static_cast<size_t>(dev)].context_bytes;
  }
  return sum;
}

uint64_t Node::tenant_used(int dev, std::string_view tag) {
  reap();
  const int tenant = find_tenant(tag);
  return tenant < 0 ? 0 : file_->tenant[tenant].device[dev].used();
}

uint64_t Node::tenant_high_water(int dev, std::string_view tag) {
  reap();
  const int tenant = find_tenant(tag);
  if (tenant < 0) return 0;
  confirm_mark(tenant, dev);
  return file_->tenant[tenant].device[dev].high_water.load();
}

std::vector<std::string> Node::tenants() {
  std::vector<std::string> tags;
  for (const TenantRow& tenant : file_->tenant) {
    if (tenant.in_use.load(std::memory_order_acquire) != 0) tags.emplace_back(tenant.tag);
  }
  return tags;
}

// The bytes of all shared objects on the device for which `counts(object)`.
template <typename Counts>
uint64_t Node::sum_of_objects(int dev, Counts counts) const {
  uint64_t sum = 0;
  if (file_->header.objects.load() == 0) return 0;
  for (const ObjectRow& object : file_->object) {
    if (live(object) && object.device == dev && counts(object)) sum += object.bytes;
  }
  return sum;
}

uint64_t Node::shared_by(uint64_t creator, int dev) const {
  return sum_of_objects(dev, [&](const ObjectRow& object) {
    return object.creator == creator && object.creator_holds.load() > 0;
  });
}

// NVIDIA's resource manager counts such memory for one of its importers, KFD for nobody.
uint64_t Node::handed_on_to(const ProcessRow& process, int dev) const {
  if (process.vendor != Vendor::kNvidia) return 0;
  return sum_of_objects(dev, [&](const ObjectRow& object) {
    return !is_held_by_creator(object) && first_importer(object) == process.serial;
  });
}

bool Node::is_held_by_creator(const ObjectRow& object) const {
  const ProcessRow& creator = file_->process[object.creator_row];
  return object.creator_holds.load() > 0 && in_use(creator) && creator.serial == object.creator;
}

uint64_t Node::first_importer(const ObjectRow& object) const {
  for (const auto& importer : object.importers) {
    const uint64_t serial = importer.load();
    if (serial != 0 && is_process(serial)) return serial;
  }
  return 0;
}

bool Node::is_process(uint64_t serial) const {
  return std::ranges::any_of(
      file_->process, [&](const ProcessRow& row) { return in_use(row) && row.serial == serial; });
}

void Node::add_importer(ObjectRow& object, uint64_t serial) const {
  for (auto& importer : object.importers) {
    uint64_t known = importer.load();
    if (known != 0 && is_process(known)) continue;
    if (importer.compare_exchange_strong(known, serial)) return;
  }
}

uint64_t Node::orphaned(int dev) {
  reap();
  return sum_of_objects(dev, [&](const ObjectRow& object) { return !is_held_by_creator(object); });
}

std::vector<ProcessInfo> Node::processes() {
  reap();
  std::vector<ProcessInfo> all;
  for (const ProcessRow& row : file_->process) {
    if (!in_use(row)) continue;
    ProcessInfo info;
    info.pid = row.pid;
    info.host_pid = row.host_pid;
    info.tid = row.tid;
    info.host_tid = row.host_tid;
    info.clients = static_cast<int>(row.clients);
    info.pid_namespace = row.pid_namespace;
    info.vendor = row.vendor;
    info.tenant = file_->tenant[row.tenant].tag;
    info.command = row.command;
    info.mig_device = row.mig_device.load();
    info.lingering = row.dead_since.load() != 0;
    for (int dev = 0; dev < device_count(); ++dev) {
      info.device.push_back({row.device[dev].context_bytes.load(),
                             row.device[dev].allocation_bytes.load() + shared_by(row.serial, dev) +
                                 handed_on_to(row, dev),
                             row.device[dev].contexts.load(), row.device[dev].managed_bytes.load(),
                             row.device[dev].pinned_bytes.load()});
    }
    all.push_back(std::move(info));
  }
  return all;
}

}  // namespace sim
