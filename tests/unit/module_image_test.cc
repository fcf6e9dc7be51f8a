// The numbers that tell one module's image from another.
#include <elf.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>

#include <string>
#include <vector>

#include "hooks/cuda/image.h"

namespace fracgpu::cuda {
namespace {

// At the very end of a mapping, so that a byte read too many ends the test.
class AtTheEnd {
 public:
  explicit AtTheEnd(const std::string& bytes) {
    pages_ = (bytes.size() + 4095) / 4096 * 4096;
    map_ = static_cast<char*>(
        mmap(nullptr, pages_ + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(map_ + pages_, 4096, PROT_NONE);
    at_ = map_ + pages_ - bytes.size();
    memcpy(at_, bytes.data(), bytes.size());
  }
  ~AtTheEnd() { munmap(map_, pages_ + 4096); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  const void* get() const { return at_; }

 private:
  size_t pages_ = 0;
  char *map_ = nullptr, *at_ = nullptr;
};

uint64_t key_of(const std::string& bytes) {
  return image_key(AtTheEnd(bytes).get());
}
uint64_t key_of_text(const char* text) {
  return key_of(std::string(text, strlen(text) + 1));
}

std::string cubin(size_t code, char last) {
  Elf64_Ehdr header = {};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_shoff = sizeof header + code;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 1;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.append(code + sizeof(Elf64_Shdr) - 1, '\0');
  return bytes + last;
}

std::string fatbin(const std::string& content) {
  const struct {
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1, header_bytes = 16;
    uint64_t bytes;
  } header = {.bytes = content.size()};
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + content;
}

TEST(ModuleImageTest, TextsDifferByAnyCharacter) {
  EXPECT_NE(key_of_text(".version 7.0"), 0u);
  EXPECT_EQ(key_of_text(".version 7.0"), key_of_text(".version 7.0"));
  EXPECT_NE(key_of_text(".version 7.0"), key_of_text(".version 7.1"));
  EXPECT_NE(key_of_text("a"), key_of_text("b"));
  EXPECT_NE(key_of_text("12345678"), key_of_text("123456789"));
}

TEST(ModuleImageTest, ACubinEndsWithItsSections) {
  EXPECT_NE(key_of(cubin(1000, 'a')), 0u);
  EXPECT_EQ(key_of(cubin(1000, 'a')), key_of(cubin(1000, 'a')));
  EXPECT_NE(key_of(cubin(1000, 'a')), key_of(cubin(1000, 'b')));
  EXPECT_EQ(key_of(cubin(1000, 'a') + "behind"), key_of(cubin(1000, 'a') + "differs"));
}

TEST(ModuleImageTest, AFatbinIsKnownThroughItsWrapperToo) {
  const std::string bytes = fatbin("some code");
  const AtTheEnd inner(bytes);
  const struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* data;
    const void* name = nullptr;
  } wrapper = {.data = inner.get()};
  EXPECT_NE(key_of(bytes), 0u);
  EXPECT_EQ(image_key(&wrapper), key_of(bytes));
  EXPECT_NE(key_of(bytes), key_of(fatbin("same size")));
}

TEST(ModuleImageTest, WhatCannotBeToldIsZero) {
  EXPECT_EQ(image_key(nullptr), 0u);
  EXPECT_EQ(key_of_text(""), 0u);
  EXPECT_EQ(key_of(std::string(2 << 20, 'x') + '\0'), 0u) << "too long to look at";
  EXPECT_EQ(key_of(cubin(2 << 20, 'a')), 0u);
  EXPECT_EQ(file_key("/nowhere"), 0u);
  EXPECT_EQ(file_key(nullptr), 0u);
  EXPECT_NE(file_key("/proc/self/exe"), 0u);
}

TEST(ModuleImageTest, OptionsMakeAnotherModuleOfIt) {
  const int options[] = {0};
  void *few[] = {reinterpret_cast<void*>(16)}, *many[] = {reinterpret_cast<void*>(255)};
  const uint64_t image = key_of_text("any");
  EXPECT_EQ(key_with_options(image, 0, nullptr, nullptr), image);
  EXPECT_NE(key_with_options(image, 1, options, few), image);
  EXPECT_NE(key_with_options(image, 1, options, few), key_with_options(image, 1, options, many));
  EXPECT_EQ(key_with_options(0, 1, options, few), 0u);
}

}  // namespace
}  // namespace fracgpu::cuda
