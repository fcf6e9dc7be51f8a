// Arrays and mipmapped arrays of every form.
#include <algorithm>
#include <vector>

#include "actor.h"

namespace client {
namespace {

class Arrays : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    if (!arrays_.empty() && chance(arrays_.size() < 20 ? 35 : 65)) return destroy();
    CUDA_ARRAY3D_DESCRIPTOR form = {};
    // UNSIGNED_INT8, SIGNED_INT16, HALF, FLOAT, BC1_UNORM, BC7_UNORM
    static constexpr int kFormats[] = {0x01, 0x09, 0x10, 0x20, 0x91, 0x9d};
    form.Format = kFormats[below(4)];
    form.NumChannels = 1u << below(3);
    form.Width = below(4096) + 1;
    const CUDA_ARRAY3D_DESCRIPTOR* wanted = &form;
    Array array = {.handle = nullptr, .levels = 0};
    switch (below(6)) {
      case 0:  // one dimension
        break;
      case 1:
        form.Height = below(2048) + 1;
        break;
      case 2:
        form.Height = below(256) + 1;
        form.Depth = below(64) + 1;
        break;
      case 3:
        form.Height = below(512) + 1;
        form.Depth = below(8) + 1;
        form.Flags = kArrayLayered;
        break;
      case 4:
        form.Width = form.Height = below(512) + 1;
        form.Depth = 6;
        form.Flags = kArrayCubemap;
        break;
      default:
        form.Height = below(1024) + 1;
        array.levels = static_cast<unsigned>(below(8)) + 1;
        const uint64_t longest = std::max(form.Width, form.Height);
        while (array.levels > 1 && longest >> (array.levels - 1) == 0) --array.levels;
    }
    if (chance(10)) form.Flags |= kArrayDeferred;
    const int result =
        array.levels > 0
            ? call("cuMipmappedArrayCreate", reinterpret_cast<CUmipmappedArray*>(&array.handle),
                   wanted, array.levels)
            : call("cuArray3DCreate_v2", reinterpret_cast<CUarray*>(&array.handle), wanted);
    if (good(result, "create an array")) arrays_.push_back(array);
  }

  void clear() override {
    while (!arrays_.empty()) destroy();
  }

 private:
  struct Array {
    void* handle;
    unsigned levels;  // 0: not mipmapped
  };

  void destroy() {
    std::swap(arrays_[below(arrays_.size())], arrays_.back());
    const Array array = arrays_.back();
    arrays_.pop_back();
    if (array.levels > 0) {
      good(call("cuMipmappedArrayDestroy", static_cast<CUmipmappedArray>(array.handle)),
           "cuMipmappedArrayDestroy");
    } else {
      good(call("cuArrayDestroy", static_cast<CUarray>(array.handle)), "cuArrayDestroy");
    }
  }

  std::vector<Array> arrays_;
};

}  // namespace

std::unique_ptr<Actor> make_arrays(const World& world, uint64_t seed) {
  return std::make_unique<Arrays>(world, seed);
}

}  // namespace client
