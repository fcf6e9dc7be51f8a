// A library that uses the GPU while it is loaded: its constructor runs under the loader's lock.
extern "C" void client_in_constructor();

namespace {
struct Constructed {
  Constructed() { client_in_constructor(); }
} constructed;
}  // namespace
