// Objects whose addresses are handles. What ended last is the first to be made again, by whichever
// thread, since any driver may do that. It wants the driver's lock held.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace sim {

template <typename Object>
class Reused {
 public:
  static void* operator new(size_t bytes) {
    std::vector<void*>& all = spare();
    if (all.empty()) return ::operator new(bytes);
    void* const last = all.back();
    all.pop_back();
    return last;
  }
  static void operator delete(void* object) { spare().push_back(object); }

 private:
  // Never destroyed: programs call the driver from their own exit handlers.
  static std::vector<void*>& spare() {
    static auto* const all = new std::vector<void*>;
    return *all;
  }
};

// The handle of an object.
template <typename Handle, typename Object>
Handle handle_of(Object* object) {
  return reinterpret_cast<Handle>(object);
}

}  // namespace sim
