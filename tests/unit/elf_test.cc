// Look-ups in shared objects that were linked with each kind of hash table. The oracle is the C
// library's own dlsym.
#include "shim/base/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace fracgpu {
namespace {

std::vector<std::string> sample_names() {
  std::vector<std::string> names{"sample_variable"};
  for (const char* const prefix :
       {"sample_first_", "sample_second_",
        "a_much_longer_name_than_the_others_have_so_that_its_old_hash_wraps_around_"}) {
    for (int i = 0; i < 10; ++i) names.push_back(prefix + std::to_string(i));
  }
  return names;
}

std::string sample_path(const std::string& style) {
  return std::string(ELF_SAMPLE_FOLDER) + "/libelf_sample_" + style + ".so";
}

// The dynamic section of a shared object's file in memory.
std::vector<ElfW(Dyn) *> dynamic_entries(std::string& bytes) {
  std::vector<ElfW(Dyn)*> entries;
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(bytes.data());
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(bytes.data() + header->e_phoff);
  for (int i = 0; i < header->e_phnum; ++i) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    auto* entry = reinterpret_cast<ElfW(Dyn)*>(bytes.data() + segments[i].p_offset);
    for (; entry->d_tag != DT_NULL; ++entry) entries.push_back(entry);
  }
  return entries;
}

class ElfHashTest : public testing::TestWithParam<const char*> {};

TEST_P(ElfHashTest, FindsWhatTheLoaderFinds) {
  const std::string path = sample_path(GetParam());
  const std::string soname = path.substr(path.rfind('/') + 1);
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  bool has_gnu = false, has_sysv = false;
  for (const ElfW(Dyn) * entry : dynamic_entries(bytes)) {
    has_gnu |= entry->d_tag == DT_GNU_HASH;
    has_sysv |= entry->d_tag == DT_HASH;
  }
  EXPECT_EQ(has_gnu, GetParam() != std::string("sysv")) << "the linker made another table";
  EXPECT_EQ(has_sysv, GetParam() != std::string("gnu")) << "the linker made another table";

  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  for (const std::string& name : sample_names()) {
    void* const address = dlsym(handle, name.c_str());
    ASSERT_NE(address, nullptr) << name;
    EXPECT_EQ(elf::find_symbol(soname, name.c_str()), address) << name;
    const char* known = nullptr;
    void* start = nullptr;
    ASSERT_TRUE(elf::symbol_at(static_cast<char*>(address) + 1, known, start)) << name;
    EXPECT_EQ(start, address);
    EXPECT_EQ(known, name);
  }
  EXPECT_EQ(elf::find_symbol(soname, "sample_first_10"), nullptr);
  EXPECT_EQ(elf::find_symbol(soname, ""), nullptr);
  EXPECT_EQ(elf::find_symbol(soname, "malloc"), nullptr) << "an import is not a definition";
  dlclose(handle);
}

INSTANTIATE_TEST_SUITE_P(Styles, ElfHashTest, testing::Values("gnu", "sysv", "both"),
                         [](const auto& info) { return std::string(info.param); });

// The loader takes such an object and finds nothing in it either.
TEST(ElfTest, AnObjectWithoutAHashTableDefinesNothing) {
  std::ifstream file(sample_path("sysv"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  int hidden = 0;
  for (ElfW(Dyn) * entry : dynamic_entries(bytes)) {
    if (entry->d_tag != DT_HASH) continue;
    entry->d_tag = DT_DEBUG;
    ++hidden;
  }
  ASSERT_EQ(hidden, 1);
  const std::string path =
      testing::TempDir() + "elf_without_hash_" + std::to_string(getpid()) + ".so";
  std::ofstream(path, std::ios::binary) << bytes;
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_EQ(dlsym(handle, "sample_first_0"), nullptr);
  EXPECT_EQ(elf::find_symbol("libelf_sample_sysv.so", "sample_first_0"), nullptr);
  link_map* map = nullptr;
  ASSERT_EQ(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
  const char* name = nullptr;
  void* start = nullptr;
  EXPECT_FALSE(elf::symbol_at(reinterpret_cast<void*>(map->l_ld), name, start));
  dlclose(handle);
  unlink(path.c_str());
}

}  // namespace
}  // namespace fracgpu
