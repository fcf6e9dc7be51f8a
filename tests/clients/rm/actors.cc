// Random requests to RM, for random_calls (see tests/clients/random).
//
// Families: `own` makes only requests that a library makes, and knows what each must answer.
// `shared` does so with devices of its own, in one client for all threads.
// `chaos` makes any request with any of a few handles, from all threads together. `forking` forks
// children that make requests and end or are killed. `fill` fills the cap. `cuda` allocates by
// CUDA, in a process with RANDOM_REQUESTS_CUDA. RANDOM_REQUESTS_FAILING: percent of all requests
// that fail in RM.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "tests/clients/random/actor_base.h"
#include "tests/clients/rm/fake_rm.h"
#include "tests/clients/rm/requests.h"

namespace client {
namespace {

using rm::Form;

void* cuda_function(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return library != nullptr ? dlsym(library, name) : nullptr;
}
template <typename... Arguments>
int cuda(const char* name, Arguments... arguments) {
  const auto function = reinterpret_cast<int (*)(Arguments...)>(cuda_function(name));
  return function != nullptr ? function(arguments...) : -1;
}
bool has_cuda() {
  static const bool value = std::getenv("RANDOM_REQUESTS_CUDA") != nullptr;
  return value;
}

// Requests that RM fails at random must be repeated where the program cannot go on without them.
bool failed_at_random(uint32_t status) {
  return status == rm::kNotServed || status == rm::kBusyRetry;
}
template <typename Request>
uint32_t insist(Request request) {
  uint32_t status = 0;
  do {
    status = request();
  } while (failed_at_random(status));
  return status;
}

// What the program itself asks about the first device.
struct Observer {
  uint32_t client = 0, device = 0, subdevice = 0;
  bool start() {
    return insist([&] { return rm::make_client(client); }) == 0 &&
           insist([&] { return rm::make_device(client, 0, device); }) == 0 &&
           insist([&] { return rm::make_subdevice(client, device, subdevice); }) == 0;
  }
  uint64_t free_bytes() const {
    uint32_t kib = 0;
    const uint32_t status =
        insist([&] { return rm::ask_fb(client, subdevice, true, rm::kFbHeapFree, kib); });
    return status == 0 ? uint64_t{kib} << 10 : 0;
  }
};
Observer observer;

uint64_t cap_kib() {
  const char* const limit = std::getenv("FRACGPU_MEMORY_LIMIT");  // "512MiB"
  return limit != nullptr ? std::strtoull(limit, nullptr, 10) << 10 : ~uint64_t{0};
}

class RequestActor : public Actor {
 public:
  using Actor::Actor;

 protected:
  // True if RM did what was requested. A refusal that RM did not make is the library's, and is
  // wrong if `needed` bytes were free.
  bool done(uint32_t status, const char* what, uint64_t needed = ~uint64_t{0}) {
    const bool was_asked = rm::was_asked();
    if (failed_at_random(status) || (status == rm::kNoMemory && was_asked)) {
      ++tally_.done;
      return false;
    }
    const bool is_good = good(static_cast<int>(status), what, needed);
    rm::was_asked();  // for the free memory
    return is_good;
  }
  Form any_form() { return static_cast<Form>(below(rm::kForms)); }
  Form any_form_of_alloc() { return static_cast<Form>(below(rm::kForms - 1)); }

  // Mostly in device memory.
  rm::Memory any_memory() {
    rm::Memory memory{.form = any_form(),
                      .size = size(),
                      .attributes = static_cast<uint32_t>(below(4)) << rm::kPageSizeShift};
    // RM ignores how long the request says that the parameters are.
    if (chance(10)) memory.parameters_size = static_cast<uint32_t>(below(200));
    if (chance(80)) return memory;
    const bool is_virtual = chance(50);
    if (memory.form == Form::nvos32) {
      if (is_virtual) memory.flags = rm::kFlagVirtual;
      if (!is_virtual) memory.attributes |= (1 + below(3)) << rm::kLocationShift;
    } else {
      memory.object_class = is_virtual ? rm::kVirtualMemory : rm::kSystemMemory;
    }
    return memory;
  }
  static bool is_on_device(const rm::Memory& memory) {
    return memory.object_class == rm::kLocalMemory && (memory.flags & rm::kFlagVirtual) == 0 &&
           (memory.attributes >> rm::kLocationShift & 3) == 0;
  }
};

// Clients of this actor alone, each with its devices and their memory.
class Own : public RequestActor {
 public:
  using RequestActor::RequestActor;

  void move() override {
    if (clients_.empty() || (may_make_clients_ && clients_.size() < 3 && chance(2)))
      return make_client();
    Client& client = clients_[below(clients_.size())];
    if (client.parts.empty() || chance(2)) return make_device(client);
    Part& part = client.parts[below(client.parts.size())];
    const uint64_t draw = below(100);
    if (draw < 4) return make_subdevice(client, part);
    if (draw < 50) return make_memory(client, part);
    if (draw < 88) return free_memory(client);
    if (draw < 91) return free_part(client, part);
    if (draw < 92 && may_make_clients_) return free_client(client);
    ask_sizes(client, part);
  }

  void clear() override {
    while (!may_make_clients_ && !clients_.front().parts.empty())
      free_part(clients_.front(), clients_.front().parts.back());
    while (may_make_clients_ && !clients_.empty()) {
      std::vector<Block>& blocks = clients_.back().blocks;
      if (!blocks.empty() && chance(90)) {
        free_memory(clients_.back());
      } else {
        free_client(clients_.back());
      }
    }
  }

 protected:
  // A device or a subdevice, whose parent is then the device.
  struct Part {
    uint32_t parent, object;
  };
  struct Block {
    uint32_t parent, object;
  };
  struct Client {
    uint32_t handle;
    std::vector<Part> parts;
    std::vector<Block> blocks;
  };

  // One that is there already, which the actor neither makes nor frees.
  void share_client(uint32_t handle) {
    clients_.push_back({.handle = handle, .parts = {}, .blocks = {}});
    may_make_clients_ = false;
  }

 private:
  void make_client() {
    Client client{};
    if (done(rm::make_client(client.handle), "make a client")) clients_.push_back(client);
  }
  void make_device(Client& client) {
    uint32_t device = 0;
    const int number = chance(25) ? -1 : 0;
    if (done(rm::make_device(client.handle, number, device, any_form_of_alloc()), "make a device"))
      client.parts.push_back({client.handle, device});
  }
  void make_subdevice(Client& client, Part part) {
    uint32_t subdevice = 0;
    if (part.parent != client.handle) return;
    if (done(rm::make_subdevice(client.handle, part.object, subdevice, any_form_of_alloc()),
             "make a subdevice"))
      client.parts.push_back({part.object, subdevice});
  }
  void make_memory(Client& client, const Part& part) {
    const rm::Memory memory = any_memory();
    const uint64_t needed =
        is_on_device(memory) ? rm::most_taken(memory.size, memory.attributes) : 0;
    uint32_t object = 0;
    if (done(rm::make_memory(client.handle, part.object, object, memory), "allocate", needed))
      client.blocks.push_back({part.object, object});
  }
  void free_memory(Client& client) {
    if (client.blocks.empty()) return;
    std::swap(client.blocks[below(client.blocks.size())], client.blocks.back());
    const Block block = client.blocks.back();
    const uint32_t status = chance(50)
                                ? rm::free_object(client.handle, block.object)
                                : rm::free_by_heap(client.handle, block.parent, block.object);
    if (done(status, "free memory")) client.blocks.pop_back();
  }
  // RM frees what belongs to it.
  void free_part(Client& client, Part gone) {
    if (!done(rm::free_object(client.handle, gone.object), "free a device")) return;
    const auto is_gone = [&](uint32_t object) {
      return object == gone.object || std::ranges::any_of(client.parts, [&](const Part& part) {
               return part.object == object && part.parent == gone.object;
             });
    };
    std::erase_if(client.blocks, [&](const Block& block) { return is_gone(block.parent); });
    std::erase_if(client.parts, [&](const Part& part) {
      return part.object == gone.object || part.parent == gone.object;
    });
  }
  void free_client(Client& client) {
    if (!done(rm::free_object(client.handle, client.handle), "free a client")) return;
    std::swap(client, clients_.back());
    clients_.pop_back();
  }
  void ask_sizes(const Client& client, const Part& part) {
    static constexpr uint32_t kIndices[] = {rm::kFbRamSize, rm::kFbHeapSize, rm::kFbHeapFree,
                                            rm::kFbBusWidth};
    const uint32_t index = kIndices[below(std::size(kIndices))];
    uint64_t kib = 0;
    if (part.parent == client.handle) {
      uint64_t limit = 0;
      if (!done(rm::ask_limit(client.handle, part.object, limit), "ask for the limit")) return;
      kib = (limit + 1) >> 10;
    } else {
      uint32_t value = 0;
      const bool second_form = chance(50);
      if (!done(rm::ask_fb(client.handle, part.object, second_form, index, value), "ask for sizes"))
        return;
      kib = value;
      if (index == rm::kFbBusWidth) return expect(kib == 4096, "a value that is no size");
      if (index == rm::kFbHeapFree) return expect(kib <= cap_kib(), "the free memory");
    }
    expect(kib == cap_kib(), "the size");
  }
  void expect(bool is_right, const char* what) {
    if (!is_right && tally_.bad.empty()) tally_.bad = std::string(what) + " is wrong";
  }

  std::vector<Client> clients_;
  bool may_make_clients_ = true;
};

// RM gives out the handles of one thread's objects again to another thread at once.
class Shared : public Own {
 public:
  Shared(const World& world, uint64_t seed) : Own(world, seed) { share_client(observer.client); }
};

// Each request may meet an object of another thread's, or none.
class Chaos : public RequestActor {
 public:
  using RequestActor::RequestActor;

  void move() override {
    ++tally_.done;
    const uint32_t client = any_client();
    uint32_t object = any_object(), made = 0;
    switch (below(16)) {
      case 0:
        rm::make_client(made);
        return;
      case 1:
      case 2:
        object = below(4) == 0 ? 0 : kDevices + below(2);
        rm::make_device(client, static_cast<int>(below(3)) - 1, object, any_form_of_alloc());
        return;
      case 3:
      case 4:
        object = below(4) == 0 ? 0 : kSubdevices + below(2);
        rm::make_subdevice(client, kDevices + below(2), object, any_form_of_alloc());
        return;
      case 5:
      case 6:
      case 7:
      case 8:
      case 9:
        object = below(4) == 0 ? 0 : kMemory + below(8);
        rm::make_memory(client, kDevices + below(4), object, any_memory());
        return;
      case 10:
      case 11:
        rm::free_object(client, kMemory + below(8));
        return;
      case 12:
        rm::free_by_heap(client, kDevices, object);
        return;
      case 13:
        rm::free_object(client, below(8) == 0 ? client : object);
        return;
      case 14: {
        uint32_t kib = 0;
        rm::ask_fb(client, any_object(), chance(50), rm::kFbHeapFree, kib);
        return;
      }
      default:
        rm::make_hostile_request(random_, client, kDevices + below(2), kSubdevices + below(2));
    }
  }

  void clear() override {
    for (uint32_t i = 0; i < 64; ++i) {
      const uint32_t client = rm::kFirstClient + i;
      insist([&] { return rm::free_object(client, client); });
    }
  }

 private:
  static constexpr uint32_t kDevices = 0x10, kSubdevices = 0x12, kMemory = 0x20;

  uint32_t any_client() { return rm::kFirstClient + static_cast<uint32_t>(below(3)); }
  uint32_t any_object() {
    const uint32_t first[] = {kDevices, kSubdevices, kMemory, rm::kFirstObject};
    return first[below(std::size(first))] + static_cast<uint32_t>(below(8));
  }
};

// The child has none of its parent's objects, whatever it does to their handles.
class Forking : public RequestActor {
 public:
  using RequestActor::RequestActor;

  void move() override {
    ++tally_.done;
    const uint64_t seed = random_();
    const pid_t child = fork();
    if (child == 0) live(seed);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || (status != 0 && status != SIGKILL))
      tally_.bad = "a child ended with " + std::to_string(status);
  }
  void clear() override {}

 private:
  [[noreturn]] void live(uint64_t seed) {
    random_.seed(seed);
    Chaos chaos(world_, seed);
    for (uint64_t left = below(40); left > 0; --left) chaos.move();
    uint32_t client = 0, device = 0, object = 0;
    if (insist([&] { return rm::make_client(client); }) == 0 &&
        insist([&] { return rm::make_device(client, 0, device); }) == 0) {
      for (uint64_t left = below(4); left > 0; --left, object = 0)
        rm::make_memory(client, device, object, {.size = size()});
    }
    if (chance(50)) kill(getpid(), SIGKILL);
    _exit(0);
  }
};

// Fills what the cap has left in the first move.
class Fill : public RequestActor {
 public:
  using RequestActor::RequestActor;

  void move() override {
    uint32_t object = 0;
    while (good(static_cast<int>(rm::make_memory(observer.client, observer.device, object,
                                                 {.size = world_.max_bytes})),
                "fill", world_.max_bytes)) {
      object = 0;
    }
  }
  void clear() override { rm::free_object(observer.client, observer.client); }
};

class Cuda : public RequestActor {
 public:
  using RequestActor::RequestActor;

  void move() override {
    size_t free = 0, total = 0;
    if (chance(10)) {
      good(cuda("cuMemGetInfo_v2", &free, &total), "cuMemGetInfo");
    } else if (held_.size() < 20 && chance(60)) {
      unsigned long long address = 0;
      if (good(cuda_result("cuMemAlloc_v2", &address, static_cast<size_t>(size())), "cuMemAlloc"))
        held_.push_back(address);
    } else if (!held_.empty()) {
      free_last();
    }
  }
  void clear() override {
    while (!held_.empty()) free_last();
  }

 private:
  static constexpr int kOutOfMemory = 2;
  template <typename... Arguments>
  static int cuda_result(const char* name, Arguments... arguments) {
    const int result = cuda(name, arguments...);
    return result == kOutOfMemory ? static_cast<int>(rm::kNoMemory) : result;
  }
  void free_last() {
    good(cuda("cuMemFree_v2", held_.back()), "cuMemFree");
    held_.pop_back();
  }

  std::vector<unsigned long long> held_;
};

void* cuda_context = nullptr;

}  // namespace

const Api api = {
    .name = "random_requests",
    .begin =
        [](World&) {
          if (has_cuda() &&
              (cuda("cuInit", 0u) != 0 || cuda("cuDevicePrimaryCtxRetain", &cuda_context, 0) != 0))
            return false;
          if (!rm::start_requests() || !observer.start()) return false;
          const char* const failing = std::getenv("RANDOM_REQUESTS_FAILING");
          rm::fail_requests(failing != nullptr ? static_cast<unsigned>(std::atoi(failing)) : 0);
          return true;
        },
    .begin_thread =
        [](const World&) {
          if (has_cuda()) cuda("cuCtxSetCurrent", cuda_context);
        },
    .settle = [] {},
    .free_bytes = [] { return observer.free_bytes(); },
    .out_of_memory = [](int result) { return result == static_cast<int>(rm::kNoMemory); },
    .ask_too_much =
        [] {
          // A refusal makes the library look for dead children too.
          uint32_t object = 0;
          rm::make_memory(observer.client, observer.device, object, {.size = uint64_t{1} << 50});
          if (!has_cuda()) return;
          unsigned long long address = 0;
          cuda("cuCtxSetCurrent", cuda_context);
          cuda("cuMemAlloc_v2", &address, size_t{1} << 50);
        },
};

std::unique_ptr<Actor> make_actor(const std::string& family, const World& world, uint64_t seed) {
  if (family == "own") return std::make_unique<Own>(world, seed);
  if (family == "shared") return std::make_unique<Shared>(world, seed);
  if (family == "chaos") return std::make_unique<Chaos>(world, seed);
  if (family == "forking") return std::make_unique<Forking>(world, seed);
  if (family == "fill") return std::make_unique<Fill>(world, seed);
  if (family == "cuda") return std::make_unique<Cuda>(world, seed);
  return nullptr;
}

}  // namespace client
