// Beginning and end of the simulated HSA runtime, and the choice of its agents.
// ROCR_VISIBLE_DEVICES is read as the real runtime reads it (core/util/flag.h and the filter of the
// topology): a list of indices and "GPU-" identities, in the order in which they shall appear, that
// ends at the first entry naming no device or one named before; set and empty, it hides all.
#include "sim/hsa/runtime.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "sim/hsa/code.h"
#include "sim/hsa/memory.h"
#include "sim/hsa/queue.h"
#include "sim/hsa/signal.h"
#include "sim/hsa/stub_entry.h"
#include "sim/kfd/topology_files.h"
#include "sim/kfd/tree.h"
#include "sim/node/container.h"

namespace sim {
namespace {

const volatile unsigned char never = 0;
// Both zero in a forked child: [0] initialised, [1] this process has opened the account.
unsigned char* own_page = nullptr;
// Some process has, this one or the one that it was forked from.
std::atomic<bool> opened{false};

bool make_own_page() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) != 0) return false;
  own_page = static_cast<unsigned char*>(page);
  return true;
}

// In the order of KFD's nodes, as libhsakmt numbers those that it can use.
std::vector<int> supported_devices(const Node& node) {
  std::vector<int> all = node.devices(Vendor::kAmd);
  std::erase_if(all, lacks_render_node);
  std::sort(all.begin(), all.end(),
            [&](int a, int b) { return node.device(a).kfd_node < node.device(b).kfd_node; });
  return all;
}

// As libhsakmt, which never closes them. Only their fdinfo is of use here.
void open_render_nodes(Node& node) {
  make_kfd_tree(node.path(), *node.file());
  for (const int device : supported_devices(node)) {
    const std::string path = kfd_tree_of(node.path()) + "/dev/dri/renderD" +
                             std::to_string(render_minor(*node.file(), device));
    [[maybe_unused]] const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  }
}

std::vector<int> visible_devices(const Node& node) {
  const std::vector<int> all = supported_devices(node);
  const char* list = std::getenv("ROCR_VISIBLE_DEVICES");
  if (list == nullptr) return all;
  std::vector<int> chosen;
  std::string rest = list;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    std::string item = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    item.erase(std::remove(item.begin(), item.end(), ' '), item.end());
    int device = -1;
    if (item.rfind("GPU-", 0) == 0) {
      for (const int candidate : all) {
        const bool used = std::find(chosen.begin(), chosen.end(), candidate) != chosen.end();
        if (device < 0 && !used && node.uuid(candidate) == item) device = candidate;
      }
    } else if (!item.empty() && item.find_first_not_of("0123456789") == std::string::npos) {
      const unsigned long index = std::strtoul(item.c_str(), nullptr, 10);
      if (index < all.size()) device = all[index];
    }
    if (device < 0 || std::find(chosen.begin(), chosen.end(), device) != chosen.end()) break;
    chosen.push_back(device);
  }
  return chosen;
}

}  // namespace

const volatile unsigned char* initialised = &never;

Runtime& Runtime::get() {
  // Never destroyed: programs call the runtime from their own exit handlers.
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

void Runtime::add_agent(int device) {
  auto agent = std::make_unique<Agent>();
  agent->device = device;
  agent->index = static_cast<uint32_t>(agents_.size());
  if (device >= 0) {
    const std::vector<int> all = supported_devices(account_->node());
    const auto place = std::find(all.begin(), all.end(), device) - all.begin();
    agent->node = static_cast<uint32_t>(place) + 1;
  }
  using Kind = Pool::Kind;
  const std::vector<Kind> kinds = device < 0
                                      ? std::vector{Kind::kFine, Kind::kKernarg, Kind::kCoarse}
                                      : std::vector{Kind::kCoarse, Kind::kFine, Kind::kGroup};
  for (const Kind kind : kinds) {
    auto pool = std::make_unique<Pool>();
    pool->agent = agent.get();
    pool->kind = kind;
    agent->pools.push_back(std::move(pool));
  }
  agents_.push_back(std::move(agent));
}

void Runtime::choose_agents() {
  add_agent(-1);
  for (const int device : visible_devices(account_->node())) add_agent(device);
}

void Runtime::drop_contexts(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const int device = agents_[i]->device;
    if (device >= 0) account_->release(device, account_->context_cost(device), Kind::kContext);
  }
}

hsa_status_t Runtime::init() {
  // A child of a process that has used the device has no access to it, not even by a new start.
  if (opened.load() && own_page[1] == 0) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  const Guard guard(mutex_);
  if (references_ != 0) {
    if (references_ == UINT32_MAX) return HSA_STATUS_ERROR_REFCOUNT_OVERFLOW;
    ++references_;
    return HSA_STATUS_SUCCESS;
  }
  if (own_page == nullptr && !make_own_page()) return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  std::string error;
  if (account_ == nullptr) account_ = Account::open(&error, Vendor::kAmd);
  if (account_ == nullptr) {
    if (!error.empty()) std::fprintf(stderr, "simulated HSA runtime: %s\n", error.c_str());
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  own_page[1] = 1;
  opened.store(true);
  if (agents_.empty()) {
    open_render_nodes(account_->node());
    choose_agents();
  }
  for (size_t i = 0; i < agents_.size(); ++i) {
    const int device = agents_[i]->device;
    if (device < 0 || account_->reserve(device, account_->context_cost(device), Kind::kContext))
      continue;
    drop_contexts(i);
    return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
  }
  references_ = 1;
  own_page[0] = 1;
  initialised = own_page;
  return HSA_STATUS_SUCCESS;
}

hsa_status_t Runtime::shut_down() {
  {
    const Guard guard(mutex_);
    if (--references_ != 0) return HSA_STATUS_SUCCESS;
    own_page[0] = 0;
  }
  end_all_queues();
  forget_waiting_work();
  const Guard guard(mutex_);
  unload_all_code();
  memory().clear();
  drop_contexts(agents_.size());
  return HSA_STATUS_SUCCESS;
}

Agent* Runtime::find(hsa_agent_t handle) const {
  for (const auto& agent : agents_) {
    if (sim::handle(*agent).handle == handle.handle) return agent.get();
  }
  return nullptr;
}

Pool* Runtime::find_pool(uint64_t handle) const {
  for (const auto& agent : agents_) {
    for (const auto& pool : agent->pools) {
      if (reinterpret_cast<uint64_t>(pool.get()) == handle) return pool.get();
    }
  }
  return nullptr;
}

bool Runtime::take_overhead(const Agent& agent, uint64_t bytes) {
  return agent.device < 0 || account_->reserve(agent.device, bytes, Kind::kModule);
}

void Runtime::return_overhead(const Agent& agent, uint64_t bytes) {
  if (agent.device >= 0) account_->release(agent.device, bytes, Kind::kModule);
}

int enter_stub(const char* function, int status) {
  if (status != HSA_STATUS_SUCCESS) unanswered(function, 0);
  const hsa_status_t refused = enter(function);
  return refused != HSA_STATUS_SUCCESS ? refused : status;
}

bool is_before_5_7() {
  const char* version = std::getenv("FRACGPU_SIM_ROCR");
  return version != nullptr && std::strcmp(version, "5.6") == 0;
}

void unanswered(const char* function, uint64_t attribute) {
  static const bool verbose = std::getenv("FRACGPU_SIM_VERBOSE") != nullptr;
  if (verbose)
    std::fprintf(stderr, "simulated HSA runtime: %s: no answer for 0x%llx\n", function,
                 static_cast<unsigned long long>(attribute));
}

}  // namespace sim

SIM_API hsa_status_t hsa_init() {
  if (const int result = sim::ordered("hsa_init")) return static_cast<hsa_status_t>(result);
  return sim::Runtime::get().init();
}

SIM_API hsa_status_t hsa_shut_down() {
  SIM_CALL(hsa_shut_down);
  return sim::Runtime::get().shut_down();
}
