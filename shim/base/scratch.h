// An array for the time of one call: zeroed memory straight from the kernel, since the shim may be
// below the program's malloc.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fracgpu {

template <typename T>
class Scratch {
 public:
  // No array if it would be larger than `most_bytes`. T is a handle in places.
  explicit Scratch(size_t count, size_t most_bytes = SIZE_MAX)
      : bytes_(std::max<size_t>(count, 1) * sizeof(T)) {  // NOLINT(bugprone-sizeof-expression)
    if (count > most_bytes / sizeof(T)) return;           // NOLINT(bugprone-sizeof-expression)
    void* const mapped =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) data_ = static_cast<T*>(mapped);
  }
  ~Scratch() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // False if there is no array: the host is out of memory, or it would be too large.
  explicit operator bool() const { return data_ != nullptr; }
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  size_t bytes_;
  T* data_ = nullptr;
};

}  // namespace fracgpu
