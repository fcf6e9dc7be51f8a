// A library whose functions say where they are called from: what names frames must find them again.
// Line numbers are told by the preprocessor, so lines may be added.
#include <cstddef>
#include <vector>

using Visit = void (*)(const void* call, int line);

#define TELL(visit) (visit)(here(), __LINE__)

namespace {

// The address after the call of this.
__attribute__((noinline)) const void* here() {
  return __builtin_return_address(0);
}

}  // namespace

namespace frames {

template <typename Item, size_t kCount>
struct Buffer {
  __attribute__((noinline)) void grow(Visit visit);
};

template <typename Item, size_t kCount>
void Buffer<Item, kCount>::grow(Visit visit) {
  TELL(visit);
  asm volatile("");
}

__attribute__((always_inline)) inline void innermost(Visit visit) {
  TELL(visit);
}

__attribute__((always_inline)) inline void between(Visit visit) {
  innermost(visit);
  asm volatile("");
}

__attribute__((noinline)) static void unexported(Visit visit) {
  TELL(visit);
  asm volatile("");
}

__attribute__((visibility("default"), noinline)) void exported(Visit visit) {
  between(visit);
  asm volatile("");
}

}  // namespace frames

// In this order; each tells once.
extern "C" __attribute__((visibility("default"))) void visit_frames(Visit visit) {
  frames::exported(visit);
  frames::unexported(visit);
  frames::Buffer<std::vector<int>, 4>().grow(visit);
}
