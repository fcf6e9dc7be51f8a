// Lists of processes from a vendor's library.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fracgpu {

// A library's whole list, read into our own memory: the caller's array may have room for the
// tenant's processes but not for all of them.
class ProcessList {
 public:
  explicit ProcessList(size_t entry_bytes) : entry_bytes_(entry_bytes) {}
  ~ProcessList() { unmap(); }
  ProcessList(const ProcessList&) = delete;
  ProcessList& operator=(const ProcessList&) = delete;

  // Calls read(entries, &count), with more room each time that the result is `too_small`, and
  // returns the last result.
  template <typename Read>
  int read_all(int too_small, const Read& read) {
    int result = too_small;
    for (uint32_t capacity = 64; result == too_small && capacity <= 1 << 16; capacity *= 4) {
      unmap();
      bytes_ = capacity * entry_bytes_;
      void* memory =
          mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) break;
      first_ = static_cast<unsigned char*>(memory);
      count_ = capacity;
      result = read(memory, &count_);
      if (count_ > capacity) result = too_small;
    }
    if (result == too_small) count_ = 0;
    return result;
  }

  // Corrects the size of the entries that were read.
  void set_entry_bytes(size_t entry_bytes) { entry_bytes_ = entry_bytes; }

  // Leaves only the entries for which keep(entry) is true, in their order; it may edit them.
  template <typename Keep>
  void keep_if(const Keep& keep) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      unsigned char* const entry = first_ + i * entry_bytes_;
      if (!keep(entry)) continue;
      if (kept != i) memcpy(first_ + kept * entry_bytes_, entry, entry_bytes_);
      ++kept;
    }
    count_ = kept;
  }

  uint32_t count() const { return count_; }
  // The entries, as an array of Entry.
  template <typename Entry>
  Entry* entries() const {
    return reinterpret_cast<Entry*>(first_);
  }
  void copy_to(void* to, uint32_t capacity) const {
    if (count_ > 0) memcpy(to, first_, std::min(count_, capacity) * entry_bytes_);
  }

 private:
  void unmap() {
    if (first_ != nullptr) munmap(first_, bytes_);
    first_ = nullptr;
  }

  size_t entry_bytes_;
  size_t bytes_ = 0;
  unsigned char* first_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace fracgpu
