// Tests of modules and libraries: what their code takes, in which context, from when until when.
// FRACGPU_SIM_MODULE_MIB says how much that is.
#include "sim/test/overhead_calls.h"

using namespace simtest;

namespace {

TEST(SimLibrary, TakesItsMemoryAtFirstUse) {
  TestNode node;
  setenv("FRACGPU_SIM_MODULE_MIB", "5", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    void *library = nullptr, *module = nullptr, *same = nullptr, *kernel = nullptr;
    ASSERT_EQ(load_library(&library), 0);
    EXPECT_EQ(mib(node), 64u);
    ASSERT_EQ(get_module(&module, library), 0);
    EXPECT_EQ(mib(node), 70u);
    EXPECT_EQ(node->context_bytes(0, getpid()), 70 * kMiB);
    ASSERT_EQ(get_module(&same, library), 0);
    EXPECT_EQ(same, module);
    ASSERT_EQ(get_kernel(&kernel, library), 0);
    EXPECT_EQ(mib(node), 70u);
    EXPECT_EQ(cuda<int(void*)>("cuModuleUnload")(module), 400);  // it is the library's
    // Each context pays for itself; ending one leaves the other.
    void* context = make_context();
    void* function = nullptr;
    ASSERT_EQ((cuda<int(void**, void*)>("cuKernelGetFunction")(&function, kernel)), 0);
    EXPECT_NE(function, nullptr);
    EXPECT_EQ(mib(node), 140u);
    ASSERT_EQ(destroy_context(context), 0);
    EXPECT_EQ(mib(node), 70u);
    ASSERT_EQ(unload_library(library), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(unload_library(library), 400);
    EXPECT_EQ(get_module(&module, library), 400);
  });
  for (const bool by_global : {false, true}) {
    in_child([&] {
      ASSERT_EQ(cu_start(), 0);
      void *library = nullptr, *kernel = nullptr;
      Pointer address = 0, again = 0;
      size_t bytes = 0;
      ASSERT_EQ(load_library(&library), 0);
      EXPECT_EQ(by_global ? get_global(&address, &bytes, library) : get_kernel(&kernel, library),
                0);
      EXPECT_EQ(mib(node), 70u);
      ASSERT_EQ(get_global(&address, &bytes, library), 0);
      ASSERT_EQ(get_global(&again, nullptr, library), 0);
      EXPECT_EQ(mib(node), 70u);
      EXPECT_EQ(again, address);
      auto* fill = cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2");
      EXPECT_EQ(fill(address, 0, bytes), 0);
      EXPECT_EQ(fill(address, 0, bytes + 1), 1);
      EXPECT_EQ(cu_free(address), 1);
      // A reset takes everything; the library loads again where it is used next.
      ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
      EXPECT_EQ(mib(node), 0u);
      ASSERT_EQ(cu_start(), 0);
      ASSERT_EQ(get_global(&address, &bytes, library), 0);
      EXPECT_EQ(mib(node), 70u);
      ASSERT_EQ(unload_library(library), 0);
      EXPECT_EQ(mib(node), 64u);
      EXPECT_EQ(fill(address, 0, 1), 1);
    });
  }
  unsetenv("FRACGPU_SIM_MODULE_MIB");
}

TEST(SimLibrary, FullDeviceRefusesTheUseNotTheLoad) {
  TestNode node;
  setenv("FRACGPU_SIM_MODULE_MIB", "4", 1);
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer filler = 0, address = 0;
    ASSERT_EQ(cu_alloc(&filler, 958 * kMiB), 0);
    void *library = nullptr, *module = nullptr;
    ASSERT_EQ(load_library(&library), 0);
    EXPECT_EQ(get_module(&module, library), 2);
    EXPECT_EQ(get_global(&address, nullptr, library), 2);
    EXPECT_EQ(mib(node), 1022u);
    EXPECT_EQ(cu_free(filler), 0);
    EXPECT_EQ(get_module(&module, library), 0);
    EXPECT_EQ(mib(node), 68u);
    auto* from_file =
        cuda<int(void**, const char*, void*, void*, unsigned, void*, void*, unsigned)>(
            "cuLibraryLoadFromFile");
    EXPECT_EQ(from_file(&library, "/no/such/file", nullptr, nullptr, 0, nullptr, nullptr, 0), 301);
    EXPECT_EQ(from_file(&library, node.path().c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
              0);
    auto* load = cuda<int(void**, const char*)>("cuModuleLoad");
    EXPECT_EQ(load(&module, "/no/such/file"), 301);
    ASSERT_EQ(load(&module, node.path().c_str()), 0);
    EXPECT_EQ(mib(node), 72u);
    auto* global = cuda<int(Pointer*, size_t*, void*, const char*)>("cuModuleGetGlobal_v2");
    EXPECT_EQ(global(&address, nullptr, module, "global"), 0);
    EXPECT_EQ(cuda<int(void*)>("cuModuleUnload")(module), 0);
    EXPECT_EQ(mib(node), 68u);
  });
  unsetenv("FRACGPU_SIM_MODULE_MIB");
}

}  // namespace
