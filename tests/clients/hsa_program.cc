// A scriptable program over the HSA runtime alone: hsa_program COMMAND ARGS …, run in order on the
// first GPU. Each command prints one line with its result; what it makes is held under the next
// number, from 0. "wait" prints "ready" and reads a line from stdin, of commands to run next.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "code_image.h"
#include "hip_api.h"
#include "hsa_dispatch.h"
#include "token.h"

namespace {

using client::hip::call;

struct Handle {
  uint64_t handle;
};
struct Fabric {
  unsigned char bytes[16];
};
struct Ipc {
  unsigned char bytes[32];
};
// hsa_amd_queue_create_desc_t, as far as it is used.
struct Description {
  uint16_t version = 1, flags = 0;
  uint8_t engine = 0, reserved[3] = {};
  uint32_t bytes = 65536, priority = 1;
  void *callback = nullptr, *data = nullptr, *queue = nullptr;
  const void* mask = nullptr;
  uint32_t type = 0, private_segment = UINT32_MAX, more[4] = {};
  unsigned char rest[24] = {};
};
static_assert(sizeof(Description) == 96);

struct Held {
  void* pointer = nullptr;
  uint64_t handle = 0;
  size_t bytes = 0;
};

std::vector<std::string> arguments;
size_t next_argument = 0;
std::vector<Held> held;
Handle agent{}, processor{}, pool{};

[[noreturn]] void usage(const std::string& reason) {
  std::fprintf(stderr, "hsa_program: %s\n", reason.c_str());
  std::exit(2);
}

std::string word() {
  if (next_argument == arguments.size()) usage("too few arguments");
  return arguments[next_argument++];
}
size_t size() {
  const std::string text = word();
  char* end = nullptr;
  const size_t number = std::strtoull(text.c_str(), &end, 0);
  const std::string unit = end;
  return unit == "MiB" ? number << 20 : unit == "KiB" ? number << 10 : number;
}
Held& that() {
  const size_t number = size();
  if (number >= held.size()) usage("nothing is held under that number");
  return held[number];
}

int print(const char* what, int rc) {
  std::printf("%s rc=%d\n", what, rc);
  return rc;
}
void keep(const char* what, int rc, const Held& made) {
  if (print(what, rc) == 0) held.push_back(made);
}

void start() {
  const int rc = call("hsa_init");
  const auto visit = +[](Handle candidate, void*) {
    int type = 0;
    call("hsa_agent_get_info", candidate, 17, static_cast<void*>(&type));
    if (type == 1 && agent.handle == 0) agent = candidate;
    if (type == 0 && processor.handle == 0) processor = candidate;
    return 0;
  };
  call("hsa_iterate_agents", visit, static_cast<void*>(nullptr));
  const auto take = +[](Handle candidate, void*) {
    int segment = -1;
    call("hsa_amd_memory_pool_get_info", candidate, 0, static_cast<void*>(&segment));
    if (segment == 0 && pool.handle == 0) pool = candidate;
    return 0;
  };
  call("hsa_amd_agent_iterate_memory_pools", agent, take, static_cast<void*>(nullptr));
  print("init", rc);
}

// Starts the runtime while another thread shuts it down.
void restart() {
  std::thread other([] {
    usleep(100'000);
    print("shutdown", call("hsa_shut_down"));
  });
  const int rc = call("hsa_init");
  other.join();
  print("restart", rc);
}

void allocate() {
  Held made;
  made.bytes = size();
  const int rc = call("hsa_amd_memory_pool_allocate", pool, made.bytes, 0u, &made.pointer);
  keep("alloc", rc, made);
}

// As many queues as are asked for, in one call. Prints how many there are then.
void queues() {
  static std::vector<Description> made;
  made.assign(size(), {});
  const int rc =
      call("hsa_amd_queue_create", agent, made.data(), static_cast<uint32_t>(made.size()));
  int count = 0;
  for (const Description& one : made) {
    if (one.queue == nullptr) continue;
    ++count;
    held.push_back({one.queue});
  }
  std::printf("queues rc=%d count=%d\n", rc, count);
}

void counted() {
  Held made;
  void* const none = nullptr;
  const int rc =
      call("hsa_amd_counted_queue_acquire", agent, 0, 1, none, none, uint64_t{0}, &made.pointer);
  keep("counted", rc, made);
}

void copying() {
  Held made;
  const int rc = call("hsa_amd_sdma_queue_create", agent, 0u, 1, uint64_t{0},
                      static_cast<void*>(&made.handle));
  keep("copying", rc, made);
}

// Memory behind a handle, and its number for a fabric.
void create() {
  Held made;
  made.bytes = size();
  const int rc = call("hsa_amd_vmem_handle_create", pool, made.bytes, 1, uint64_t{0}, &made.handle);
  keep("create", rc, made);
}
void fabric() {
  Fabric out{};
  const int rc =
      call("hsa_amd_vmem_export_fabric_handle", &out, Handle{that().handle}, uint64_t{0});
  std::printf("fabric rc=%d handle=%s\n", rc, client::hex(out.bytes).c_str());
}
void import_fabric() {
  Fabric given{};
  client::read_hex(word(), given.bytes);
  Held made;
  keep("importfabric", call("hsa_amd_vmem_import_fabric_handle", given, &made.handle), made);
}

void export_ipc() {
  const Held& what = that();
  Ipc out{};
  const int rc = call("hsa_amd_ipc_memory_create", what.pointer, what.bytes, &out);
  std::printf("ipc rc=%d handle=%s\n", rc, client::hex(out.bytes).c_str());
}
void attach() {
  Ipc given{};
  Held made;
  client::read_hex(word(), given.bytes);
  made.bytes = size();
  const int rc = call("hsa_amd_ipc_memory_attach", static_cast<const void*>(&given), made.bytes, 0u,
                      static_cast<const void*>(nullptr), &made.pointer);
  keep("attach", rc, made);
}

void keep_descriptor(const char* what, int rc, int file) {
  std::printf("%s rc=%d pid=%d fd=%d\n", what, rc, getpid(), file);
  if (rc == 0) held.push_back({.handle = static_cast<uint64_t>(file)});
}

// Puts memory from the first or from a later byte on into a descriptor, and opens it here by that,
// as another process would.
void export_from(const char* what_for, const Held& what, size_t first) {
  const void* const from = static_cast<char*>(what.pointer) + first;
  const size_t bytes = what.bytes - first;
  int file = -1;
  uint64_t offset = 0;
  const bool is_new = client::hip::function("hsa_amd_portable_export_dmabuf_v2") != nullptr;
  const int rc =
      is_new ? call("hsa_amd_portable_export_dmabuf_v2", from, bytes, &file, &offset, uint64_t{0})
             : call("hsa_amd_portable_export_dmabuf", from, bytes, &file, &offset);
  keep_descriptor(what_for, rc, file);
}
// The same of memory behind a handle.
void handle_descriptor() {
  int file = -1;
  const int rc =
      call("hsa_amd_vmem_export_shareable_handle", &file, Handle{that().handle}, uint64_t{0});
  keep_descriptor("handledescriptor", rc, file);
}
// Takes the descriptor of another process.
void take_descriptor() {
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, static_cast<int>(size()), 0));
  const auto file =
      static_cast<int>(syscall(SYS_pidfd_getfd, process, static_cast<int>(size()), 0));
  close(process);
  keep_descriptor("takedescriptor", file < 0 ? errno : 0, file);
}
void descriptor() {
  export_from("descriptor", that(), 0);
}
void descriptor_from() {
  const Held& what = that();
  export_from("descriptorfrom", what, size());
}
void map() {
  Held made;
  const int file = static_cast<int>(that().handle);
  size_t* const no_size = nullptr;
  const void** const no_metadata = nullptr;
  const bool is_new = client::hip::function("hsa_amd_interop_map_buffer_with_size") != nullptr;
  const int rc = is_new ? call("hsa_amd_interop_map_buffer_with_size", 1u, &agent, file, 0u,
                               size_t{0}, &made.bytes, &made.pointer, no_size, no_metadata)
                        : call("hsa_amd_interop_map_buffer", 1u, &agent, file, 0u, &made.bytes,
                               &made.pointer, no_size, no_metadata);
  keep("map", rc, made);
}

// Loads code into an executable of its own, from memory or from a file.
void load_code(const char* what, const std::string& image, int file) {
  Held made;
  Handle reader{}, executable{};
  const char* const no_options = nullptr;
  int rc = file >= 0 ? call("hsa_code_object_reader_create_from_file", file, &reader)
                     : call("hsa_code_object_reader_create_from_memory",
                            static_cast<const void*>(image.data()), image.size(), &reader);
  if (rc == 0) rc = call("hsa_executable_create_alt", 0, 0, no_options, &executable);
  if (rc == 0) {
    rc = call("hsa_executable_load_agent_code_object", executable, agent, reader, no_options,
              static_cast<Handle*>(nullptr));
  }
  if (rc == 0) rc = call("hsa_executable_freeze", executable, no_options);
  call("hsa_code_object_reader_destroy", reader);
  made.handle = executable.handle;
  keep(what, rc, made);
}
void code() {
  load_code("code", client::amd_code_object(size()), -1);
}
void code_file() {
  const std::string image = client::amd_code_object(size());
  const int file = memfd_create("code", MFD_CLOEXEC);
  if (write(file, image.data(), image.size()) < 0) usage("no room for a file");
  load_code("codefile", image, file);
  close(file);
}
// Somebody else's code.
void code_at() {
  const int file = open(word().c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) usage("no such file");
  load_code("codeat", "", file);
  close(file);
}

// Plain host memory that is moved to the device, or what is held so, back.
void prefetch(const char* what, const Held& memory, Handle to) {
  const int rc = call("hsa_amd_svm_prefetch_async", memory.pointer, memory.bytes, to, 0u,
                      static_cast<const Handle*>(nullptr), Handle{});
  print(what, rc);
}
// Each agent's name and kind, as rocminfo lists them, and the size of its first pool.
void list_agents() {
  const auto visit = +[](Handle candidate, void*) {
    char name[64] = "";
    int type = -1;
    uint32_t units = 0;
    call("hsa_agent_get_info", candidate, 0, static_cast<void*>(name));
    call("hsa_agent_get_info", candidate, 17, static_cast<void*>(&type));
    call("hsa_agent_get_info", candidate, 0xa002, static_cast<void*>(&units));
    static size_t bytes;
    bytes = 0;
    const auto take = +[](Handle of_agent, void*) {
      if (bytes == 0) {
        call("hsa_amd_memory_pool_get_info", of_agent, 2, static_cast<void*>(&bytes));
      }
      return 0;
    };
    call("hsa_amd_agent_iterate_memory_pools", candidate, take, static_cast<void*>(nullptr));
    std::printf("agent %s type=%d units=%u pool=%zu\n", name, type, units, bytes);
    return 0;
  };
  print("agents", call("hsa_iterate_agents", visit, static_cast<void*>(nullptr)));
}

void make_queue() {
  Held made;
  void* const none = nullptr;
  const int rc =
      call("hsa_queue_create", agent, 1024u, 0u, none, none, UINT32_MAX, UINT32_MAX, &made.pointer);
  keep("queue", rc, made);
}

void dispatch() {
  void* const queue = that().pointer;
  print("dispatch", client::hip::dispatch(queue, static_cast<uint32_t>(size())) ? 0 : -1);
}

// The runtime writes so many words itself.
void fill_memory() {
  const Held& what = that();
  print("fillmemory", call("hsa_amd_memory_fill", what.pointer, 7u, what.bytes / 4));
}

void prefetch_new() {
  Held made;
  made.bytes = size();
  made.pointer = mmap(nullptr, made.bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  held.push_back(made);
  prefetch("prefetch", made, agent);
}

void wait() {
  std::puts("ready");
  std::fflush(stdout);
  char line[512];
  // The end of input lets go too, so that a test that fails leaves nobody behind.
  if (std::fgets(line, sizeof line, stdin) == nullptr) std::_Exit(0);
  std::istringstream words(line);
  const std::vector<std::string> next{std::istream_iterator<std::string>(words), {}};
  arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(next_argument), next.begin(),
                   next.end());
}

const std::map<std::string, void (*)()> kCommands = {
    {"init", start},
    {"alloc", allocate},
    {"restart", restart},
    {"shutdown",
     [] {
       print("shutdown", call("hsa_shut_down"));
       agent = processor = pool = {};
     }},
    {"free", [] { print("free", call("hsa_amd_memory_pool_free", that().pointer)); }},
    {"queues", queues},
    {"destroy", [] { print("destroy", call("hsa_queue_destroy", that().pointer)); }},
    {"agents", list_agents},
    {"queue", make_queue},
    {"dispatch", dispatch},
    {"fillmemory", fill_memory},
    {"counted", counted},
    {"uncount", [] { print("uncount", call("hsa_amd_counted_queue_release", that().pointer)); }},
    {"copying", copying},
    {"uncopy", [] { print("uncopy", call("hsa_amd_sdma_queue_destroy", Handle{that().handle})); }},
    {"create", create},
    {"release",
     [] { print("release", call("hsa_amd_vmem_handle_release", Handle{that().handle})); }},
    {"fabric", fabric},
    {"importfabric", import_fabric},
    {"ipc", export_ipc},
    {"attach", attach},
    {"detach", [] { print("detach", call("hsa_amd_ipc_memory_detach", that().pointer)); }},
    {"descriptor", descriptor},
    {"descriptorfrom", descriptor_from},
    {"handledescriptor", handle_descriptor},
    {"takedescriptor", take_descriptor},
    {"closedescriptor", [] { print("closedescriptor", close(static_cast<int>(that().handle))); }},
    {"map", map},
    {"unmap", [] { print("unmap", call("hsa_amd_interop_unmap_buffer", that().pointer)); }},
    {"code", code},
    {"codefile", code_file},
    {"codeat", code_at},
    {"unload", [] { print("unload", call("hsa_executable_destroy", Handle{that().handle})); }},
    {"prefetch", prefetch_new},
    {"fetchback", [] { prefetch("fetchback", that(), processor); }},
    {"wait", wait},
};

}  // namespace

int main(int count, char** words) {
  arguments.assign(words + 1, words + count);
  if (arguments.empty()) usage("no command");
  while (next_argument < arguments.size()) {
    const std::string name = word();
    const auto command = kCommands.find(name);
    if (command == kCommands.end()) usage("unknown command " + name);
    command->second();
    std::fflush(stdout);
  }
  std::_Exit(0);
}
