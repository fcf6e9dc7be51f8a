#include "memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace rmsim {

Accounting& accounting = *new Accounting;

namespace {

char* window = nullptr;
std::mutex mutex;
// A process holds a piece of memory once, however often it has imported it.
auto& known = *new std::map<int, std::weak_ptr<Memory>>;

MemoryPtr view_of(int index) {
  const Record record = accounting.record(index);
  auto memory = std::make_shared<Memory>(record.kind, record.size, window + record.offset);
  memory->record = index;
  memory->generation = record.generation;
  known[index] = memory;
  return memory;
}

}  // namespace

bool open_machine(const char* folder) {
  if (!accounting.open(folder)) return false;
  // Above where programs and libraries lie and below the stack, so that addresses of the driver's
  // choice are free.
  void* const place = reinterpret_cast<void*>(0x300000000000);
  window =
      reinterpret_cast<char*>(syscall(SYS_mmap, place, Accounting::kWindow, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_NORESERVE, accounting.memory_file(), 0));
  if (window == MAP_FAILED) {
    fprintf(stderr, "rmsim: cannot map the memory: %s\n", strerror(errno));
    return false;
  }
  madvise(window, Accounting::kWindow, MADV_DONTDUMP);
  accounting.join_as_new_process();
  return true;
}

void join_as_new_process() {
  new (&mutex) std::mutex;
  new (&known) std::map<int, std::weak_ptr<Memory>>;
  accounting.join_as_new_process();
}

Memory::~Memory() {
  if (record < 0) return;
  const std::lock_guard<std::mutex> guard(mutex);
  // Another view may have been made since the last owner of this one let go.
  const auto entry = known.find(record);
  if (entry != known.end() && !entry->second.expired()) return;
  if (entry != known.end()) known.erase(entry);
  if (accounting.record(record).generation == generation) accounting.release(record);
}

MemoryPtr allocate_memory(int gpu, Kind kind, uint64_t size, uint64_t alignment) {
  const std::lock_guard<std::mutex> guard(mutex);
  const int record = accounting.allocate(gpu, kind, size, alignment);
  return record < 0 ? nullptr : view_of(record);
}

MemoryPtr import_memory(int record, uint32_t generation) {
  const std::lock_guard<std::mutex> guard(mutex);
  if (!accounting.hold(record, generation)) return nullptr;
  const auto entry = known.find(record);
  if (entry != known.end()) {
    if (MemoryPtr memory = entry->second.lock()) return memory;
  }
  return view_of(record);
}

uint64_t physical_address(const Memory& memory) {
  return memory.host == nullptr ? 0 : static_cast<uint64_t>(memory.host - window);
}

void* map_memory(const Memory& memory, uint64_t offset, uint64_t length, void* address,
                 int protection, int flags) {
  const uint64_t pages = (memory.size + 4095) & ~4095ull;
  if (memory.record < 0 || offset > pages || length > pages - offset) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection,
                                         MAP_SHARED | (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)),
                                         accounting.memory_file(),
                                         physical_address(memory) + offset));
}

void clear_memory(char* host, uint64_t length) {
  constexpr uint64_t kPage = 4096, kWorthwhile = 64 << 10;
  if (length >= kWorthwhile && host >= window && host + length <= window + Accounting::kWindow) {
    const uint64_t head = (kPage - reinterpret_cast<uintptr_t>(host) % kPage) % kPage;
    const uint64_t pages = (length - head) / kPage * kPage;
    if (madvise(host + head, pages, MADV_REMOVE) == 0) {
      memset(host, 0, head);
      memset(host + head + pages, 0, length - head - pages);
      return;
    }
  }
  memset(host, 0, length);
}

}  // namespace rmsim
