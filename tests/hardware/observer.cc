#include "tests/hardware/observer.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/hardware/cuda.h"
#include "tests/hardware/json.h"

extern char** environ;

namespace hardware {
namespace nvml {
namespace {

using namespace fracgpu::nvml;

// NVML_STRUCT_VERSION(Memory, 2): size and version in one word.
constexpr unsigned kMemoryV2 = sizeof(nvmlMemory_v2_t) | 2u << 24;

template <typename... Arguments>
int call(const char* name, Arguments... arguments) {
  void* const found = function(name);
  if (found == nullptr) throw Unmeasured(std::string("NVML has no ") + name);
  return reinterpret_cast<int (*)(Arguments...)>(found)(arguments...);
}

template <typename... Arguments>
void must(const char* name, Arguments... arguments) {
  if (const int rc = call(name, arguments...)) {
    throw Unmeasured(std::string(name) + ": NVML error " + std::to_string(rc));
  }
}

void begin() {
  static bool begun = false;
  if (!begun) must("nvmlInit_v2");
  begun = true;
}

// The UUID of CUDA's first device, which need not be NVML's. The run has it from `find`, so that
// most programs need not start CUDA for it.
std::string first_uuid() {
  static const std::string found = [] {
    if (const char* given = std::getenv("HARDWARE_UUID"); given != nullptr) {
      return std::string(given);
    }
    CUuuid id = {};
    if (try_cuda("cuInit", 0u) != 0) throw Unmeasured("cuInit fails");
    cuda("cuDeviceGetUuid", &id, CUdevice{0});
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(id.bytes[i]));
      text += two;
      if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    return text;
  }();
  return found;
}

template <typename Info>
int read_list(const char* name, std::vector<Listed>* listed) {
  std::vector<Info> infos(64);
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto count = static_cast<unsigned>(infos.size());
    const int rc = call(name, device(), &count, infos.data());
    if (rc == kInsufficientSize) {
      infos.resize(count + 64);
      continue;
    }
    for (unsigned i = 0; rc == 0 && i < count; ++i) {
      const bool known = infos[i].usedGpuMemory != kNotAvailable;
      listed->push_back(
          {static_cast<int>(infos[i].pid), known ? infos[i].usedGpuMemory : 0, known});
    }
    return rc;
  }
  return kInsufficientSize;
}

}  // namespace

std::string uuid() {
  return first_uuid();
}

void* function(const char* name) {
  static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Unmeasured("there is no libnvidia-ml.so.1");
  return dlsym(library, name);
}

nvmlDevice_t device() {
  static nvmlDevice_t found = nullptr;
  if (found != nullptr) return found;
  begin();
  const std::string uuid = first_uuid();
  const char* text = uuid.c_str();
  must("nvmlDeviceGetHandleByUUID", text, &found);
  return found;
}

std::vector<Listed> processes() {
  std::vector<Listed> listed;
  const bool second = function("nvmlDeviceGetComputeRunningProcesses_v2") != nullptr;
  const int rc =
      second ? read_list<nvmlProcessInfo_v2_t>("nvmlDeviceGetComputeRunningProcesses_v2", &listed)
             : read_list<nvmlProcessInfo_v1_t>("nvmlDeviceGetComputeRunningProcesses", &listed);
  if (rc != 0) throw Unmeasured("NVML's process list: error " + std::to_string(rc));
  return listed;
}

bool bytes_of(int pid, uint64_t* bytes) {
  *bytes = 0;
  bool named = false, known = true;
  for (const Listed& row : processes()) {
    if (row.pid != pid) continue;
    named = true;
    known = known && row.known;
    *bytes += row.bytes;
  }
  return named && known;
}

NvmlMemory memory() {
  NvmlMemory memory;
  nvmlMemory_t first = {};
  must("nvmlDeviceGetMemoryInfo", device(), &first);
  memory.total = first.total;
  memory.used = first.used;
  nvmlMemory_v2_t second = {};
  second.version = kMemoryV2;
  if (function("nvmlDeviceGetMemoryInfo_v2") != nullptr &&
      call("nvmlDeviceGetMemoryInfo_v2", device(), &second) == 0) {
    memory.has_v2 = true;
    memory.total_v2 = second.total;
    memory.reserved = second.reserved;
  }
  return memory;
}

std::string driver_version() {
  begin();
  char text[96] = {};
  must("nvmlSystemGetDriverVersion", static_cast<char*>(text), unsigned{sizeof text});
  return text;
}

std::string name() {
  char text[96] = {};
  must("nvmlDeviceGetName", device(), static_cast<char*>(text), unsigned{sizeof text});
  return text;
}

}  // namespace nvml

namespace kfd {
namespace {

constexpr const char* kNodes = "/sys/class/kfd/kfd/topology/nodes";

bool read_number(const std::string& path, uint64_t* number) {
  std::ifstream file(path);
  return static_cast<bool>(file >> *number);
}

// Opened and read by the C library: the simulated KFD answers these calls.
uint64_t property(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  std::string name;
  for (uint64_t value = 0; file >> name >> value;) {
    if (name == wanted) return value;
  }
  return 0;
}

}  // namespace

std::vector<KfdDevice> devices() {
  std::vector<KfdDevice> found;
  DIR* const folder = opendir(kNodes);
  if (folder == nullptr) return found;
  std::vector<uint32_t> numbers;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') {
      numbers.push_back(static_cast<uint32_t>(std::strtoul(entry->d_name, nullptr, 10)));
    }
  }
  closedir(folder);
  std::sort(numbers.begin(), numbers.end());
  for (const uint32_t number : numbers) {
    const std::string node = std::string(kNodes) + "/" + std::to_string(number);
    uint64_t gpu_id = 0;
    if (!read_number(node + "/gpu_id", &gpu_id) || gpu_id == 0) continue;
    KfdDevice device;
    device.node = number;
    device.gpu_id = static_cast<uint32_t>(gpu_id);
    device.location = static_cast<uint32_t>(property(node + "/properties", "location_id"));
    for (int bank = 0; bank < 8; ++bank) {
      const std::string path = node + "/mem_banks/" + std::to_string(bank) + "/properties";
      const uint64_t heap = property(path, "heap_type");
      // 1 and 2: the frame buffer, seen by the host and not.
      if (heap == 1 || heap == 2) device.vram_bytes += property(path, "size_in_bytes");
    }
    found.push_back(device);
  }
  return found;
}

bool bytes_of(int pid, uint32_t gpu_id, uint64_t* bytes) {
  return read_number(
      "/sys/class/kfd/kfd/proc/" + std::to_string(pid) + "/vram_" + std::to_string(gpu_id), bytes);
}

bool device_used(const KfdDevice& device, uint64_t* bytes) {
  char path[96];
  std::snprintf(path, sizeof path, "/sys/bus/pci/devices/0000:%02x:%02x.%u/mem_info_vram_used",
                device.location >> 8 & 0xff, device.location >> 3 & 0x1f, device.location & 7);
  return read_number(path, bytes);
}

}  // namespace kfd

bool device_used(Vendor vendor, uint64_t* bytes) {
  *bytes = 0;
  if (vendor == Vendor::nvidia) {
    *bytes = nvml::memory().used;
    return true;
  }
  const auto devices = kfd::devices();
  return !devices.empty() && kfd::device_used(devices[0], bytes);
}

bool Watched::mine(int pid) const {
  return getsid(pid) == session_;
}

void Watched::look() {
  uint64_t sum = 0;
  bool named = false;
  if (vendor_ == Vendor::nvidia) {
    std::vector<Listed> rows;
    try {
      rows = nvml::processes();
    } catch (const Unmeasured&) {
      // Then the device's use is the judge.
    }
    for (const Listed& row : rows) {
      if (!row.known || !mine(row.pid)) continue;
      named = true;
      sum += row.bytes;
    }
  } else {
    const auto devices = kfd::devices();
    DIR* const folder = opendir("/sys/class/kfd/kfd/proc");
    while (const dirent* entry = folder != nullptr ? readdir(folder) : nullptr) {
      const int pid = std::atoi(entry->d_name);
      uint64_t bytes = 0;
      if (pid <= 0 || !mine(pid) || devices.empty() ||
          !kfd::bytes_of(pid, devices[0].gpu_id, &bytes))
        continue;
      named = true;
      sum += bytes;
    }
    if (folder != nullptr) closedir(folder);
  }
  named_ = named_ || (named && sum > 0);
  most_ = std::max(most_, sum);
  uint64_t device = 0;
  if (device_used(vendor_, &device)) device_most_ = std::max(device_most_, device);
  ++looks_;
}

Books::~Books() {
  close(to_);
  close(from_);
  waitpid(pid_, nullptr, 0);
}

Books::Books(Vendor vendor) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw Unmeasured("pipe");
  // The same environment without the library: HARDWARE_PLAIN_PRELOAD is what else is preloaded.
  std::vector<std::string> kept;
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::strncmp(*each, "LD_PRELOAD=", 11) != 0) kept.emplace_back(*each);
  }
  if (const char* plain = std::getenv("HARDWARE_PLAIN_PRELOAD"); plain != nullptr && *plain) {
    kept.push_back(std::string("LD_PRELOAD=") + plain);
  }
  for (std::string& each : kept) environment.push_back(each.data());
  environment.push_back(nullptr);
  std::string self = "/proc/self/exe", word = "witness", pid_option = "--pid",
              pid = std::to_string(getpid()), vendor_option = "--vendor",
              name = vendor == Vendor::amd ? "amd" : "nvidia";
  char* arguments[] = {self.data(), word.data(),          pid_option.data(),
                       pid.data(),  vendor_option.data(), name.data(),
                       nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  const int rc = posix_spawn(&pid_, self.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  if (rc != 0) throw Unmeasured("the witness cannot be started");
  to_ = in[1];
  from_ = out[0];
  signal(SIGPIPE, SIG_IGN);
}

Books::Page Books::look() {
  if (write(to_, "\n", 1) != 1) throw Unmeasured("the witness has ended");
  size_t newline = buffer_.find('\n');
  while (newline == buffer_.npos) {
    pollfd wait = {from_, POLLIN, 0};
    char bytes[256];
    const ssize_t count = poll(&wait, 1, 30000) > 0 ? read(from_, bytes, sizeof bytes) : 0;
    if (count <= 0) throw Unmeasured("the witness does not answer");
    buffer_.append(bytes, static_cast<size_t>(count));
    newline = buffer_.find('\n');
  }
  std::istringstream line(buffer_.substr(0, newline));
  buffer_.erase(0, newline + 1);
  Page page;
  long long driver = -1, ledger = -1;
  line >> driver >> ledger >> page.device;
  if (ledger < 0) throw Unmeasured("the process has no ledger: is the library in it?");
  page.driver_knows = driver >= 0;
  page.driver = driver >= 0 ? static_cast<uint64_t>(driver) : 0;
  page.ledger = static_cast<uint64_t>(ledger);
  return page;
}

namespace {

// What the tenant of this environment holds by `fracgpu status`, or -1.
long long ledger_bytes() {
  const char* command = std::getenv("HARDWARE_COMMAND");
  const char* tenant = std::getenv("FRACGPU_TENANT");
  if (command == nullptr || tenant == nullptr) return -1;
  const std::string line = std::string("'") + command + "' status '" + tenant + "' --json 2>&1";
  FILE* const pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return -1;
  std::string text;
  char bytes[4096];
  for (size_t count; (count = fread(bytes, 1, sizeof bytes, pipe)) > 0;) text.append(bytes, count);
  pclose(pipe);
  Json status;
  if (!parse_json(text, &status)) return -1;
  const Json* used = status.at({"tenants", "0", "devices", "0", "used_bytes"});
  return used != nullptr ? static_cast<long long>(used->number) : -1;
}

}  // namespace

int run_witness(const Options& options) {
  const int pid = static_cast<int>(options.number("pid"));
  const Vendor vendor = options.text("vendor") == "amd" ? Vendor::amd : Vendor::nvidia;
  const auto devices = vendor == Vendor::amd ? kfd::devices() : std::vector<KfdDevice>();
  for (std::string line; std::getline(std::cin, line);) {
    long long driver = -1;
    uint64_t bytes = 0, device = 0;
    try {
      if (vendor == Vendor::nvidia
              ? nvml::bytes_of(pid, &bytes)
              : !devices.empty() && kfd::bytes_of(pid, devices[0].gpu_id, &bytes)) {
        driver = static_cast<long long>(bytes);
      }
      device_used(vendor, &device);
    } catch (const Unmeasured& error) {
      std::fprintf(stderr, "hardware_probe: witness: %s\n", error.what());
    }
    std::printf("%lld %lld %llu\n", driver, ledger_bytes(),
                static_cast<unsigned long long>(device));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace hardware
