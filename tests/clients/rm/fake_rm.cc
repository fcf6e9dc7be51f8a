// Requests are copied in and out as a kernel does it, so that an address that leads nowhere is an
// error here, and memory beyond a structure is never touched.
#include "tests/clients/rm/fake_rm.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sim/node/account.h"
#include "tests/clients/rm/abi.h"

namespace rm {
namespace {

struct Object {
  uint32_t parent, object_class;
  int device;      // the node's; -1: a client
  uint64_t bytes;  // of the device's memory
};

// Handles are unique in a client, which is its own parent.
struct Name {
  uint32_t client, object;
  auto operator<=>(const Name&) const = default;
};

std::atomic<int> rm_descriptor{-1};
std::atomic<unsigned> failing_percent{0};
thread_local bool has_asked = false;

unsigned random_below(unsigned bound) {
  thread_local std::minstd_rand random(static_cast<unsigned>(syscall(SYS_gettid)));
  return static_cast<unsigned>(random() % bound);
}

bool copy(void* to, uint64_t from, size_t size, decltype(process_vm_readv)* move) {
  const iovec here{to, size}, there{reinterpret_cast<void*>(from), size};
  return size == 0 || move(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(size);
}
bool copy_in(void* to, uint64_t from, size_t size) {
  return copy(to, from, size, process_vm_readv);
}
bool copy_out(uint64_t to, const void* from, size_t size) {
  return copy(const_cast<void*>(from), to, size, process_vm_writev);
}

constexpr uint64_t kPages[] = {0, 4 << 10, 64 << 10, 2 << 20};
uint64_t rounded(uint64_t bytes, uint64_t page) {
  return bytes > ~uint64_t{0} - page ? bytes : (bytes + page - 1) / page * page;
}

class Rm {
 public:
  // Locked across a fork: the child's copy of the objects must be whole.
  std::mutex lock;

  // After a fork, in the child: RM knows the process by its descriptors, whose clients are not its
  // own.
  void forget() {
    objects_.clear();
    static_cast<void>(account_.release());  // the parent's
  }

  uint32_t allocate(uint32_t client, uint32_t parent, uint32_t& object, uint32_t object_class,
                    uint64_t parameters) {
    if (!has_account()) return kBusyRetry;
    if (object_class == kRoot) return add_client(object);
    const Object* const owner = find({client, parent});
    if (find({client, client}) == nullptr) return kInvalidClient;
    if (owner == nullptr) return kInvalidObjectParent;
    if (object != 0 && find({client, object}) != nullptr) return kDuplicateName;
    switch (object_class) {
      case kDevice: {
        DeviceParameters device{};  // without parameters, RM takes its first device
        if (parameters != 0 && !copy_in(&device, parameters, sizeof device)) return kInvalidPointer;
        const std::vector<int> devices = account_->node().devices(sim::Vendor::kNvidia);
        if (parent != client) return kInvalidObjectParent;
        if (device.device >= devices.size()) return kInvalidArgument;
        return add(client, object, {parent, object_class, devices[device.device], 0});
      }
      case kSubdevice:
        if (owner->object_class != kDevice) return kInvalidObjectParent;
        return add(client, object, {parent, object_class, owner->device, 0});
      case kLocalMemory:
      case kSystemMemory:
      case kVirtualMemory: {
        MemoryParameters memory{};
        if (parameters == 0) return kInvalidArgument;
        if (!copy_in(&memory, parameters, sizeof memory)) return kInvalidPointer;
        const uint32_t status = allocate_memory(client, parent, object, object_class, memory.size,
                                                memory.flags, memory.attributes);
        if (status == kOk) copy_out(parameters, &memory, sizeof memory);
        return status;
      }
      default:
        return kInvalidClass;
    }
  }

  uint32_t allocate_memory(uint32_t client, uint32_t parent, uint32_t& object,
                           uint32_t object_class, uint64_t& size, uint32_t flags,
                           uint32_t attributes) {
    if (!has_account()) return kBusyRetry;
    const Object* const owner = find({client, parent});
    if (find({client, client}) == nullptr) return kInvalidClient;
    if (owner == nullptr || (owner->object_class != kDevice && owner->object_class != kSubdevice))
      return kInvalidObjectParent;
    if (object != 0 && find({client, object}) != nullptr) return kDuplicateName;
    const bool is_local = object_class == kLocalMemory;
    const bool is_local_by_parameters =
        (flags & kFlagVirtual) == 0 && (attributes >> kLocationShift & 3) == 0;
    if (size == 0 || (is_local && !is_local_by_parameters)) return kInvalidArgument;
    // Where the request leaves the pages to RM, it may choose smaller ones.
    const bool chooses = (attributes >> kPageSizeShift & 3) == 0 && random_below(4) == 0;
    const uint64_t taken = chooses ? rounded(size, 4 << 10) : most_taken(size, attributes);
    if (is_local && !account_->reserve(owner->device, taken, sim::Kind::kRequest)) return kNoMemory;
    size = taken;
    return add(client, object, {parent, object_class, owner->device, is_local ? taken : 0});
  }

  uint32_t free(uint32_t client, uint32_t object) {
    if (find({client, client}) == nullptr) return kInvalidClient;
    remove({client, object});
    return kOk;
  }

  uint32_t control(Nvos54& asked_for) {
    if (!has_account()) return kBusyRetry;
    const Object* const object = find({asked_for.client, asked_for.object});
    if (find({asked_for.client, asked_for.client}) == nullptr) return kInvalidClient;
    if (object == nullptr) return kInvalidObjectHandle;
    if ((asked_for.flags & kControlSerialized) != 0) return kInvalidArgument;
    switch (asked_for.command) {
      case kGetAttachedIds:
        return answer<AttachedIds>(asked_for, [&](AttachedIds& list) {
          memset(list.ids, 0xff, sizeof list.ids);
          for (size_t i = 0; i < devices().size(); ++i) list.ids[i] = id_of(i);
          return kOk;
        });
      case kGetIdInfo:
        return answer<IdInfo>(asked_for, [&](IdInfo& info) {
          for (size_t i = 0; i < devices().size(); ++i) {
            if (info.id != id_of(i)) continue;
            info.device = static_cast<uint32_t>(i);
            return kOk;
          }
          return kInvalidArgument;
        });
      case kGetUuid:
        return answer<Uuid>(asked_for, [&](Uuid& uuid) {
          for (size_t i = 0; i < devices().size(); ++i) {
            if (uuid.id != id_of(i)) continue;
            const std::string text = account_->node().uuid(devices()[i]);
            memcpy(uuid.text, text.c_str(), text.size() + 1);
            uuid.length = static_cast<uint32_t>(text.size() + 1);
            return kOk;
          }
          return kInvalidArgument;
        });
      case kGetFbInfo:
        if (object->object_class != kSubdevice) return kInvalidCommand;
        return answer<FbInfo>(asked_for, [&](FbInfo& list) {
          FbEntry entries[kMostFbEntries];
          if (list.count > kMostFbEntries) return kInvalidArgument;
          const size_t size = list.count * sizeof entries[0];
          if (!copy_in(entries, list.entries, size)) return kInvalidPointer;
          for (uint32_t i = 0; i < list.count; ++i) fill(entries[i], object->device);
          return copy_out(list.entries, entries, size) ? kOk : kInvalidPointer;
        });
      case kGetFbInfoV2:
        if (object->object_class != kSubdevice) return kInvalidCommand;
        // More entries than there is room for are no error here, unlike in NVIDIA's RM: the
        // library must not go beyond the room whatever RM says.
        return answer<FbInfoV2>(asked_for, [&](FbInfoV2& list) {
          for (uint32_t i = 0; i < list.count && i < kMostFbEntries; ++i)
            fill(list.entries[i], object->device);
          return kOk;
        });
      default:
        return kInvalidCommand;
    }
  }

  // In bytes; 0 if the object is no part of a device.
  uint64_t memory_of_device(uint32_t client, uint32_t parent) {
    const Object* const owner = has_account() ? find({client, parent}) : nullptr;
    return owner != nullptr && owner->device >= 0 ? account_->total(owner->device) : 0;
  }

 private:
  bool has_account() {
    if (account_ != nullptr) return true;
    std::string error;
    account_ = sim::Account::open(&error, sim::Vendor::kNvidia);
    if (account_ == nullptr) fprintf(stderr, "no node: %s\n", error.c_str());
    return account_ != nullptr;
  }
  std::vector<int> devices() { return account_->node().devices(sim::Vendor::kNvidia); }
  static uint32_t id_of(size_t device) { return static_cast<uint32_t>(0x100 * (device + 1)); }

  const Object* find(Name name) const {
    const auto found = objects_.find(name);
    return found != objects_.end() ? &found->second : nullptr;
  }
  uint32_t add_client(uint32_t& object) {
    object = kFirstClient;
    while (find({object, object}) != nullptr) ++object;
    objects_[{object, object}] = {object, kRoot, -1, 0};
    return kOk;
  }
  uint32_t add(uint32_t client, uint32_t& object, const Object& what) {
    if (object == 0) {
      object = kFirstObject;
      while (find({client, object}) != nullptr) ++object;
    }
    objects_[{client, object}] = what;
    return kOk;
  }
  void remove(Name name) {
    const auto gone = objects_.find(name);
    if (gone == objects_.end()) return;
    if (gone->second.bytes > 0)
      account_->release(gone->second.device, gone->second.bytes, sim::Kind::kRequest);
    objects_.erase(gone);
    std::vector<Name> children;
    for (auto each = objects_.lower_bound({name.client, 0});
         each != objects_.end() && each->first.client == name.client; ++each) {
      if (each->second.parent == name.object) children.push_back(each->first);
    }
    for (const Name& child : children) remove(child);
  }

  void fill(FbEntry& entry, int device) {
    const uint64_t total = account_->total(device);
    const bool is_size = entry.index == kFbRamSize || entry.index == kFbHeapSize;
    const uint64_t bytes = is_size                      ? total
                           : entry.index == kFbHeapFree ? account_->free_bytes(device)
                                                        : 0;
    entry.kib = entry.index == kFbBusWidth ? 4096 : static_cast<uint32_t>(bytes >> 10);
  }

  // The parameters of a control, as long as the request says that they are.
  template <typename Parameters, typename Answer>
  uint32_t answer(const Nvos54& asked_for, Answer give) {
    Parameters parameters{};
    const bool is_list = asked_for.command == kGetFbInfoV2;
    const size_t size = asked_for.parameters_size;
    if (asked_for.parameters == 0) return kInvalidArgument;
    if (is_list ? size < sizeof(uint32_t) || size > sizeof parameters : size != sizeof parameters)
      return kInvalidParamStruct;
    if (!copy_in(&parameters, asked_for.parameters, size)) return kInvalidPointer;
    const uint32_t status = give(parameters);
    if (status != kOk) return status;
    return copy_out(asked_for.parameters, &parameters, size) ? kOk : kInvalidPointer;
  }

  std::map<Name, Object> objects_;
  std::unique_ptr<sim::Account> account_;
};

Rm& rm() {
  static Rm* const made = [] {
    static Rm* const instance = new Rm;  // outlives threads that run at exit
    pthread_atfork([] { instance->lock.lock(); }, [] { instance->lock.unlock(); },
                   [] {
                     instance->forget();
                     instance->lock.unlock();
                   });
    return instance;
  }();
  return *made;
}

int fail(int error) {
  errno = error;
  return -1;
}

// Copies the request in, has it answered, and copies it out with its status.
template <typename Request, typename Answer>
int serve(size_t size, void* argument, Answer answer) {
  Request request;
  const auto address = reinterpret_cast<uint64_t>(argument);
  if (size != sizeof request) return fail(EINVAL);
  if (!copy_in(&request, address, sizeof request)) return fail(EFAULT);
  const unsigned failing = failing_percent.load(std::memory_order_relaxed);
  const unsigned drawn = random_below(200);
  if (drawn < failing) return fail(EINTR);
  if (drawn < 2 * failing) {
    request.status = kBusyRetry;
  } else {
    const std::lock_guard guard(rm().lock);
    request.status = answer(request);
  }
  const bool is_written = copy_out(address, &request, sizeof request);
  // Other threads find what the request has done, before its maker knows.
  for (unsigned turns = random_below(3); turns > 0; --turns) sched_yield();
  return is_written ? 0 : fail(EFAULT);
}

int answer(unsigned long request, void* argument) {
  const size_t size = request >> 16 & 0x3fff;
  if ((request >> 8 & 0xff) != 'F') return fail(ENOTTY);
  const auto allocate = [](auto& wanted) {
    return rm().allocate(wanted.client, wanted.parent, wanted.object, wanted.object_class,
                         wanted.parameters);
  };
  switch (request & 0xff) {
    case kAlloc:
      if (size == sizeof(Nvos21)) return serve<Nvos21>(size, argument, allocate);
      if (size == sizeof(Nvos64Before535)) return serve<Nvos64Before535>(size, argument, allocate);
      return serve<Nvos64>(size, argument, [&](Nvos64& wanted) {
        const bool is_serialized = (wanted.flags & kAllocSerialized) != 0;
        return is_serialized ? uint32_t{kInvalidArgument} : allocate(wanted);
      });
    case kFree:
      return serve<Nvos00>(size, argument, [](Nvos00& unwanted) {
        return rm().free(unwanted.client, unwanted.object);
      });
    case kVidHeapControl:
      return serve<Nvos32>(size, argument, [](Nvos32& wanted) -> uint32_t {
        if (wanted.function == kFunctionFree) {
          if ((wanted.type & kFreeFlagHandleProvided) == 0) return kInvalidArgument;
          return rm().free(wanted.client, wanted.object);
        }
        if (wanted.function != kFunctionAllocSize) return kInvalidArgument;
        if ((wanted.flags & kFlagHandleProvided) == 0) wanted.object = 0;
        const bool is_virtual = (wanted.flags & kFlagVirtual) != 0;
        const bool is_local = (wanted.attributes >> kLocationShift & 3) == 0;
        const Class object_class = is_virtual ? kVirtualMemory
                                   : is_local ? kLocalMemory
                                              : kSystemMemory;
        return rm().allocate_memory(wanted.client, wanted.parent, wanted.object, object_class,
                                    wanted.size, wanted.flags, wanted.attributes);
      });
    case kControl:
      return serve<Nvos54>(size, argument,
                           [](Nvos54& asked_for) { return rm().control(asked_for); });
    case kAllocMemory:
      return serve<Nvos02>(size, argument, [](Nvos02& asked_for) -> uint32_t {
        const uint64_t bytes = rm().memory_of_device(asked_for.client, asked_for.parent);
        if (asked_for.object_class != kLocalMemory) return kInvalidClass;
        if (bytes == 0) return kInvalidObjectParent;
        asked_for.limit = bytes - 1;
        return kOk;
      });
    default:
      return fail(EINVAL);
  }
}

}  // namespace

int open_rm() {
  rm_descriptor.store(open("/dev/null", O_RDWR | O_CLOEXEC));
  return rm_descriptor.load();
}

void fail_requests(unsigned percent) {
  failing_percent.store(percent, std::memory_order_relaxed);
}

bool was_asked() {
  return std::exchange(has_asked, false);
}

uint64_t most_taken(uint64_t bytes, uint32_t attributes) {
  const uint64_t asked_for = kPages[attributes >> kPageSizeShift & 3];
  return rounded(bytes, asked_for != 0 ? asked_for : bytes >= kPages[3] ? kPages[3] : kPages[2]);
}

}  // namespace rm

// Precedes the C library's for all objects of the program.
extern "C" [[gnu::visibility("default")]] int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list list;
  va_start(list, request);
  void* const argument = va_arg(list, void*);
  va_end(list);
  const bool is_rms = fd >= 0 && fd == rm::rm_descriptor.load();
  if (!is_rms) return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
  rm::has_asked = true;
  return rm::answer(request, argument);
}
