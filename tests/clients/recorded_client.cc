// recorded_client: allocates GPU memory from functions of every kind, and prints for each where it
// was called from, as the C library's own backtrace() has it: "KIND OBJECT+OFFSET ...", the
// innermost first. For tests of recorded call stacks.
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

namespace {

using Pointer = unsigned long long;
int (*allocate)(Pointer*, size_t) = nullptr;
int (*set_context)(void*) = nullptr;
void* context = nullptr;

// Of the call before each address.
std::string place_of(void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return "?";
  char text[600];
  std::snprintf(text, sizeof text, "%s+%lx", info.dli_fname,
                reinterpret_cast<unsigned long>(address) - map->l_addr - 1);
  return text;
}

[[gnu::noinline]] void make(const char* kind) {
  Pointer pointer = 0;
  // Before and after the call the stack below this function is the same.
  void* frames[100];
  const int count = backtrace(frames, 100);
  const int result = allocate(&pointer, 4u << 20);
  std::printf("%s %d", kind, result);
  for (int i = 1; i < count; ++i) std::printf(" %s", place_of(frames[i]).c_str());
  std::printf("\n");
}

[[gnu::noinline]] int recurse(int depth, const char* kind) {
  if (depth == 0) {
    make(kind);
    return 1;
  }
  volatile int kept = recurse(depth - 1, kind);
  return kept + 1;
}

[[gnu::noinline]] int with_alloca(size_t size, const char* kind) {
  auto* const bytes = static_cast<volatile char*>(alloca(size));
  bytes[size / 2] = 1;
  make(kind);
  return bytes[size / 2];
}

[[gnu::noinline]] int aligned(const char* kind) {
  alignas(256) volatile char bytes[512];
  bytes[3] = 2;
  make(kind);
  return bytes[3] + static_cast<int>(reinterpret_cast<uintptr_t>(bytes) % 256);
}

int compare(const void* one, const void* other) {
  static bool done = false;
  if (!done) {
    done = true;
    make("qsort");
  }
  return *static_cast<const int*>(one) - *static_cast<const int*>(other);
}

void on_signal(int) {
  make("signal");
}

struct Thrower {
  ~Thrower() { make("unwinding"); }
};

[[gnu::noinline]] void throw_through() {
  const Thrower thrower;
  throw 1;
}

// As CPython makes them for perf: code without unwinding tables that calls a function, one form for
// each of its versions, and tells its name in /tmp/perf-PID.map.
int call_through_trampolines() {
  const unsigned char with_rsp[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd6,
                                    0x48, 0x83, 0xc4, 0x08, 0xc3};
  const unsigned char with_rbp[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
  auto* const code = static_cast<unsigned char*>(
      mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (code == MAP_FAILED) return 3;
  std::memcpy(code, with_rsp, sizeof with_rsp);
  std::memcpy(code + 64, with_rbp, sizeof with_rbp);
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  FILE* const map = std::fopen(path.c_str(), "w");
  if (map == nullptr) return 3;
  std::fprintf(
      map, "not a line of it\n%lx %zx py::inner:/srv/train.py\n%lx %zx py::outer:/srv/train.py\n",
      reinterpret_cast<unsigned long>(code), sizeof with_rsp,
      reinterpret_cast<unsigned long>(code + 64), sizeof with_rbp);
  std::fclose(map);
  // Arguments: of the function that is called, and the function.
  using Trampoline = void (*)(void*, void (*)(void*));
  static Trampoline inner, outer;
  inner = reinterpret_cast<Trampoline>(code);
  outer = reinterpret_cast<Trampoline>(code + 64);
  outer(nullptr, [](void*) {
    inner(nullptr, [](void*) { make("jit"); });
    asm volatile("");
  });
  asm volatile("");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 2;
  const auto find = [&](const char* name) { return dlsym(driver, name); };
  reinterpret_cast<int (*)(unsigned)>(find("cuInit"))(0);
  reinterpret_cast<int (*)(void**, unsigned, int)>(find("cuCtxCreate_v2"))(&context, 0, 0);
  set_context = reinterpret_cast<int (*)(void*)>(find("cuCtxSetCurrent"));
  allocate = reinterpret_cast<int (*)(Pointer*, size_t)>(find("cuMemAlloc_v2"));

  if (argc > 1 && std::strcmp(argv[1], "jit") == 0) return call_through_trampolines();
  if (argc > 2 && std::strcmp(argv[1], "deep") == 0) return recurse(std::atoi(argv[2]), "deep") < 0;
  make("plain");
  recurse(20, "deep");
  with_alloca(static_cast<size_t>(std::rand() % 500 + 100), "alloca");
  aligned("aligned");
  const std::function<void()> function = [] { make("function"); };
  function();
  int numbers[] = {3, 1, 2};
  std::qsort(numbers, 3, sizeof numbers[0], compare);
  std::thread([] {
    set_context(context);
    make("thread");
  }).join();
  signal(SIGUSR1, on_signal);
  raise(SIGUSR1);
  try {
    throw_through();
  } catch (int) {
    make("caught");
  }
  // The same places once more: now every rule is known.
  recurse(20, "deep");
  return 0;
}
