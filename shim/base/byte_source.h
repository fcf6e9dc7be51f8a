// Foreign bytes, whose own headers may claim any size: memory, a file, or memory of unknown size.
// They are copied before they are examined, and a read beyond their end is no fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace fracgpu {

class ByteSource {
 public:
  // Memory that is all there.
  static ByteSource in_memory(const void* at, uint64_t bytes) {
    return {-1, reinterpret_cast<uint64_t>(at), bytes};
  }
  // A file, whose position does not change; empty if it is not a regular file. The descriptor is
  // the caller's, and must stay open as long as this is used.
  static ByteSource in_file(int descriptor);
  // Memory of this process by its address, of unknown size. `descriptor` is that of /proc/self/mem,
  // through which a bad read only fails like a system call.
  static ByteSource in_process(int descriptor, const void* at) {
    return {descriptor, reinterpret_cast<uint64_t>(at), UINT64_MAX};
  }

  // The source from the offset on, at most to its end.
  ByteSource part(uint64_t offset, uint64_t bytes = UINT64_MAX) const;

  // Copies up to `size` bytes. Returns how many there were.
  size_t read_some(uint64_t offset, void* out, size_t size) const;
  template <typename Item>
  std::optional<Item> read(uint64_t offset) const {
    Item item;
    if (read_some(offset, &item, sizeof item) != sizeof item) return {};
    return item;
  }

  // Calls visit(item) for each of `count` items in a row. False if they go beyond the source.
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
