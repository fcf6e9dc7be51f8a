// Fills RM's structures; see requests.h.
#include "tests/clients/rm/requests.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/clients/rm/fake_rm.h"

namespace rm {
namespace {

using Stub = int (*)(int fd, unsigned long request, void* argument);
Stub stub = nullptr;
int descriptor = -1;

template <typename Request>
uint32_t allocate_by(Wanted& wanted, void* parameters) {
  Request asked_for{};
  asked_for.client = wanted.client;
  asked_for.parent = wanted.parent;
  asked_for.object = wanted.object;
  asked_for.object_class = wanted.object_class;
  asked_for.parameters = reinterpret_cast<uint64_t>(parameters);
  if constexpr (requires { asked_for.parameters_size; })
    asked_for.parameters_size = wanted.parameters_size;
  if constexpr (requires { asked_for.flags; }) asked_for.flags = wanted.flags;
  const uint32_t status = send(kAlloc, asked_for);
  wanted.object = asked_for.object;
  return status;
}

// A page that another one follows which nobody can access.
class GuardedPage {
 public:
  GuardedPage() : bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* const start =
        mmap(nullptr, 2 * bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    start_ = static_cast<char*>(start);
    mprotect(start_ + bytes_, bytes_, PROT_NONE);
  }
  ~GuardedPage() { munmap(start_, 2 * bytes_); }
  GuardedPage(const GuardedPage&) = delete;
  GuardedPage& operator=(const GuardedPage&) = delete;
  void* last(size_t bytes) const { return start_ + bytes_ - bytes; }

 private:
  const size_t bytes_;
  char* start_;
};

uint32_t control(uint32_t client, uint32_t object, uint32_t command, void* parameters, size_t size,
                 uint32_t flags = 0) {
  Nvos54 asked_for{client,
                   object,
                   command,
                   flags,
                   reinterpret_cast<uint64_t>(parameters),
                   static_cast<uint32_t>(size),
                   0};
  return send(kControl, asked_for);
}

}  // namespace

bool start_requests() {
  void* const library = dlopen(REQUESTS_STUB, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fprintf(stderr, "%s\n", dlerror());
    return false;
  }
  stub = reinterpret_cast<Stub>(dlsym(library, "request_of_rm"));
  descriptor = open_rm();
  return stub != nullptr && descriptor >= 0;
}

int request_of_stub(unsigned long request, void* argument) {
  return stub(descriptor, request, argument);
}

uint32_t allocate(Wanted& wanted, void* parameters) {
  switch (wanted.form) {
    case Form::nvos21:
      return allocate_by<Nvos21>(wanted, parameters);
    case Form::nvos64_before_535:
      return allocate_by<Nvos64Before535>(wanted, parameters);
    default:
      return allocate_by<Nvos64>(wanted, parameters);
  }
}

uint32_t make_client(uint32_t& client) {
  Wanted wanted{.object_class = kRoot};
  const uint32_t status = allocate(wanted, nullptr);
  client = wanted.object;
  return status;
}

uint32_t make_device(uint32_t client, int number, uint32_t& device, Form form) {
  const auto parameters = std::make_unique<DeviceParameters>();
  if (number >= 0) parameters->device = static_cast<uint32_t>(number);
  Wanted wanted{client, client, device, kDevice, form, sizeof *parameters};
  const uint32_t status = allocate(wanted, number >= 0 ? parameters.get() : nullptr);
  device = wanted.object;
  return status;
}

uint32_t make_subdevice(uint32_t client, uint32_t device, uint32_t& subdevice, Form form) {
  const auto parameters = std::make_unique<SubdeviceParameters>();
  Wanted wanted{client, device, subdevice, kSubdevice, form, sizeof *parameters};
  const uint32_t status = allocate(wanted, parameters.get());
  subdevice = wanted.object;
  return status;
}

uint32_t make_memory(uint32_t client, uint32_t parent, uint32_t& object, const Memory& memory) {
  if (memory.form == Form::nvos32) {
    Nvos32 wanted{};
    wanted.client = client;
    wanted.parent = parent;
    wanted.function = kFunctionAllocSize;
    wanted.object = object;
    wanted.flags = memory.flags | (object != 0 ? kFlagHandleProvided : 0);
    wanted.attributes = memory.attributes;
    wanted.size = memory.size;
    const uint32_t status = send(kVidHeapControl, wanted);
    object = wanted.object;
    return status;
  }
  const auto parameters = std::make_unique<MemoryParameters>();
  parameters->flags = memory.flags;
  parameters->attributes = memory.attributes;
  parameters->size = memory.size;
  Wanted wanted{client, parent, object, memory.object_class, memory.form, memory.parameters_size};
  const uint32_t status = allocate(wanted, parameters.get());
  object = wanted.object;
  return status;
}

uint32_t free_object(uint32_t client, uint32_t object) {
  Nvos00 unwanted{client, 0, object, 0};
  return send(kFree, unwanted);
}

uint32_t free_by_heap(uint32_t client, uint32_t device, uint32_t object) {
  Nvos32 unwanted{};
  unwanted.client = client;
  unwanted.parent = device;
  unwanted.function = kFunctionFree;
  unwanted.object = object;
  unwanted.type = kFreeFlagHandleProvided;
  return send(kVidHeapControl, unwanted);
}

uint32_t ask_fb(uint32_t client, uint32_t subdevice, bool second_form, uint32_t index,
                uint32_t& kib) {
  if (second_form) {
    const auto list = std::make_unique<FbInfoV2>();
    list->count = 1;
    list->entries[0].index = index;
    const uint32_t status = control(client, subdevice, kGetFbInfoV2, list.get(), sizeof *list);
    kib = list->entries[0].kib;
    return status;
  }
  const auto entry = std::make_unique<FbEntry>(FbEntry{index, 0});
  const auto list = std::make_unique<FbInfo>(FbInfo{1, 0, reinterpret_cast<uint64_t>(entry.get())});
  const uint32_t status = control(client, subdevice, kGetFbInfo, list.get(), sizeof *list);
  kib = entry->kib;
  return status;
}

uint32_t ask_limit(uint32_t client, uint32_t device, uint64_t& limit) {
  Nvos02 asked_for{};
  asked_for.client = client;
  asked_for.parent = device;
  asked_for.object_class = kLocalMemory;
  const uint32_t status = send(kAllocMemory, asked_for);
  limit = asked_for.limit;
  return status;
}

void make_hostile_request(std::mt19937_64& random, uint32_t client, uint32_t device,
                          uint32_t subdevice) {
  const auto below = [&](uint64_t bound) { return random() % bound; };
  static constexpr uint8_t kEscapes[] = {kAllocMemory, kFree, kControl, kAlloc, kVidHeapControl};
  const uint8_t escape = kEscapes[below(std::size(kEscapes))];
  Wanted memory{client, device, 0, kLocalMemory, static_cast<Form>(below(3))};
  switch (below(9)) {
    case 0:
      request_of_stub(request(escape, below(0x4000)), nullptr);
      return;
    case 1: {  // a size that is too short or too long, and a block of that size
      static constexpr size_t kSizes[] = {0,  1,  4,  8,   15,  16,  17,  28,  31,  32,  33,
                                          36, 40, 41, 44,  47,  48,  49,  56,  64,  72,  88,
                                          95, 96, 97, 104, 176, 183, 184, 185, 200, 4096};
      const size_t size = kSizes[below(std::size(kSizes))];
      const auto block = std::make_unique<char[]>(size);
      const uint32_t words[] = {client, device, static_cast<uint32_t>(below(64)), kLocalMemory};
      memcpy(block.get(), words, std::min(size, sizeof words));
      request_of_stub(request(escape, size), block.get());
      return;
    }
    case 2: {
      Nvos32 unknown{};
      unknown.client = client;
      unknown.parent = device;
      unknown.function = static_cast<uint32_t>(below(2) == 0 ? below(40) : random());
      // These two allocate in NVIDIA's RM, and not here.
      if (unknown.function == kFunctionAllocSize) unknown.size = ~uint64_t{0} - below(1 << 22);
      send(kVidHeapControl, unknown);
      return;
    }
    case 3: {  // more entries than RM allows, and than there are
      const GuardedPage page;
      auto* const entries = static_cast<FbEntry*>(page.last(4 * sizeof(FbEntry)));
      const auto list = std::make_unique<FbInfo>();
      list->count = static_cast<uint32_t>(below(2) == 0 ? 4 + below(100) : random());
      list->entries = below(4) == 0 ? 0 : reinterpret_cast<uint64_t>(entries);
      control(client, subdevice, kGetFbInfo, list.get(), sizeof *list);
      return;
    }
    case 4: {
      const GuardedPage page;
      const size_t size = sizeof(uint32_t) + below(60) * sizeof(FbEntry);
      auto* const list = static_cast<FbInfoV2*>(page.last(size));
      list->count = static_cast<uint32_t>(below(2) == 0 ? below(100) : random());
      for (size_t i = 0; i < (size - sizeof(uint32_t)) / sizeof(FbEntry); ++i)
        list->entries[i].index = static_cast<uint32_t>(below(0x24));
      control(client, subdevice, kGetFbInfoV2, list, size);
      return;
    }
    case 5: {  // serialized parameters, which have another form
      const auto parameters = std::make_unique<uint64_t>();
      memory.form = Form::nvos64;
      memory.flags = kAllocSerialized;
      memory.object_class = below(2) == 0 ? kLocalMemory : kDevice;
      memory.parameters_size = sizeof *parameters;
      allocate(memory, parameters.get());
      control(client, subdevice, below(2) == 0 ? kGetFbInfo : kGetFbInfoV2, parameters.get(),
              sizeof *parameters, kControlSerialized);
      return;
    }
    case 6: {
      const auto block = std::make_unique<uint64_t[]>(0x4000 / sizeof(uint64_t));
      const auto any_escape = static_cast<uint8_t>(random());
      const bool is_known = std::ranges::find(kEscapes, any_escape) != std::end(kEscapes);
      if (!is_known) request_of_stub(request(any_escape, below(0x4000)), block.get());
      request_of_stub(random() & ~0xff00ul, block.get());  // of no driver of NVIDIA's
      return;
    }
    case 7:
      allocate(memory, nullptr);
      control(client, subdevice, below(2) == 0 ? kGetFbInfo : kGetFbInfoV2, nullptr, below(500));
      return;
    default: {  // controls whose parameters are shorter than they must be
      const size_t size = below(sizeof(FbInfo));
      const auto block = std::make_unique<char[]>(size);
      control(client, subdevice, below(2) == 0 ? kGetFbInfo : kGetFbInfoV2, block.get(), size);
      return;
    }
  }
}

}  // namespace rm
