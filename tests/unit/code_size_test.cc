// What code says that it takes, also where it lies.
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hooks/cuda/image_size.h"
#include "hooks/hsa/code_object.h"
#include "tests/clients/code_image.h"

namespace fracgpu {
namespace {

constexpr uint64_t kMiB = 1u << 20;

// At the very end of a mapping, behind which nothing can be read.
class AtTheEnd {
 public:
  explicit AtTheEnd(const std::string& bytes) {
    pages_ = (bytes.size() + 4095) / 4096 * 4096;
    map_ = static_cast<char*>(
        mmap(nullptr, pages_ + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(map_ + pages_, 4096);
    memcpy(map_ + pages_ - bytes.size(), bytes.data(), bytes.size());
    at_ = map_ + pages_ - bytes.size();
  }
  ~AtTheEnd() { munmap(map_, pages_); }
  AtTheEnd(const AtTheEnd&) = delete;
  AtTheEnd& operator=(const AtTheEnd&) = delete;
  const void* get() const { return at_; }

 private:
  size_t pages_ = 0;
  char *map_ = nullptr, *at_ = nullptr;
};

using cuda::Loading;

uint64_t of_cuda(const std::string& image, Loading loading = Loading::eager) {
  return cuda::image_bytes(AtTheEnd(image).get(), loading);
}
uint64_t of_text(const std::string& text) {
  return of_cuda(text + '\0');
}
uint64_t of_amd(const std::string& image) {
  const AtTheEnd bytes(image);
  return hsa::code_object_bytes(ByteSource::in_memory(bytes.get(), image.size()));
}

template <typename Field>
std::string with(std::string image, size_t offset, Field value) {
  image.replace(offset, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
  return image;
}

TEST(CodeSizeTest, ACubinTakesItsAllocatedSectionsButNoSharedMemory) {
  EXPECT_EQ(of_cuda(client::cubin(70 * kMiB, 48 << 10)), 70 * kMiB);
  EXPECT_EQ(of_cuda(client::cubin(0)), 0u);
}

TEST(CodeSizeTest, AFatbinTakesItsLargestCubin) {
  const std::string image = client::fatbin(client::cubin(3 * kMiB), client::cubin(5 * kMiB));
  EXPECT_EQ(of_cuda(image), 5 * kMiB);
  const AtTheEnd inner(image);
  const struct {
    uint32_t magic = 0x466243b1, version = 1;
    const void* content;
    const void* name = nullptr;
  } wrapper = {.content = inner.get()};
  EXPECT_EQ(cuda::image_bytes(&wrapper, Loading::eager), 5 * kMiB);
  constexpr size_t kInflated = 16 + 56;
  EXPECT_EQ(of_cuda(with(image, kInflated, 7 * kMiB)), 7 * kMiB) << "compressed";
}

TEST(CodeSizeTest, AFatbinWithoutCubinsTakesItsPtx) {
  const std::string text = ".version 7.0\n.global .align 4 .b8 room[1048576];\n";
  const std::string image = client::fatbin(text, text);
  constexpr size_t kKind = 16, kBytes = 24;
  uint64_t first = 0;
  memcpy(&first, &image[kBytes], sizeof first);
  const uint16_t ptx = 1;
  const std::string both = with(with(image, kKind, ptx), kKind + 64 + first, ptx);
  EXPECT_GE(of_cuda(both), kMiB);
  EXPECT_LE(of_cuda(both), kMiB + 4096);
}

TEST(CodeSizeTest, CodeThatComesLaterIsLeftOut) {
  const size_t flags =
      sizeof(Elf64_Ehdr) + 40 + 2 * sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_flags);
  const std::string shared = client::cubin(kMiB, 2 * kMiB);
  const std::string code =
      with(with(shared, flags, uint64_t{SHF_ALLOC | SHF_EXECINSTR}),
           flags - offsetof(Elf64_Shdr, sh_flags) + offsetof(Elf64_Shdr, sh_type),
           uint32_t{SHT_PROGBITS});
  EXPECT_EQ(of_cuda(code), 3 * kMiB);
  EXPECT_EQ(of_cuda(code, Loading::lazy), kMiB);
  constexpr size_t kInflated = 16 + 56;
  const std::string compressed = with(client::fatbin(code, ""), kInflated, 7 * kMiB);
  EXPECT_EQ(of_cuda(compressed), 7 * kMiB);
  EXPECT_EQ(of_cuda(compressed, Loading::lazy), 0u);
  const std::string text = ".version 7.0\n.global .b8 room[1000];";
  EXPECT_EQ(of_cuda(text + '\0', Loading::lazy), 1001u);
}

TEST(CodeSizeTest, PtxTakesItsVariablesAndItsLength) {
  const auto variables = [](const std::string& declarations) {
    const std::string text = "// made by hand\n/* .version */ .version 7.0\n" + declarations;
    return of_text(text) - text.size();
  };
  EXPECT_EQ(variables(".target sm_75\n"), 0u);
  EXPECT_EQ(variables(".visible .global .align 16 .b8 room[1048576];\n"), kMiB);
  EXPECT_EQ(variables(".global .align 4 .v2 .f32 grid[1024][512];"), 4 * kMiB);
  EXPECT_EQ(variables(".global .u64 one = 5;\n.global .s16 two[2] = {1, 2};"), 12u);
  EXPECT_EQ(variables(".extern .global .align 8 .b64 elsewhere[1048576];"), 0u);
  EXPECT_EQ(variables(".visible .entry f(.param .u64 p) { ld.global.u32 %r, [%p]; }"), 0u);
  EXPECT_EQ(variables("// .global .b8 none[4096];\n/* .global .b8 none[4096]; */"), 0u);
  EXPECT_EQ(variables(std::string(8192, ' ') + ".global .b8 far[4096];"), 4096u);
}

TEST(CodeSizeTest, WhatIsNoImageTellsNothing) {
  EXPECT_EQ(cuda::image_bytes(nullptr, Loading::eager), 0u);
  EXPECT_EQ(cuda::image_bytes(reinterpret_cast<const void*>(8), Loading::eager), 0u);
  EXPECT_EQ(of_text(""), 0u);
  EXPECT_EQ(of_text("any"), 0u);
  EXPECT_EQ(of_text("12 MiB"), 0u);
  EXPECT_EQ(of_cuda(client::amd_code_object(kMiB)), 0u);
  EXPECT_EQ(of_amd(client::cubin(kMiB)), 0u);
  EXPECT_EQ(cuda::file_bytes(nullptr, Loading::eager), 0u);
  EXPECT_EQ(cuda::file_bytes("/nowhere", Loading::eager), 0u);
  EXPECT_EQ(cuda::file_bytes("/dev/zero", Loading::eager), 0u);
  EXPECT_EQ(cuda::file_bytes("/proc/self/exe", Loading::eager), 0u);
}

TEST(CodeSizeTest, AFileIsReadAsTheImageInIt) {
  char path[] = "/tmp/code_size_XXXXXX";
  const int file = mkstemp(path);
  const std::string image = client::cubin(9 * kMiB);
  ASSERT_EQ(write(file, image.data(), image.size()), static_cast<ssize_t>(image.size()));
  EXPECT_EQ(cuda::file_bytes(path, Loading::eager), 9 * kMiB);
  const std::string code = client::amd_code_object(9 * kMiB);
  ASSERT_EQ(pwrite(file, code.data(), code.size(), 0), static_cast<ssize_t>(code.size()));
  EXPECT_EQ(hsa::code_object_bytes(ByteSource::in_file(file)), 9 * kMiB);
  close(file);
  unlink(path);
}

TEST(CodeSizeTest, ACodeObjectTakesAllUpToItsLastSegment) {
  EXPECT_EQ(of_amd(client::amd_code_object(49 << 10)), 49u << 10);
  // With a table of three segments behind it: two that are loaded, and one that is not.
  std::string two = client::amd_code_object(4096);
  const uint64_t table = two.size();
  const std::string first = two.substr(sizeof(Elf64_Ehdr), sizeof(Elf64_Phdr));
  two += first;
  two += with(with(first, offsetof(Elf64_Phdr, p_vaddr), uint64_t{8192}),
              offsetof(Elf64_Phdr, p_memsz), uint64_t{100});
  two += with(with(first, offsetof(Elf64_Phdr, p_type), uint32_t{PT_NOTE}),
              offsetof(Elf64_Phdr, p_vaddr), uint64_t{1 << 20});
  two = with(with(two, offsetof(Elf64_Ehdr, e_phoff), table), offsetof(Elf64_Ehdr, e_phnum),
             uint16_t{3});
  EXPECT_EQ(of_amd(two), 8292u);
}

// Each field of the headers with the values that are worst for whoever believes them, and each
// image cut off at each byte: all that is asked is that this ends, without a crash. Where a size is
// told, it is one that fits into 64 bits.
TEST(CodeSizeTest, HostileImagesDoNoHarm) {
  const std::string cubin = client::cubin(kMiB), amd = client::amd_code_object(kMiB);
  const std::string fat = client::fatbin(cubin, cubin);
  for (const std::string& image : {cubin, amd, fat}) {
    for (size_t length = 0; length < image.size(); ++length) {
      of_cuda(image.substr(0, length) + '\0');
      of_amd(image.substr(0, length));
    }
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{UINT32_MAX}, uint64_t{INT64_MAX}, UINT64_MAX,
          UINT64_MAX - 63, uint64_t{1} << 62}) {
      for (size_t at = 0; at + sizeof value <= image.size(); ++at) {
        of_cuda(with(image, at, value));
        of_amd(with(image, at, value));
      }
    }
  }
  constexpr size_t kVariable = offsetof(Elf64_Shdr, sh_size);
  const size_t sections = sizeof(Elf64_Ehdr) + 40;
  const auto sized = [&](uint64_t first, uint64_t second) {
    const std::string image = client::cubin(first);
    const size_t at = sections + 2 * sizeof(Elf64_Shdr);
    return with(with(image, at, uint32_t{1}), at + kVariable, second);
  };
  EXPECT_EQ(of_cuda(sized(kMiB, kMiB)), 2 * kMiB);
  EXPECT_EQ(of_cuda(sized(UINT64_MAX, kMiB)), 0u) << "more than 64 bits";
  EXPECT_EQ(of_text(".version 7.0 .global .b8 a[99999999999999999999];"), 0u);
  EXPECT_EQ(of_text(".version 7.0 .global .b64 a[4294967296][4294967296];"), 0u);
  EXPECT_EQ(of_amd(with(amd, sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_vaddr), UINT64_MAX)), 0u);
}

}  // namespace
}  // namespace fracgpu
