// Initialisation, visible devices, and the life of contexts in the simulated driver.
// The process joins the node at cuInit, not when the library is loaded. A context takes its fixed
// cost from the node when it becomes alive and gives everything back, allocations included, when it
// ends.
#include "sim/cuda/driver.h"

#include <strings.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace sim {
namespace {
const volatile unsigned char never = 0;
bool ever_initialised = false;
constexpr uint64_t kGreenBytes = kPage;  // what a green context adds to its primary one

MigDevice mig_device_of(const Node& node, const std::string& uuid) {
  for (const int gpu : node.devices(Vendor::kNvidia)) {
    for (const MigDevice& device : mig_devices(node, gpu)) {
      if (strcasecmp(mig_uuid(node, device).c_str(), uuid.c_str()) == 0) return device;
    }
  }
  return {};
}
}  // namespace

const volatile unsigned char* initialised = &never;

static const std::atomic<Checkpoint> running{Checkpoint::kRunning};
const std::atomic<Checkpoint>* checkpoint = &running;

void wait_until_unlocked() {
  while (checkpoint->load() != Checkpoint::kRunning) usleep(1000);
}
thread_local ThreadState thread_state = {};

Driver& Driver::get() {
  // Never destroyed: programs call the driver from their own exit handlers.
  static Driver* const driver = new Driver;
  return *driver;
}

CUresult Driver::init() {
  const Guard guard(mutex_);
  if (ever_initialised) return *initialised != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  std::string error;
  if (account_ == nullptr) account_ = Account::open(&error, Vendor::kNvidia);
  if (account_ != nullptr) checkpoint = &account_->checkpoint();
  if (account_ == nullptr) {
    if (!error.empty()) std::fprintf(stderr, "simulated driver: %s\n", error.c_str());
    return CUDA_ERROR_NO_DEVICE;
  }
  if (!choose_devices()) return CUDA_ERROR_NO_DEVICE;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, 4096, MADV_WIPEONFORK) != 0)
    return CUDA_ERROR_OPERATING_SYSTEM;
  *static_cast<unsigned char*>(page) = 1;
  ever_initialised = true;
  initialised = static_cast<unsigned char*>(page);
  return CUDA_SUCCESS;
}

// As the real driver does where MIG is on: a GPU in that mode stands for its first instance, or for
// nothing if it has none, and a process has one instance and nothing beside it.
bool Driver::settle_for_one_instance() {
  Node& physical = account_->node();
  const MigLock lock(physical);
  std::erase_if(visible_, [&](int dev) {
    return physical.mig_parent(dev) < 0 && mig_is_on(physical, dev) &&
           mig_devices(physical, dev).empty();
  });
  for (const int dev : visible_) {
    if (physical.mig_parent(dev) < 0 && !mig_is_on(physical, dev)) continue;
    if (physical.mig_parent(dev) < 0) mig_device_ = mig_devices(physical, dev).front();
    // It may have been taken away since it was chosen.
    if (!is_there(physical, mig_device_)) return false;
    account_->use_mig_device(mig_device_.serial);
    visible_ = {mig_device_.dev};
    break;
  }
  return !visible_.empty();
}

bool Driver::choose_devices() {
  visible_.clear();
  Node& physical = account_->node();
  const std::vector<int> devices = physical.devices(Vendor::kNvidia);
  const int count = static_cast<int>(devices.size());
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (list == nullptr) {
    visible_ = devices;
  } else {
    // As the real driver reads it: everything up to the first entry that names no device.
    std::string rest = list;
    while (!rest.empty()) {
      const size_t comma = rest.find(',');
      std::string item = rest.substr(0, comma);
      rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
      while (!item.empty() && item.front() == ' ') item.erase(0, 1);
      while (!item.empty() && item.back() == ' ') item.pop_back();
      int found = -1;
      if (const MigDevice device = mig_device_of(physical, item); device.dev >= 0) {
        if (mig_device_.dev < 0) mig_device_ = device;
        visible_.push_back(device.dev);
        continue;
      }
      if (strncasecmp(item.c_str(), "GPU-", 4) == 0 && item.size() > 4) {
        for (int i = 0; i < count; ++i) {
          const int dev = devices[static_cast<size_t>(i)];
          if (strncasecmp(physical.uuid(dev).c_str(), item.c_str(), item.size()) == 0)
            found = found == -1 ? i : -2;
        }
      } else if (!item.empty() && item.find_first_not_of("0123456789") == std::string::npos &&
                 item.size() < 4) {
        found = std::atoi(item.c_str());
      }
      if (found < 0 || found >= count) break;
      found = devices[static_cast<size_t>(found)];
      for (const int already : visible_) {
        if (already == found) return false;
      }
      visible_.push_back(found);
    }
  }
  if (!settle_for_one_instance()) return false;
  for (size_t i = 0; i < visible_.size(); ++i) {
    primary_[i].primary = true;
    primary_[i].ordinal = static_cast<int>(i);
    primary_[i].device = visible_[i];
  }
  return true;
}

bool Driver::known(const Context* context) const {
  if (context >= primary_ && context < primary_ + kMaxDevices) return context->primary;
  for (const Context& one : created_) {
    if (&one == context) return !one.spare;
  }
  return false;
}

Context& Driver::new_context(CUdevice dev, unsigned flags) {
  if (spare_contexts_.empty()) spare_contexts_.push_back(&created_.emplace_back());
  Context& context = *spare_contexts_.back();
  spare_contexts_.pop_back();
  context = Context{};
  context.device = physical(dev);
  context.ordinal = dev;
  context.flags = flags;
  context.references = 1;
  return context;
}

// As libcuda 535 does: the value of a handle may be another context's at once, but not while the
// dead one is current to some thread, where it is recognised.
void Driver::recycle(Context* context) {
  if (context->primary || context->alive || context->references != 0 || context->current_to != 0)
    return;
  context->spare = true;
  context->parent = nullptr;
  spare_contexts_.push_back(context);
}

CUresult Driver::push(Context* context) {
  if (thread_state.depth == ThreadState::kDepth) return CUDA_ERROR_OUT_OF_MEMORY;
  thread_state.stack[thread_state.depth++] = context;
  ++context->current_to;
  return CUDA_SUCCESS;
}

void Driver::pop() {
  Context* const context = thread_state.stack[--thread_state.depth];
  --context->current_to;
  recycle(context);
}

CUresult Driver::make_context(CUdevice dev, unsigned flags, Context** out) {
  Context& context = new_context(dev, flags);
  const CUresult result = activate(&context);
  if (result != CUDA_SUCCESS) {
    context.references = 0;
    recycle(&context);
    return result;
  }
  *out = &context;
  return CUDA_SUCCESS;
}

CUresult Driver::activate(Context* context) {
  if (!account_->reserve(context->device, account_->context_cost(context->device),
                         Kind::kContext)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::copy_n(kDefaultLimits, kLimits, context->limit);
  context->id = next_id_++;
  context->alive = true;
  return CUDA_SUCCESS;
}

CUresult Driver::make_green(CUdevice dev, Context** out) {
  Context& base = primary(dev);
  if (!base.alive) {
    if (const CUresult result = activate(&base)) return result;
  }
  if (!grow(&base, kGreenBytes)) {
    if (base.references == 0) deactivate(&base);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++base.references;
  Context& green = new_context(dev, base.flags);
  green.green = true;
  green.parent = &base;
  green.id = next_id_++;
  green.alive = true;
  *out = &green;
  return CUDA_SUCCESS;
}

bool Driver::grow(Context* context, uint64_t bytes) {
  if (bytes != 0 && !account_->reserve(context->device, bytes, Kind::kModule)) return false;
  context->grown_bytes += bytes;
  return true;
}

void Driver::shrink(Context* context, uint64_t bytes) {
  if (bytes != 0) account_->release(context->device, bytes, Kind::kModule);
  context->grown_bytes -= bytes;
}

// The work of its streams is done before a context ends.
void Driver::finish(Context* context) {
  streams.forget(*context);
  pools.synchronised(streams.reach(*context));
  pools.forget(context);
}

void Driver::deactivate(Context* context) {
  if (!context->alive) return;
  if (context->parent == nullptr) {
    finish(context);
  } else {
    streams.forget(*context);
  }
  context->alive = false;
  if (context->parent != nullptr) {
    shrink(context->parent, kGreenBytes);
    return;
  }
  for (Context& green : created_) {
    if (green.parent == context) deactivate(&green);
  }
  arrays.forget(context);
  while (context->ranges != nullptr) drop_range(context->ranges);
  for (auto& heap : context->small) heap.reset();
  shrink(context, context->grown_bytes);
  context->kept_bytes = 0;
  context->launched = false;
  context->streams = context->most_streams = 0;
  account_->release(context->device, account_->context_cost(context->device), Kind::kContext);
}

}  // namespace sim
