// The counters of calls, a row for each name, in the order of their first calls. See calls.h.
#include "sim/node/calls.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace sim {

std::unique_ptr<CallCounts> CallCounts::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  constexpr size_t kSize = kRows * sizeof(Row);
  void* bytes = MAP_FAILED;
  if (ftruncate(fd, kSize) == 0)
    bytes = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (bytes == MAP_FAILED) return nullptr;
  return std::unique_ptr<CallCounts>(new CallCounts(static_cast<Row*>(bytes)));
}

CallCounts::~CallCounts() {
  munmap(rows_, kRows * sizeof(Row));
}

void CallCounts::add(std::string_view function) {
  if (function.size() >= kNameBytes) function = function.substr(0, kNameBytes - 1);
  for (Row* row = rows_; row != rows_ + kRows; ++row) {
    uint32_t state = 0;
    if (row->state.compare_exchange_strong(state, 1)) {
      std::memcpy(row->name, function.data(), function.size());
      row->state = 2;
    }
    while (row->state != 2) sched_yield();
    if (row->name != function) continue;
    ++row->count;
    return;
  }
}

void CallCounts::visit(const std::function<void(std::string_view, uint64_t)>& visit) const {
  for (const Row* row = rows_; row != rows_ + kRows && row->state == 2; ++row) {
    visit(std::string_view(row->name), row->count.load());
  }
}

uint64_t CallCounts::beginning_with(std::string_view prefix) const {
  uint64_t sum = 0;
  visit([&](std::string_view name, uint64_t count) {
    if (name.substr(0, prefix.size()) == prefix) sum += count;
  });
  return sum;
}

uint64_t CallCounts::of_process_lists() const {
  uint64_t sum = 0;
  visit([&](std::string_view name, uint64_t count) {
    if (name.find("RunningProcess") != std::string_view::npos) sum += count;
  });
  return sum;
}

}  // namespace sim
