// Registration of a process with the node, and the lock-free path by which it takes and returns
// memory. The life of a process is an open-file-description lock on its row's byte, kept by a
// mapping whose descriptor is closed and which children do not inherit: nothing the program does
// with its descriptors can drop it. Order of stores: busy, device, row, tenant, not busy, and the
// other way round when memory is returned; a row found dead and busy makes the reaper count
// everything again.
#include "sim/node/account.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "sim/node/amd_partitions.h"
#include "sim/node/marks.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

uint64_t own_start_time() {
  std::ifstream stat("/proc/self/stat");
  std::stringstream text;
  text << stat.rdbuf();
  const std::string line = text.str();
  const size_t after_name = line.rfind(')');
  if (after_name == std::string::npos) return 0;
  std::istringstream fields(line.substr(after_name + 1));
  std::string field;
  for (int i = 3; i <= 22 && fields >> field; ++i) {
  }
  return std::strtoull(field.c_str(), nullptr, 10);
}

// The first number of "NSpid:", which has one for each PID namespace that /proc can see.
int outermost_number(const char* status_file, int otherwise) {
  std::ifstream status(status_file);
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("NSpid:", 0) == 0) return std::atoi(line.c_str() + 6);
  }
  return otherwise;
}

void own_command(char* to, size_t size) {
  std::ifstream comm("/proc/self/comm");
  std::string name;
  std::getline(comm, name);
  std::strncpy(to, name.c_str(), size - 1);
  to[size - 1] = '\0';
}

Counter& counter_of(ProcessDevice& device, Kind kind) {
  const bool is_context = kind == Kind::kContext || kind == Kind::kModule;
  return is_context ? device.context_bytes : device.allocation_bytes;
}

}  // namespace

std::unique_ptr<Account> Account::open(std::string* error, Vendor vendor) {
  std::unique_ptr<Node> node = Node::from_environment(error);
  if (node == nullptr || node->device_count(vendor) == 0) return nullptr;
  std::unique_ptr<Account> account(new Account(std::move(node)));
  if (!account->enroll(error, vendor)) return nullptr;
  return account;
}

bool Account::enroll(std::string* error, Vendor vendor) {
  NodeFile* file = node_->file_;
  node_->reap();
  ReapLock registering(*node_);
  if (!registering.held()) {
    *error = "cannot lock the node's file";
    return false;
  }

  const char* tag = std::getenv(kTenantVariable);
  if (tag == nullptr || *tag == '\0') tag = "none";
  for (int i = 0; i < kMaxTenants && tenant_ == nullptr; ++i) {
    TenantRow& tenant = file->tenant[i];
    const bool taken = tenant.in_use.load() != 0;
    if (taken && std::strncmp(tenant.tag, tag, sizeof tenant.tag - 1) != 0) continue;
    if (!taken) {
      std::strncpy(tenant.tag, tag, sizeof tenant.tag - 1);
      tenant.in_use.store(1, std::memory_order_release);
    }
    tenant_ = &tenant;
    tenant_index_ = i;
  }
  if (tenant_ == nullptr) {
    *error = "too many tenants";
    return false;
  }

  NodeDescriptor life(node_->path());
  for (int i = 0; i < kMaxProcesses && row_ == nullptr; ++i) {
    ProcessRow& row = file->process[i];
    if (row.state.load() == static_cast<uint32_t>(RowState::kFree) &&
        life.lock(kRowLockBase + i, false)) {
      row_ = &row;
      row_index_ = i;
    }
  }
  if (row_ == nullptr) {
    *error = "too many processes";
    return false;
  }
  // Never unmapped: this mapping is what keeps the lock.
  void* keeper = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, life.fd(), 0);
  if (keeper == MAP_FAILED || madvise(keeper, 4096, MADV_DONTFORK) != 0) {
    *error = "cannot map the node's file";
    return false;
  }

  struct stat name_space {};
  stat("/proc/self/ns/pid", &name_space);
  const char* linger = std::getenv(kLingerVariable);
  row_->pid = getpid();
  row_->host_pid = outermost_number("/proc/self/status", row_->pid);
  row_->tid = static_cast<int32_t>(syscall(SYS_gettid));
  row_->host_tid = outermost_number("/proc/thread-self/status", row_->tid);
  const char* clients = std::getenv(kClientsVariable);
  row_->clients = clients != nullptr ? static_cast<uint32_t>(std::atoi(clients)) : 1;
  row_->tenant = static_cast<uint32_t>(tenant_index_);
  row_->vendor = vendor;
  row_->start_time = own_start_time();
  row_->pid_namespace = name_space.st_ino;
  row_->excluded_boards = excluded_boards(*file);
  row_->serial = file->header.serial.fetch_add(1) + 1;
  row_->linger_ns = linger != nullptr && *linger != '\0'
                        ? std::strtoull(linger, nullptr, 10) * 1000000ULL
                        : file->header.linger_ns;
  row_->mig_device.store(0);
  row_->dead_since.store(0);
  row_->busy.store(0);
  row_->checkpoint.store(Checkpoint::kRunning);
  own_command(row_->command, sizeof row_->command);
  file->header.live_processes.fetch_add(1);
  row_->state.store(static_cast<uint32_t>(RowState::kLive), std::memory_order_release);
  return true;
}

std::unique_ptr<Account> Account::of_other(int pid, Vendor vendor) {
  std::string error;
  std::unique_ptr<Node> node = Node::from_environment(&error);
  if (node == nullptr) return nullptr;
  struct stat name_space {};
  stat("/proc/self/ns/pid", &name_space);
  NodeFile* const file = node->file_;
  std::unique_ptr<Account> account(new Account(std::move(node)));
  for (int i = 0; i < kMaxProcesses; ++i) {
    ProcessRow& row = file->process[i];
    if (!in_use(row) || row.vendor != vendor || row.pid != pid ||
        row.pid_namespace != name_space.st_ino) {
      continue;
    }
    account->row_ = &row;
    account->row_index_ = i;
    account->tenant_index_ = static_cast<int>(row.tenant);
    account->tenant_ = &file->tenant[row.tenant];
    return account;
  }
  return nullptr;
}

void Account::park() {
  for (int dev = 0; dev < node_->device_count(); ++dev) {
    const uint64_t allocations = row_->device[dev].allocation_bytes.load();
    const uint64_t contexts = row_->device[dev].context_bytes.load();
    row_->parked[dev] = {allocations, contexts};
    if (allocations > 0) release(dev, allocations, Kind::kAllocation);
    if (contexts > 0) release(dev, contexts, Kind::kModule);
  }
}

bool Account::unpark() {
  for (int dev = 0; dev < node_->device_count(); ++dev) {
    ProcessRow::Parked& parked = row_->parked[dev];
    if (parked.allocations + parked.contexts == 0) continue;
    if (!reserve(dev, parked.allocations, Kind::kAllocation)) return false;
    if (!reserve(dev, parked.contexts, Kind::kModule)) {
      release(dev, parked.allocations, Kind::kAllocation);
      return false;
    }
    parked = {};
  }
  return true;
}

void Account::begin() {
  const Header& header = node_->file_->header;
  row_->busy.store(1, std::memory_order_seq_cst);
  while (header.freeze.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
      row_->busy.store(0, std::memory_order_seq_cst);
      node_->wait_for_recount();
      row_->busy.store(1, std::memory_order_seq_cst);
    }
}

bool Account::try_reserve(int dev, uint64_t bytes, Kind kind, bool* higher) {
  DeviceRow& device = node_->file_->device[dev];
  begin();
  uint64_t used = device.used.load(std::memory_order_relaxed);
  do {
    if (bytes > device.total || used > device.total - bytes) {
      end();
      return false;
    }
  } while (!device.used.compare_exchange_weak(used, used + bytes));
  [[maybe_unused]] const bool is_in_grains =
      device.vendor == Vendor::kAmd || kind == Kind::kRequest;
  assert(bytes % (is_in_grains ? kGrain : kPage) == 0);
  // The row has one writer, this process under its own lock: plain stores of atomics are enough.
  ProcessDevice& mine = row_->device[dev];
  Counter& counter = counter_of(mine, kind);
  counter.store(counter.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  if (kind == Kind::kContext) {
    mine.contexts.store(mine.contexts.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
  }
  *higher = climb(tenant_->device[dev], bytes, row_index_);
  end();
  return true;
}

bool Account::reserve(int dev, uint64_t bytes, Kind kind) {
  const std::atomic<uint64_t>& epoch = node_->file_->header.epoch;
  bool higher = false;
  for (;;) {
    const uint64_t before = epoch.load(std::memory_order_relaxed);
    if (try_reserve(dev, bytes, kind, &higher)) break;
    // Physically full: the dead may still hold some of it, or somebody has just given theirs back.
    node_->reap(-1, row_index_);
    if (epoch.load() == before) return false;
  }
  if (higher) {
    node_->watch_height(tenant_index_, dev, row_index_);
    node_->confirm_mark(tenant_index_, dev, row_index_);
  }
  return true;
}

// In the opposite order: at every instruction the row is at least its share of the tally.
void Account::release(int dev, uint64_t bytes, Kind kind) {
  begin();
  descend(tenant_->device[dev], bytes);
  ProcessDevice& mine = row_->device[dev];
  Counter& counter = counter_of(mine, kind);
  counter.store(counter.load(std::memory_order_relaxed) - bytes, std::memory_order_relaxed);
  if (kind == Kind::kContext) {
    mine.contexts.store(mine.contexts.load(std::memory_order_relaxed) - 1,
                        std::memory_order_relaxed);
  }
  node_->file_->device[dev].used.fetch_sub(bytes);
  end();
}

void Account::host_memory_freed(uint64_t bytes) {
  if ((node_->file_->header.kfd_quirks & kUnderflow) == 0) return;
  row_->device[node_->devices(Vendor::kAmd).front()].host_freed.fetch_add(bytes);
}

uint64_t Account::free_bytes(int dev) {
  // With no other process and no shared memory there is nobody to bury, and no system call is made.
  const Header& header = node_->file_->header;
  if (header.live_processes.load(std::memory_order_relaxed) > 1 ||
      header.objects.load(std::memory_order_relaxed) != 0)
    node_->reap(-1, row_index_);
  const DeviceRow& device = node_->file_->device[dev];
  return device.total - device.used.load(std::memory_order_relaxed);
}

}  // namespace sim
