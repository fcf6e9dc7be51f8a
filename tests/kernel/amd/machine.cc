// Creates the namespace and its files; see machine.h. KFD's topology is written by tests/sim/kfd,
// as for the simulated HSA.
#include "machine.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "sim/kfd/topology_files.h"
#include "this_process.h"

namespace kfd {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kFirstRenderMinor = 128;

bool failed(std::string* why, const std::string& what) {
  *why = what + ": " + std::strerror(errno);
  return false;
}

void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

void link_to(const fs::path& target, const fs::path& link) {
  fs::create_directories(link.parent_path());
  fs::create_symlink(target.lexically_relative(link.parent_path()), link);
}

bool write_device(const std::string& path, uint64_t size, std::string* why) {
  fs::create_directories(fs::path(path).parent_path());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  const bool made =
      fd >= 0 && fchmod(fd, 0666) == 0 && ftruncate(fd, static_cast<off_t>(size)) == 0;
  if (fd >= 0) close(fd);
  return made || failed(why, path);
}

bool mount_empty(const char* where, const char* options) {
  return mount("simulated-kfd", where, "tmpfs", 0, options) == 0;
}

bool bind(const std::string& from, const std::string& to) {
  return mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0;
}

// Assembles both trees on a tmpfs at /dev/shm, then binds them to their places.
bool replace_dev_and_sys(std::string* why) {
  const std::string made = "/dev/shm";
  if (!mount_empty(made.c_str(), "mode=755")) return failed(why, "a tmpfs");
  const std::string dev = made + "/dev", sys = made + "/sys";
  for (const char* const folder : {"/shm", "/pts", "/dri", "/simulated-kfd/dmabuf"}) {
    fs::create_directories(dev + folder);
  }
  chmod((dev + "/simulated-kfd/dmabuf").c_str(), 01777);
  for (const char* const device : {"/null", "/zero", "/full", "/random", "/urandom", "/tty"}) {
    std::ofstream{dev + device};
    if (!bind(std::string("/dev") + device, dev + device)) return failed(why, device);
  }
  fs::create_symlink("/proc/self/fd", dev + "/fd");
  for (int i = 0; i < 3; ++i) {
    constexpr const char* kNames[] = {"/stdin", "/stdout", "/stderr"};
    fs::create_symlink("/proc/self/fd/" + std::to_string(i), dev + kNames[i]);
  }
  fs::create_symlink("pts/ptmx", dev + "/ptmx");
  bind("/dev/pts", dev + "/pts");
  // Memory nodes are the real ones, since libnuma compares them with system calls.
  const std::string nodes = "/devices/system/node";
  fs::create_directories(sys + nodes);
  if (fs::exists("/sys" + nodes)) bind("/sys" + nodes, sys + nodes);
  if (!bind(sys, "/sys") || !bind(dev, "/dev")) return failed(why, "/sys and /dev");
  return mount_empty("/dev/shm", "mode=1777") || failed(why, "/dev/shm");
}

// libhsakmt reads the processors' caches, which some virtual machines lack.
void write_processors() {
  const unsigned count = std::max(std::thread::hardware_concurrency(), 1u);
  const fs::path folder = "/sys/devices/system/cpu";
  const std::string all = count > 1 ? "0-" + std::to_string(count - 1) : "0";
  for (const char* const name : {"online", "possible", "present"}) {
    write_file(folder / name, all + "\n");
  }
  for (unsigned i = 0; i < count; ++i) {
    const fs::path cache = folder / ("cpu" + std::to_string(i)) / "cache/index0";
    char map[32];
    std::snprintf(map, sizeof map, "%llx", 1ull << (i % 64));
    const std::pair<const char*, std::string> facts[] = {{"level", "1"},
                                                         {"type", "Data"},
                                                         {"size", "32K"},
                                                         {"coherency_line_size", "64"},
                                                         {"ways_of_associativity", "8"},
                                                         {"physical_line_partition", "1"},
                                                         {"shared_cpu_list", std::to_string(i)},
                                                         {"shared_cpu_map", map}};
    for (const auto& [name, text] : facts) write_file(cache / name, text + "\n");
  }
}

// What libdrm reads about a card.
void write_pci_device(const Card& card, const sim::DeviceRow& row) {
  const fs::path device = std::string("/sys/devices/pci0000:c0/") + card.pci;
  const auto hexadecimal = [](uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%04x\n", value);
    return std::string(text);
  };
  write_file(device / "vendor", hexadecimal(row.pci_id & 0xffff));
  write_file(device / "device", hexadecimal(row.pci_id >> 16));
  write_file(device / "subsystem_vendor", hexadecimal(row.pci_subsystem & 0xffff));
  write_file(device / "subsystem_device", hexadecimal(row.pci_subsystem >> 16));
  write_file(device / "revision", "0x02\n");
  write_file(device / "class", "0x038000\n");
  write_file(device / "numa_node", "-1\n");
  write_file(device / "mem_info_vram_total", std::to_string(card.total) + "\n");
  write_file(device / "uevent",
             std::string("DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME=") + card.pci + "\n");
  fs::create_directories("/sys/bus/pci/devices");
  link_to("/sys/bus/pci", device / "subsystem");
  link_to(device, std::string("/sys/bus/pci/devices/") + card.pci);
  // libdrm tells cards apart by the name of the primary node.
  for (const auto& [name, minor] :
       {std::pair{"renderD", card.render_minor}, {"card", card.render_minor - kFirstRenderMinor}}) {
    const std::string node = name + std::to_string(minor), number = std::to_string(minor);
    write_file(device / "drm" / node / "dev", "226:" + number + "\n");
    write_file(device / "drm" / node / "uevent",
               "MAJOR=226\nMINOR=" + number + "\nDEVNAME=dri/" + node + "\nDEVTYPE=drm_minor\n");
    link_to(device, device / "drm" / node / "device");
    link_to(device / "drm" / node, "/sys/class/drm/" + node);
    link_to(device / "drm" / node, "/sys/dev/char/226:" + number);
  }
}

Card card_of(const sim::NodeFile& node, int number) {
  const sim::DeviceRow& row = node.device[number];
  Card card{};
  card.gpu_id = row.kfd_gpu_id;
  card.render_minor = sim::render_minor(node, number);
  card.device_id = row.pci_id >> 16;
  card.pci_revision = 2;
  std::snprintf(card.pci, sizeof card.pci, "%04x:%02x:%02x.0", row.pci_domain & 0xffff,
                row.pci_bus & 0xff, row.pci_device & 0xff);
  card.total = row.total;
  return card;
}

bool write_text(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  const bool written =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return written;
}

}  // namespace

bool make_namespace(std::string* why) {
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return failed(why, "no mount namespace");
    if (!write_text("/proc/self/setgroups", "deny") ||
        !write_text("/proc/self/uid_map", user + " " + user + " 1") ||
        !write_text("/proc/self/gid_map", group + " " + group + " 1"))
      return failed(why, "no user namespace");
  }
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed(why, "/");
  return replace_dev_and_sys(why);
}

bool join_namespace(int pid, std::string* why) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/ns/";
  const int user = open((folder + "user").c_str(), O_RDONLY | O_CLOEXEC);
  const int mounts = open((folder + "mnt").c_str(), O_RDONLY | O_CLOEXEC);
  if (user < 0 || mounts < 0) return failed(why, "no simulated machine " + std::to_string(pid));
  const fs::path working = fs::current_path();
  // If root made the machine, it has no user namespace of its own.
  struct stat theirs {
  }, ours{};
  fstat(user, &theirs);
  ::stat("/proc/self/ns/user", &ours);
  if (theirs.st_ino != ours.st_ino && setns(user, CLONE_NEWUSER) != 0) {
    return failed(why, "the user namespace");
  }
  if (setns(mounts, CLONE_NEWNS) != 0) return failed(why, "the mount namespace");
  close(user);
  close(mounts);
  return chdir(working.c_str()) == 0 || failed(why, working);
}

bool make_machine(const sim::NodeFile& node, std::string* why) {
  Accounting* const accounting = open_accounting(true);
  if (accounting == nullptr) return failed(why, kAccountingFile);
  write_processors();
  if (!write_device("/dev/kfd", kKfdFileSize, why)) return false;
  for (uint32_t i = 0; i < node.header.device_count; ++i) {
    Card& card = accounting->card[i] = card_of(node, static_cast<int>(i));
    write_pci_device(card, node.device[i]);
    const std::string render = "/dev/dri/renderD" + std::to_string(card.render_minor);
    if (!write_device(render, kRenderFileSize + i * kPage, why)) return false;
  }
  accounting->cards = node.header.device_count;
  for (const auto& [path, text] : sim::kfd_files(node)) {
    if (path.starts_with("/dev/")) continue;
    if (path.ends_with('/')) {
      fs::create_directories(path);
    } else {
      write_file(path, text);
    }
  }
  chmod(kProcessFolder, 01777);
  link_to("/sys/devices/virtual/kfd/kfd", "/sys/class/kfd/kfd");
  write_file("/sys/devices/virtual/kfd/kfd/dev", "511:0\n");
  for (uint32_t i = 0; i < accounting->cards; ++i) {
    const std::string used =
        std::string("/sys/bus/pci/devices/") + accounting->card[i].pci + "/mem_info_vram_used";
    write_file(used, "0\n");
  }
  return true;
}

}  // namespace kfd
