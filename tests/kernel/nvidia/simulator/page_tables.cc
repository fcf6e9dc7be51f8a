#include "page_tables.h"

#include <map>
#include <mutex>

namespace rmsim::page_tables {
namespace {

struct Mapping {
  uint64_t length;
  char* host;
  MemoryPtr memory;
};
using Mappings = std::map<uint64_t, Mapping>;

std::mutex mutex;
auto& mappings = *new Mappings;

Mappings::iterator containing(uint64_t address) {
  auto entry = mappings.upper_bound(address);
  if (entry == mappings.begin()) return mappings.end();
  --entry;
  return address - entry->first < entry->second.length ? entry : mappings.end();
}

// What is cut out is returned through `cut`, so that memory is freed without the lock.
void cut_out(uint64_t address, uint64_t length, Mappings& cut) {
  const uint64_t end = address + length;
  auto entry = containing(address);
  if (entry == mappings.end()) entry = mappings.lower_bound(address);
  while (entry != mappings.end() && entry->first < end) {
    const uint64_t first = entry->first;
    const Mapping old = entry->second;
    entry = mappings.erase(entry);
    if (first < address) mappings[first] = Mapping{address - first, old.host, old.memory};
    if (first + old.length > end)
      mappings[end] = Mapping{first + old.length - end, old.host + (end - first), old.memory};
    cut[first] = old;
  }
}

}  // namespace

void map(uint64_t address, uint64_t length, char* host, const MemoryPtr& memory) {
  Mappings cut;
  const std::lock_guard<std::mutex> guard(mutex);
  cut_out(address, length, cut);
  mappings[address] = Mapping{length, host, memory};
}

void unmap(uint64_t address, uint64_t length) {
  Mappings cut;
  const std::lock_guard<std::mutex> guard(mutex);
  cut_out(address, length, cut);
}

void unmap_at(uint64_t address) {
  Mapping gone{};
  const std::lock_guard<std::mutex> guard(mutex);
  const auto entry = mappings.find(address);
  if (entry == mappings.end()) return;
  gone = entry->second;
  mappings.erase(entry);
}

char* find(uint64_t address, uint64_t& left) {
  const std::lock_guard<std::mutex> guard(mutex);
  const auto entry = containing(address);
  if (entry == mappings.end()) return nullptr;
  const uint64_t offset = address - entry->first;
  left = entry->second.length - offset;
  return entry->second.host + offset;
}

MemoryPtr memory_at(uint64_t address, uint64_t& offset) {
  const std::lock_guard<std::mutex> guard(mutex);
  const auto entry = containing(address);
  if (entry == mappings.end()) return nullptr;
  offset = address - entry->first;
  return entry->second.memory;
}

void forget_all() {
  new (&mutex) std::mutex;
  new (&mappings) Mappings;
}

}  // namespace rmsim::page_tables
