// The facts about drivers, and the threads that stood for this process; see list_meaning.h.
//
// The facts come from the public history of NVIDIA/open-gpu-kernel-modules (gpu_rmapi.c,
// os-interface.c). The closed modules are not public. Containers whose lists show no process are
// the evidence that these modules list host PIDs (NVIDIA/nvidia-container-toolkit#1013).
#include "hooks/smi/nvml/list_meaning.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "shim/base/small_file.h"
#include "shim/config/identity.h"

namespace fracgpu::nvml {
namespace {

// The open modules translate PIDs since the first version. Until the second version, they look up
// memory by the translated number among host PIDs.
constexpr DriverVersion kTranslates{535, 113, 1}, kLooksUpTranslated{565, 57, 1};

// In these versions, they list the thread's number instead of the process's.
constexpr bool lists_threads(const DriverVersion& version) {
  return (version >= kTranslates && version < DriverVersion{570, 148, 8}) ||
         (version >= DriverVersion{575, 0, 0} && version < DriverVersion{575, 57, 8});
}

// Threads that stood for a process: the PIDs of both in one word. No more than eight threads are
// expected to open the driver. A ninth is recognized only while it lives.
constinit std::atomic<uint64_t> seen_threads[8];

bool remembers(uint64_t word) {
  return std::any_of(std::begin(seen_threads), std::end(seen_threads), [&](const auto& seen) {
    return seen.load(std::memory_order_relaxed) == word;
  });
}

void remember(uint64_t word) {
  const uint64_t self = word >> 32;
  for (auto& seen : seen_threads) {
    uint64_t before = seen.load(std::memory_order_relaxed);
    if (before == word) return;
    // In a forked child, the entries are the parent's.
    if (before >> 32 == self) continue;
    if (seen.compare_exchange_strong(before, word, std::memory_order_relaxed)) return;
  }
}

}  // namespace

Modules modules_in(std::string_view version_file) {
  if (!version_file.starts_with("NVRM version:")) return Modules::unknown;
  const std::string_view line = version_file.substr(0, version_file.find('\n'));
  return line.find("Open Kernel Module") != line.npos ? Modules::open : Modules::closed;
}

Modules modules_here() {
  static constinit std::atomic<Modules> known{Modules::unknown};
  Modules modules = known.load(std::memory_order_relaxed);
  if (modules != Modules::unknown) return modules;
  char text[512];
  const ssize_t size = read_small_file("/proc/driver/nvidia/version", text, sizeof text);
  if (size > 0) modules = modules_in({text, static_cast<size_t>(size)});
  known.store(modules, std::memory_order_relaxed);
  return modules;
}

ListMeaning meaning_of_lists(const DriverVersion& version, Modules modules,
                             bool in_host_namespace) {
  using Pids = ListMeaning::Pids;
  const bool may_be_open = modules != Modules::closed && version >= kTranslates;
  ListMeaning meaning;
  meaning.threads = may_be_open && lists_threads(version);
  meaning.amounts_of_threads = version >= kLooksUpTranslated;
  if (in_host_namespace) {
    meaning.pids = Pids::callers;
  } else if (!version.known() || (may_be_open && modules == Modules::unknown)) {
    meaning.pids = Pids::unknown;
  } else {
    meaning.pids = may_be_open ? Pids::callers : Pids::host;
    meaning.amounts = !may_be_open || version >= kLooksUpTranslated;
  }
  return meaning;
}

ListMeaning meaning_of_lists(const DriverVersion& version) {
  return meaning_of_lists(version, modules_here(), in_host_pid_namespace());
}

bool stands_for_self(uint32_t pid, const ListMeaning& meaning) {
  const auto self = static_cast<uint32_t>(getpid());
  if (pid == self) return true;
  if (!meaning.threads || pid == 0) return false;
  const uint64_t word = uint64_t{self} << 32 | pid;
  if (!has_thread(self, pid)) return remembers(word);
  remember(word);
  return true;
}

void ListedBytes::add(const Entry& entry, bool is_process, const ListMeaning& meaning) {
  any_ = true;
  if (!meaning.amounts || (!is_process && !meaning.amounts_of_threads)) {
    not_told_ = true;
    return;
  }
  of_process_ = of_process_ || is_process;
  for (int i = 0; i < count_; ++i) {
    Entry& known = entries_[i];
    if (known.pid == entry.pid && known.gpu_instance == entry.gpu_instance &&
        known.compute_instance == entry.compute_instance) {
      known.bytes = std::max(known.bytes, entry.bytes);
      return;
    }
  }
  if (count_ == kMost) {
    not_told_ = true;
    return;
  }
  entries_[count_++] = entry;
}

bool ListedBytes::sum(uint64_t& bytes) const {
  bytes = 0;
  for (int i = 0; i < count_; ++i) bytes += entries_[i].bytes;
  // If a thread's entry shows no amount, the process's own entry has all of it.
  return !not_told_ || of_process_;
}

}  // namespace fracgpu::nvml
