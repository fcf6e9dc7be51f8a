// An array in which nothing is written before an element is made, so that room for many elements
// costs only addresses.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

namespace fracgpu {

template <typename T, size_t N>
class LazyArray {
  static_assert(std::is_trivially_destructible_v<T>, "elements are never destroyed");

 public:
  // Makes the element, value-initialised or as a copy. To be called once, before the element is
  // used.
  T& make(size_t i) { return *new (bytes_ + i * sizeof(T)) T(); }
  T& make(size_t i, const T& value) { return *new (bytes_ + i * sizeof(T)) T(value); }

  T& operator[](size_t i) { return *std::launder(reinterpret_cast<T*>(bytes_ + i * sizeof(T))); }
  const T& operator[](size_t i) const {
    return *std::launder(reinterpret_cast<const T*>(bytes_ + i * sizeof(T)));
  }

 private:
  alignas(T) unsigned char bytes_[N * sizeof(T)];
};

}  // namespace fracgpu
