// A scriptable CUDA program: cuda_client [--lookup=D] [--ptsz] [--threads=T] [--keep] COMMAND ARGS
// …, run in order. Each command prints one line with its result. "wait" prints "ready" and reads a
// line from stdin, so that tests synchronise without sleeping; "fork" and "exec" take the rest of
// the line.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "driver_api.h"
#include "storm.h"

namespace {

using client::DriverApi;
using client::Pointer;

struct Allocation {
  Pointer address;
  bool old;
  bool live;
};

struct Session {
  DriverApi api{};
  int device = 0;
  std::vector<void*> contexts;
  void* primary = nullptr;
  std::vector<Allocation> allocations;
  client::StormOptions storm;
  char* self = nullptr;
  std::vector<char*> options;  // as given, for a program that replaces this one
};

[[noreturn]] void usage(const char* reason) {
  std::fprintf(stderr,
               "cuda_client: %s\n"
               "usage: cuda_client [--lookup=cudart|dlsym|dlvsym|default|next|deepbind|link] "
               "[--ptsz] [--threads=T]\n"
               "                   [--keep] COMMAND ARGS ...\n"
               "commands: init, initbeside, endopener, count, device N, retain, release, reset, "
               "ctxcreate, ctxdestroy, "
               "alloc SIZE,\n"
               "  alloc1 SIZE, pitch W H ELEMENT, managed SIZE, pinned SIZE, prefetch N, free N, "
               "freeptr HEX, "
               "fill SIZE, "
               "freeall, meminfo,\n"
               "  total, pooled SIZE, module, heap SIZE, heaps SIZE, endbeside SIZE, storm SECONDS "
               "SEED MAXBYTES, "
               "wait, closefrom FD, pid, "
               "abort, fork "
               "COMMANDS, exec COMMANDS\n",
               reason);
  std::exit(2);
}

size_t size_of(const char* text) {
  char* end = nullptr;
  size_t bytes = std::strtoull(text, &end, 0);
  if (std::strcmp(end, "KiB") == 0) return bytes << 10;
  if (std::strcmp(end, "MiB") == 0) return bytes << 20;
  if (std::strcmp(end, "GiB") == 0) return bytes << 30;
  if (*end != '\0' || end == text) usage("bad size");
  return bytes;
}

void report_allocation(Session& session, const char* what, size_t bytes, int rc, Pointer address,
                       bool old) {
  std::printf("%s %zu rc=%d ptr=0x%llx\n", what, bytes, rc, address);
  if (rc == 0) session.allocations.push_back({address, old, true});
}

int free_one(Session& session, Allocation& allocation) {
  const int rc = allocation.old ? session.api.free_old(static_cast<unsigned>(allocation.address))
                                : session.api.free(allocation.address);
  if (rc == 0) allocation.live = false;
  return rc;
}

// Two threads set the same limit at once. Returns the worse result.
int set_heap_by_two(const DriverApi& api, size_t bytes) {
  void* context = nullptr;
  api.get_current(&context);
  int results[2] = {};
  std::vector<std::thread> threads;
  for (int& result : results) {
    threads.emplace_back([&] {
      api.set_current(context);
      result = api.set_limit(2, bytes);  // CU_LIMIT_MALLOC_HEAP_SIZE
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::max(results[0], results[1]);
}

// Another thread ends a context in which it has allocated, while this one has the limits set again
// and again and then looks how much is free. Returns the worst result, and the most that was free.
int end_context_beside(Session& session, size_t bytes, size_t& most) {
  const DriverApi& api = session.api;
  std::atomic<bool> ended{false};
  int of_other = 0;
  void* other = nullptr;
  Pointer address = 0;
  void* own = nullptr;
  int rc = api.get_current(&own);
  if (rc == 0) rc = api.context_create(&other, 0, session.device);
  if (rc == 0) rc = api.allocate(&address, bytes);
  if (rc == 0) rc = api.set_current(own);
  if (rc != 0) return rc;
  std::thread thread([&] {
    of_other = api.context_destroy(other);
    ended = true;
  });
  for (int i = 1; i <= 3 && rc == 0; ++i) rc = api.set_limit(2, (8 - i) << 20);  // lower each time
  while (!ended) {
    size_t free = 0, total = 0;
    rc = std::max(rc, api.memory_info(&free, &total));
    most = std::max(most, free);
  }
  thread.join();
  return std::max(rc, of_other);
}

// Each takes what it needs from the arguments and returns how many words it used.
int memory_command(Session& session, const std::string& name, char** args, int count) {
  const auto need = [&](int words) {
    if (count < words) usage(("too few arguments for " + name).c_str());
  };
  DriverApi& api = session.api;
  Pointer address = 0;
  if (name == "alloc") {
    need(1);
    const size_t bytes = size_of(args[0]);
    const int rc = api.allocate(&address, bytes);
    report_allocation(session, "alloc", bytes, rc, address, false);
    return 1;
  }
  if (name == "alloc1") {
    need(1);
    const size_t bytes = size_of(args[0]);
    unsigned low = 0;
    const int rc = api.allocate_old(&low, static_cast<unsigned>(bytes));
    report_allocation(session, "alloc1", bytes, rc, low, true);
    return 1;
  }
  if (name == "managed") {
    need(1);
    const size_t bytes = size_of(args[0]);
    const int rc = api.allocate_managed(&address, bytes, 1);
    report_allocation(session, "managed", bytes, rc, address, false);
    return 1;
  }
  if (name == "pinned") {
    need(1);
    void* memory = nullptr;
    std::printf("pinned rc=%d\n", api.allocate_host(&memory, size_of(args[0])));
    return 1;
  }
  if (name == "prefetch") {
    need(1);
    const size_t number = size_of(args[0]);
    if (number >= session.allocations.size()) usage("no such allocation");
    const Pointer start = session.allocations[number].address;
    std::printf("prefetch %zu rc=%d\n", number, api.prefetch(start, 1, session.device, nullptr));
    return 1;
  }
  if (name == "pitch") {
    need(3);
    size_t pitch = 0;
    const size_t width = size_of(args[0]), height = size_of(args[1]);
    const int rc = api.allocate_pitch(&address, &pitch, width, height,
                                      static_cast<unsigned>(size_of(args[2])));
    std::printf("pitch %zu %zu rc=%d ptr=0x%llx pitch=%zu\n", width, height, rc, address, pitch);
    if (rc == 0) session.allocations.push_back({address, false, true});
    return 3;
  }
  if (name == "free") {
    need(1);
    const size_t number = size_of(args[0]);
    if (number >= session.allocations.size()) usage("no such allocation");
    std::printf("free %zu rc=%d\n", number, free_one(session, session.allocations[number]));
    return 1;
  }
  if (name == "freeptr") {
    need(1);
    address = std::strtoull(args[0], nullptr, 16);
    std::printf("freeptr 0x%llx rc=%d\n", address, api.free(address));
    return 1;
  }
  if (name == "fill") {
    need(1);
    const size_t bytes = size_of(args[0]);
    unsigned long long made = 0;
    int rc;
    while ((rc = api.allocate(&address, bytes)) == 0) {
      session.allocations.push_back({address, false, true});
      ++made;
    }
    std::printf("fill %zu rc=%d count=%llu\n", bytes, rc, made);
    return 1;
  }
  if (name == "freeall") {
    int first_bad = 0;
    unsigned long long freed = 0;
    for (Allocation& allocation : session.allocations) {
      if (!allocation.live) continue;
      const int rc = free_one(session, allocation);
      if (rc != 0 && first_bad == 0) first_bad = rc;
      if (rc == 0) ++freed;
    }
    std::printf("freeall rc=%d count=%llu\n", first_bad, freed);
    return 0;
  }
  if (name == "meminfo") {
    size_t free = 0, total = 0;
    const int rc = api.memory_info(&free, &total);
    std::printf("meminfo rc=%d free=%zu total=%zu\n", rc, free, total);
    return 0;
  }
  if (name == "pooled") {
    need(1);
    const size_t bytes = size_of(args[0]);
    const int rc = api.allocate_async(&address, bytes, nullptr);
    report_allocation(session, "pooled", bytes, rc, address, false);
    return 1;
  }
  if (name == "synchronize") {
    std::printf("synchronize rc=%d\n", api.synchronize());
    return 0;
  }
  if (name == "module") {
    void* module = nullptr;
    std::printf("module rc=%d\n", api.load_module(&module, "any"));
    return 0;
  }
  if (name == "heap") {
    need(1);
    const size_t bytes = size_of(args[0]);
    const int rc = api.set_limit(2, bytes);  // CU_LIMIT_MALLOC_HEAP_SIZE
    std::printf("heap %zu rc=%d\n", bytes, rc);
    return 1;
  }
  if (name == "limit") {
    need(2);
    const int limit = std::atoi(args[0]);
    const size_t value = size_of(args[1]);
    std::printf("limit %d %zu rc=%d\n", limit, value, api.set_limit(limit, value));
    return 2;
  }
  if (name == "heaps") {
    need(1);
    std::printf("heaps rc=%d\n", set_heap_by_two(api, size_of(args[0])));
    return 1;
  }
  if (name == "endbeside") {
    need(1);
    size_t most = 0;
    const int rc = end_context_beside(session, size_of(args[0]), most);
    std::printf("endbeside rc=%d most=%zu\n", rc, most);
    return 1;
  }
  if (name == "storm") {
    need(3);
    session.storm.seconds = std::strtod(args[0], nullptr);
    session.storm.seed = static_cast<unsigned>(size_of(args[1]));
    session.storm.max_bytes = size_of(args[2]);
    void* context = nullptr;
    api.get_current(&context);
    const client::StormResult result = client::storm(api, context, session.storm);
    for (const Pointer kept : result.kept) session.allocations.push_back({kept, false, true});
    std::printf("storm rc=%d allocations=%llu frees=%llu refused=%llu kept=%zu\n", result.bad,
                result.allocations, result.frees, result.refused, result.kept.size());
    if (result.bad != 0) {
      std::fflush(stdout);
      std::exit(1);
    }
    return 3;
  }
  return -1;
}

// A thread that opens the driver and stays until it is told to end.
class Opener {
 public:
  int open(const DriverApi& api) {
    int rc = -1;
    std::atomic<bool> opened{false};
    thread_ = std::thread([&api, &rc, &opened, this] {
      rc = api.init(0);
      opened = true;
      opened.notify_one();
      ended_.wait(false);
    });
    opened.wait(false);
    return rc;
  }
  void end() {
    ended_ = true;
    ended_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
  std::atomic<bool> ended_{false};
};
Opener& opener() {
  static auto* const only = new Opener;
  return *only;
}

int context_command(Session& session, const std::string& name, char** args, int count) {
  DriverApi& api = session.api;
  void* context = nullptr;
  if (name == "init") {
    std::printf("init rc=%d\n", api.init(0));
  } else if (name == "initbeside") {
    std::printf("initbeside rc=%d\n", opener().open(api));
  } else if (name == "endopener") {
    opener().end();
    std::printf("endopener rc=0\n");
  } else if (name == "count") {
    int devices = -1;
    const int rc = api.device_count(&devices);
    std::printf("count rc=%d devices=%d\n", rc, devices);
  } else if (name == "device") {
    if (count < 1) usage("device needs a number");
    const int rc = api.device_get(&session.device, std::atoi(args[0]));
    std::printf("device %s rc=%d\n", args[0], rc);
    return 1;
  } else if (name == "retain") {
    const int rc = api.retain(&context, session.device);
    const int set = rc == 0 ? api.set_current(context) : 0;
    std::printf("retain rc=%d\n", rc != 0 ? rc : set);
  } else if (name == "release") {
    std::printf("release rc=%d\n", api.release(session.device));
  } else if (name == "reset") {
    std::printf("reset rc=%d\n", api.reset(session.device));
  } else if (name == "ctxcreate") {
    const int rc = api.context_create(&context, 0, session.device);
    if (rc == 0) session.contexts.push_back(context);
    std::printf("ctxcreate rc=%d\n", rc);
  } else if (name == "ctxdestroy") {
    if (session.contexts.empty()) usage("no context was created");
    std::printf("ctxdestroy rc=%d\n", api.context_destroy(session.contexts.back()));
    session.contexts.pop_back();
  } else if (name == "total") {
    size_t bytes = 0;
    const int rc = api.device_total(&bytes, session.device);
    std::printf("total rc=%d bytes=%zu\n", rc, bytes);
  } else {
    return -1;
  }
  return 0;
}

int run(Session& session, char** args, int count);

// The two commands that take all the words after them.
[[noreturn]] void replace(Session& session, char** args) {
  std::vector<char*> words{session.self};
  words.insert(words.end(), session.options.begin(), session.options.end());
  for (; *args != nullptr; ++args) words.push_back(*args);
  words.push_back(nullptr);
  std::fflush(stdout);
  execv("/proc/self/exe", words.data());
  std::perror("exec");
  std::_Exit(1);
}

int in_child(Session& session, char** args, int count) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int code = run(session, args, count);
    std::fflush(stdout);
    std::_Exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  std::printf("fork pid=%d status=%d\n", static_cast<int>(child), status);
  return status == 0 ? 0 : 1;
}

int run(Session& session, char** args, int count) {
  for (int i = 0; i < count;) {
    const std::string name = args[i++];
    int used = context_command(session, name, args + i, count - i);
    if (used < 0) used = memory_command(session, name, args + i, count - i);
    if (used < 0) {
      used = 0;
      if (name == "wait") {
        std::puts("ready");
        std::fflush(stdout);
        char line[256];
        // The end of input lets go too, so that a test that fails leaves nobody behind.
        if (std::fgets(line, sizeof line, stdin) == nullptr) return 0;
      } else if (name == "closefrom") {
        if (i >= count) usage("closefrom needs a number");
        closefrom(std::atoi(args[i]));
        std::printf("closefrom %s\n", args[i]);
        used = 1;
      } else if (name == "pid") {
        std::printf("pid %d\n", static_cast<int>(getpid()));
      } else if (name == "abort") {
        std::fflush(stdout);
        std::abort();
      } else if (name == "fork") {
        return in_child(session, args + i, count - i);
      } else if (name == "exec") {
        replace(session, args + i);
      } else {
        usage(("unknown command '" + name + "'").c_str());
      }
    }
    std::fflush(stdout);
    i += used;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Session session;
  session.self = argv[0];
  client::LookupOptions options;
#ifdef CLIENT_LINKED
  options.lookup = "link";
#else
  options.lookup = "cudart";
#endif
  int i = 1;
  for (; i < argc && std::strncmp(argv[i], "--", 2) == 0; ++i) {
    const std::string option = argv[i];
    session.options.push_back(argv[i]);
    if (option.rfind("--lookup=", 0) == 0) {
      options.lookup = option.substr(9);
    } else if (option == "--ptsz") {
      options.per_thread = true;
    } else if (option == "--keep") {
      session.storm.keep = true;
    } else if (option.rfind("--threads=", 0) == 0) {
      session.storm.threads = std::atoi(option.c_str() + 10);
    } else {
      usage("unknown option");
    }
  }
  if (i == argc) usage("no command");
  std::string error;
  if (!client::look_up(options, &session.api, &error)) {
    std::fprintf(stderr, "cuda_client: %s: %s\n", options.lookup.c_str(), error.c_str());
    return 3;
  }
  return run(session, argv + i, argc - i);
}
