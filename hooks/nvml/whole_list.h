// One of NVML's process lists, whole, in memory of our own.
#pragma once

#include <sys/mman.h>

#include "hooks/nvml/abi.h"

namespace fracgpu::nvml {

template <typename Info>
class WholeList {
 public:
  // `ask(count, infos)` calls NVML, with the meaning that its lists give to the two.
  template <typename Ask>
  explicit WholeList(const Ask& ask) {
    for (unsigned capacity = 64; capacity <= 1 << 16; capacity *= 4) {
      if (!map(capacity)) return;
      count_ = capacity;
      result_ = ask(&count_, infos_);
      if (result_ == kSuccess && count_ <= capacity) return;
      count_ = 0;
      if (result_ != kInsufficientSize) return;
    }
  }
  ~WholeList() { unmap(); }
  WholeList(const WholeList&) = delete;
  WholeList& operator=(const WholeList&) = delete;

  // NVML's own, also when the list is too long or there is no memory for it.
  nvmlReturn_t result() const { return result_; }

  Info* begin() { return infos_; }
  Info* end() { return infos_ + count_; }
  unsigned size() const { return count_; }

 private:
  bool map(unsigned capacity) {
    unmap();
    bytes_ = capacity * sizeof(Info);
    void* memory =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    infos_ = memory == MAP_FAILED ? nullptr : static_cast<Info*>(memory);
    return infos_ != nullptr;
  }
  void unmap() {
    if (infos_ != nullptr) munmap(infos_, bytes_);
    infos_ = nullptr;
  }

  Info* infos_ = nullptr;
  size_t bytes_ = 0;
  unsigned count_ = 0;
  nvmlReturn_t result_ = kInsufficientSize;
};

}  // namespace fracgpu::nvml
