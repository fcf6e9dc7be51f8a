// A scriptable HIP program: hip_program [--lookup=D] COMMAND ARGS …, run in order. Each command
// prints one line with its result. "wait" prints "ready" and reads a line from stdin, of commands
// to run next, so that tests synchronise without sleeping.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "code_image.h"
#include "hip_api.h"
#include "token.h"

namespace {

using client::hex;
using client::read_hex;
using client::hip::call;
using client::hip::IpcHandle;
using client::hip::open_ipc;

[[noreturn]] void usage(const std::string& reason) {
  std::fprintf(stderr, "hip_program: %s\n", reason.c_str());
  std::exit(2);
}

size_t size_of(const std::string& text) {
  char* end = nullptr;
  const size_t number = std::strtoull(text.c_str(), &end, 0);
  const std::string unit = end;
  if (unit == "KiB") return number << 10;
  if (unit == "MiB") return number << 20;
  if (unit == "GiB") return number << 30;
  if (!unit.empty() || end == text.c_str()) usage("bad size " + text);
  return number;
}

struct Extent {
  size_t width, height, depth;
};
struct Pool {
  uint64_t handle;
};
struct Agent {
  uint64_t handle;
};

// What was allocated, and how it is freed.
struct Held {
  void* pointer;
  std::function<int()> free;
};

struct Session {
  std::vector<Held> held;
  void* stream = nullptr;
  std::vector<std::string> args;
  size_t at = 0;

  std::string word() {
    if (at == args.size()) usage("too few arguments");
    return args[at++];
  }
  size_t size() { return size_of(word()); }
};

int keep(Session& session, const char* what, size_t bytes, int rc, void* pointer,
         std::function<int()> free) {
  std::printf("%s %zu rc=%d ptr=%p\n", what, bytes, rc, pointer);
  // HIP 5.2 says success of an asynchronous allocation that failed.
  if (rc == 0 && pointer != nullptr) session.held.push_back({pointer, std::move(free)});
  return rc;
}

void* stream_of(Session& session) {
  // HIP 5.2 crashes in hipMallocAsync on the null stream.
  if (session.stream == nullptr) call("hipStreamCreate", &session.stream);
  return session.stream;
}

int free_held(Session& session, size_t number) {
  if (number >= session.held.size()) usage("no such allocation");
  const int rc = session.held[number].free();
  if (rc == 0) session.held[number].free = [] { return 0; };
  return rc;
}

// HSA's n-th GPU agent, by HSA itself.
Agent gpu_agent(int wanted) {
  static std::vector<Agent> agents;
  agents.clear();
  const auto visit = +[](Agent agent, void*) {
    int type = 0;
    call("hsa_agent_get_info", agent, 17, static_cast<void*>(&type));
    if (type == 1) agents.push_back(agent);
    return 0;
  };
  call("hsa_iterate_agents", visit, static_cast<void*>(nullptr));
  if (wanted >= static_cast<int>(agents.size())) usage("no such GPU agent");
  return agents[static_cast<size_t>(wanted)];
}

// A pool of that agent's memory: the first, or the one after that, which is the same memory in
// blocks of its own.
Pool gpu_pool(int wanted, size_t which = 0) {
  static std::vector<Pool> pools;
  pools.clear();
  const auto take = +[](Pool candidate, void*) {
    int segment = -1;
    call("hsa_amd_memory_pool_get_info", candidate, 0, static_cast<void*>(&segment));
    if (segment == 0) pools.push_back(candidate);
    return 0;
  };
  call("hsa_amd_agent_iterate_memory_pools", gpu_agent(wanted), take, static_cast<void*>(nullptr));
  if (which >= pools.size()) usage("no such pool");
  return pools[which];
}

// While the runtime is in the call that frees the last part of a block, it lets go of that block
// and another pool gets its addresses: in a callback of the runtime's, or meanwhile in another
// thread.
struct Swap {
  static constexpr size_t kPart = 3u << 19;  // two of them do not fit in a block
  static constexpr int kParts = 8;

  Pool from, to;
  void* parts[kParts] = {};
  std::vector<void*> after;
  bool in_thread = false;
  bool swapped = false;

  static uint64_t block_of(void* part) { return reinterpret_cast<uint64_t>(part) >> 21; }

  void make(void* freed) {
    for (int i = 1; i < kParts; ++i) call("hsa_amd_memory_pool_free", parts[i]);
    while (!swapped && after.size() < kParts) {
      void* part = nullptr;
      if (call("hsa_amd_memory_pool_allocate", to, kPart, 0u, &part) != 0) return;
      after.push_back(part);
      swapped = block_of(part) == block_of(freed);
    }
  }
  static void at_free(void* freed, void* data) {
    auto& swap = *static_cast<Swap*>(data);
    if (!swap.in_thread) return swap.make(freed);
    std::thread([&] { swap.make(freed); }).join();
  }
};

using Command = std::function<void(Session&)>;

std::map<std::string, Command> allocations() {
  std::map<std::string, Command> all;
  all["malloc"] = [](Session& s) {
    const size_t bytes = s.size();
    void* p = nullptr;
    const int rc = call("hipMalloc", &p, bytes);
    keep(s, "malloc", bytes, rc, p, [p] { return call("hipFree", p); });
  };
  all["flags"] = [](Session& s) {
    const size_t bytes = s.size();
    void* p = nullptr;
    const int rc = call("hipExtMallocWithFlags", &p, bytes, 1u);  // fine-grained
    keep(s, "flags", bytes, rc, p, [p] { return call("hipFree", p); });
  };
  all["managed"] = [](Session& s) {
    const size_t bytes = s.size();
    void* p = nullptr;
    const int rc = call("hipMallocManaged", &p, bytes, 1u);
    keep(s, "managed", bytes, rc, p, [p] { return call("hipFree", p); });
  };
  all["host"] = [](Session& s) {
    const size_t bytes = s.size();
    void* p = nullptr;
    const int rc = call("hipHostMalloc", &p, bytes, 0u);
    keep(s, "host", bytes, rc, p, [p] { return call("hipHostFree", p); });
  };
  all["async"] = [](Session& s) {
    const size_t bytes = s.size();
    void* p = nullptr;
    void* const stream = stream_of(s);
    const int rc = call("hipMallocAsync", &p, bytes, stream);
    keep(s, "async", bytes, rc, p, [p, stream] {
      const int freed = call("hipFreeAsync", p, stream);
      return freed != 0 ? freed : call("hipStreamSynchronize", stream);
    });
  };
  all["pitch"] = [](Session& s) {
    const size_t width = s.size(), height = s.size();
    void* p = nullptr;
    size_t pitch = 0;
    const int rc = call("hipMallocPitch", &p, &pitch, width, height);
    keep(s, "pitch", width * height, rc, p, [p] { return call("hipFree", p); });
  };
  all["array"] = [](Session& s) {
    const size_t width = s.size(), height = s.size();
    const int format[5] = {32, 0, 0, 0, 2};  // one float
    void* array = nullptr;
    const int rc =
        call("hipMallocArray", &array, static_cast<const void*>(format), width, height, 0u);
    keep(s, "array", width * height * 4, rc, array,
         [array] { return call("hipFreeArray", array); });
  };
  all["vmm"] = [](Session& s) {
    const size_t bytes = s.size();
    int properties[8] = {1, 0, 1, 0};  // pinned, no handle type, on a device, its number
    call("hipGetDevice", &properties[3]);
    void* handle = nullptr;
    const int rc = call("hipMemCreate", &handle, bytes, static_cast<const void*>(properties), 0ull);
    void* p = nullptr;
    if (rc == 0) {
      call("hipMemAddressReserve", &p, bytes, size_t{0}, static_cast<void*>(nullptr), 0ull);
      call("hipMemMap", p, bytes, size_t{0}, handle, 0ull);
      // The mapping keeps it.
      call("hipMemRelease", handle);
    }
    keep(s, "vmm", bytes, rc, p, [p, bytes] {
      const int unmapped = call("hipMemUnmap", p, bytes);
      call("hipMemAddressFree", p, bytes);
      return unmapped;
    });
  };
  const auto allocate_in = [](Session& s, const char* what, int device, size_t which) {
    const size_t bytes = s.size();
    call("hsa_init");
    void* p = nullptr;
    const int rc = call("hsa_amd_memory_pool_allocate", gpu_pool(device, which), bytes, 0u, &p);
    keep(s, what, bytes, rc, p, [p] { return call("hsa_amd_memory_pool_free", p); });
  };
  all["hsa"] = [=](Session& s) { allocate_in(s, "hsa", static_cast<int>(s.size()), 0); };
  all["inpool"] = [=](Session& s) { allocate_in(s, "inpool", 0, s.size()); };
  // A queue of the first GPU, by HSA; its kernels' threads have so many bytes of their own.
  all["queue"] = [](Session& s) {
    const size_t per_thread = s.size();
    call("hsa_init");
    void* queue = nullptr;
    void* const none = nullptr;
    const int rc = call("hsa_queue_create", gpu_agent(0), 1024u, 0u, none, none,
                        per_thread != 0 ? static_cast<unsigned>(per_thread) : ~0u, 0u, &queue);
    keep(s, "queue", per_thread, rc, queue, [queue] { return call("hsa_queue_destroy", queue); });
  };
  all["stream"] = [](Session& s) {
    void* stream = nullptr;
    const int rc = call("hipStreamCreate", &stream);
    keep(s, "stream", 0, rc, stream, [stream] { return call("hipStreamDestroy", stream); });
  };
  // Code with so many bytes of memory.
  all["module"] = [](Session& s) {
    const size_t bytes = s.size();
    const std::string image = client::amd_code_object(bytes);
    void* module = nullptr;
    const int rc = call("hipModuleLoadData", &module, static_cast<const void*>(image.data()));
    keep(s, "module", bytes, rc, module, [module] { return call("hipModuleUnload", module); });
  };
  // Ends with the part freed that lies where the first pool's block was.
  all["swapblocks"] = [](Session& s) {
    static Swap swap;
    const size_t from = s.size();
    swap.in_thread = s.word() == "thread";
    call("hsa_init");
    swap.from = gpu_pool(0, from);
    swap.to = gpu_pool(0, 1 - from);
    int rc = 0;
    for (void*& part : swap.parts) {
      rc += call("hsa_amd_memory_pool_allocate", swap.from, Swap::kPart, 0u, &part);
    }
    rc += call("hsa_amd_register_deallocation_callback", swap.parts[0], &Swap::at_free,
               static_cast<void*>(&swap));
    rc += call("hsa_amd_memory_pool_free", swap.parts[0]);
    if (swap.swapped) rc += call("hsa_amd_memory_pool_free", swap.after.back());
    std::printf("swapblocks rc=%d swapped=%d\n", rc, swap.swapped ? 1 : 0);
  };
  all["open"] = [](Session& s) {
    IpcHandle handle{};
    read_hex(s.word(), handle.bytes);
    void* p = nullptr;
    const int rc = open_ipc(handle, &p);
    keep(s, "open", 0, rc, p, [p] { return call("hipIpcCloseMemHandle", p); });
  };
  return all;
}

std::map<std::string, Command> others() {
  std::map<std::string, Command> all;
  all["init"] = [](Session&) { std::printf("init rc=%d\n", call("hipInit", 0u)); };
  all["count"] = [](Session&) {
    int count = -1;
    const int rc = call("hipGetDeviceCount", &count);
    std::printf("count rc=%d devices=%d\n", rc, count);
  };
  all["device"] = [](Session& s) {
    const int device = static_cast<int>(s.size());
    s.stream = nullptr;  // it is the other device's
    std::printf("device %d rc=%d\n", device, call("hipSetDevice", device));
  };
  all["free"] = [](Session& s) {
    const size_t number = s.size();
    std::printf("free %zu rc=%d\n", number, free_held(s, number));
  };
  all["freeall"] = [](Session& s) {
    int bad = 0;
    for (size_t i = 0; i < s.held.size(); ++i) {
      if (const int rc = free_held(s, i); rc != 0) bad = rc;
    }
    s.held.clear();
    std::printf("freeall rc=%d\n", bad);
  };
  all["fill"] = [](Session& s) {
    const size_t bytes = s.size();
    int rc = 0, count = 0;
    for (void* p = nullptr; (rc = call("hipMalloc", &p, bytes)) == 0; ++count) {
      s.held.push_back({p, [p] { return call("hipFree", p); }});
    }
    std::printf("fill %zu rc=%d count=%d\n", bytes, rc, count);
  };
  // Allocates in one way ("async 1MiB") again and again, until that is refused.
  all["fillwith"] = [](Session& s) {
    const std::string way = s.word(), size = s.word();
    const Command allocate = allocations().at(way);
    const size_t before = s.held.size();
    size_t count = 0;
    do {
      ++count;
      s.args.insert(s.args.begin() + static_cast<std::ptrdiff_t>(s.at), size);
      allocate(s);
    } while (s.held.size() == before + count);
    std::printf("fillwith %s %s count=%zu\n", way.c_str(), size.c_str(), count - 1);
  };
  all["fillthreads"] = [](Session& s) {
    std::vector<std::thread> threads(s.size());
    const size_t bytes = s.size();
    std::atomic<int> count{0};
    for (std::thread& thread : threads) {
      thread = std::thread([&] {
        for (void* p = nullptr; call("hipMalloc", &p, bytes) == 0;) ++count;
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("fillthreads %zu count=%d\n", bytes, count.load());
  };
  all["meminfo"] = [](Session&) {
    size_t free = 0, total = 0;
    const int rc = call("hipMemGetInfo", &free, &total);
    std::printf("meminfo rc=%d free=%zu total=%zu\n", rc, free, total);
  };
  // The last answer of so many calls, without a word in between.
  all["meminfos"] = [](Session& s) {
    size_t free = 0, total = 0;
    int rc = 0;
    for (size_t left = s.size(); left > 0; --left) rc += call("hipMemGetInfo", &free, &total);
    std::printf("meminfos rc=%d free=%zu total=%zu\n", rc, free, total);
  };
  // The same by HSA: what it says is available (0xa015) of the first GPU, since 5.7.
  all["available"] = [](Session& s) {
    uint64_t bytes = 0;
    int rc = 0;
    const Agent agent = gpu_agent(0);
    for (size_t left = s.size(); left > 0; --left) {
      rc += call("hsa_agent_get_info", agent, 0xa015, static_cast<void*>(&bytes));
    }
    std::printf("available rc=%d bytes=%llu\n", rc, static_cast<unsigned long long>(bytes));
  };
  all["total"] = [](Session& s) {
    size_t bytes = 0;
    const int rc = call("hipDeviceTotalMem", &bytes, static_cast<int>(s.size()));
    std::printf("total rc=%d bytes=%zu\n", rc, bytes);
  };
  const auto properties = [](const char* name, size_t offset) {
    return [=](Session& s) {
      std::vector<char> bytes(4096);
      const int rc = call(name, static_cast<void*>(bytes.data()), static_cast<int>(s.size()));
      size_t total = 0;
      std::memcpy(&total, bytes.data() + offset, sizeof total);
      std::printf("props rc=%d bytes=%zu\n", rc, total);
    };
  };
  all["props"] = properties("hipGetDeviceProperties", 256);
  all["propsold"] = properties("hipGetDevicePropertiesR0000", 256);
  all["props6"] = properties("hipGetDevicePropertiesR0600", 288);
  all["ptrinfo"] = [](Session& s) {
    size_t bytes = 0;
    const int rc = call("hipMemPtrGetInfo", s.held.at(s.size()).pointer, &bytes);
    std::printf("ptrinfo rc=%d bytes=%zu\n", rc, bytes);
  };
  all["hsainfo"] = [](Session& s) {
    const Pool pool = gpu_pool(static_cast<int>(s.size()));
    size_t size = 0, largest = 0;
    const int rc = call("hsa_amd_memory_pool_get_info", pool, 2, static_cast<void*>(&size));
    call("hsa_amd_memory_pool_get_info", pool, 16, static_cast<void*>(&largest));
    std::printf("hsainfo rc=%d size=%zu largest=%zu\n", rc, size, largest);
  };
  all["export"] = [](Session& s) {
    IpcHandle handle{};
    const int rc = call("hipIpcGetMemHandle", &handle, s.held.at(s.size()).pointer);
    std::printf("export rc=%d handle=%s\n", rc, hex(handle.bytes).c_str());
  };
  // Calls a function without parameters in a further library.
  all["second"] = [](Session& s) {
    const std::string path = s.word(), name = s.word();
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const found = library != nullptr ? dlsym(library, name.c_str()) : nullptr;
    std::printf("second rc=%d\n", found != nullptr ? reinterpret_cast<int (*)()>(found)() : -1);
  };
  all["reset"] = [](Session&) { std::printf("reset rc=%d\n", call("hipDeviceReset")); };
  all["pid"] = [](Session&) { std::printf("pid %d\n", static_cast<int>(getpid())); };
  all["wait"] = [](Session& s) {
    std::puts("ready");
    std::fflush(stdout);
    char line[512];
    // The end of input lets go too, so that a test that fails leaves nobody behind.
    if (std::fgets(line, sizeof line, stdin) == nullptr) std::_Exit(0);
    std::istringstream words(line);
    const std::vector<std::string> next{std::istream_iterator<std::string>(words), {}};
    s.args.insert(s.args.begin() + static_cast<std::ptrdiff_t>(s.at), next.begin(), next.end());
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  int first = 1;
  for (; first < argc && std::strncmp(argv[first], "--", 2) == 0; ++first) {
    const std::string option = argv[first];
    if (option.rfind("--lookup=", 0) != 0) usage("unknown option " + option);
    client::hip::choose_lookup(option.substr(9));
  }
  std::map<std::string, Command> commands = allocations();
  commands.merge(others());
  Session session;
  session.args.assign(argv + first, argv + argc);
  if (session.args.empty()) usage("no command");
  while (session.at < session.args.size()) {
    const std::string name = session.word();
    const auto command = commands.find(name);
    if (command == commands.end()) usage("unknown command " + name);
    command->second(session);
    std::fflush(stdout);
  }
  // The runtime's own exit handlers are not what is tested here.
  std::_Exit(0);
}
