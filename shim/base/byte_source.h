// Bytes that somebody else wrote, and whose own headers may say anything of where they end: memory,
// a file, or memory whose size nobody knows. They are copied before they are looked at, and what is
// not there is no fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace fracgpu {

class ByteSource {
 public:
  // Memory, all of which is there.
  static ByteSource in_memory(const void* at, uint64_t bytes) {
    return {-1, reinterpret_cast<uint64_t>(at), bytes};
  }
  // A file, whose position stays; nothing of what is no regular one. The descriptor is the
  // caller's, and is open as long as this is used.
  static ByteSource in_file(int descriptor);
  // Memory of this process by its address, wherever it ends: `descriptor` is that of
  // /proc/self/mem, through which no reading can fail worse than a system call.
  static ByteSource in_process(int descriptor, const void* at) {
    return {descriptor, reinterpret_cast<uint64_t>(at), UINT64_MAX};
  }

  // From the offset on, no further than this source goes.
  ByteSource part(uint64_t offset, uint64_t bytes = UINT64_MAX) const;

  // How many bytes of `size` there are.
  size_t read_some(uint64_t offset, void* out, size_t size) const;
  template <typename Item>
  std::optional<Item> read(uint64_t offset) const {
    Item item;
    if (read_some(offset, &item, sizeof item) != sizeof item) return {};
    return item;
  }

  // Calls visit(item) for each of a row of items. False where it goes beyond the source.
  template <typename Item, typename Visit>
  bool for_each(uint64_t offset, uint64_t count, Visit visit) const {
    Item items[kBuffer / sizeof(Item)];
    while (count > 0) {
      const size_t got =
          read_some(offset, items,
                    sizeof(Item) * (count < std::size(items) ? count : std::size(items))) /
          sizeof(Item);
      if (got == 0) return false;
      for (size_t i = 0; i < got; ++i) visit(items[i]);
      offset += got * sizeof(Item);
      count -= got;
    }
    return true;
  }

  static constexpr size_t kBuffer = 4096;

 private:
  ByteSource(int descriptor, uint64_t base, uint64_t bytes)
      : descriptor_(descriptor), base_(base), bytes_(bytes) {}

  int descriptor_;  // negative: memory
  uint64_t base_;   // of offset 0: an address, or a position in the file
  uint64_t bytes_;
};

}  // namespace fracgpu
