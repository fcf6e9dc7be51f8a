// The limit grammar: what is accepted comes to the right bytes, everything else is refused with a
// message that names the wrong text and says what is accepted.
#include "shim/config/limits.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace fracgpu {
namespace {

constexpr uint64_t kGiB = 1ull << 30;
constexpr char kUuid[] = "GPU-0a1b2c3d-0000-1111-2222-333344445555";

uint64_t cap(std::string_view text, int index = 0, const char* uuid = kUuid,
             uint64_t physical = 80 * kGiB) {
  Limits limits;
  Message error;
  EXPECT_TRUE(limits.parse(text, error)) << text << ": " << error.view();
  return limits.cap_for({.key = uuid, .index = index}, physical);
}

TEST(LimitsTest, AbsoluteAmounts) {
  EXPECT_EQ(cap("8GiB"), 8 * kGiB);
  EXPECT_EQ(cap("8gb"), 8 * kGiB);  // as in the image tags, not 8e9
  EXPECT_EQ(cap("8G"), 8 * kGiB);
  EXPECT_EQ(cap("8Gi"), 8 * kGiB);  // as Kubernetes writes it
  EXPECT_EQ(cap("512mi"), kGiB / 2);
  EXPECT_EQ(cap("1048576Ki"), kGiB);
  EXPECT_EQ(cap("0.0625Ti"), 64 * kGiB);
  EXPECT_EQ(cap(" 8 GiB "), 8 * kGiB);
  EXPECT_EQ(cap("512MiB"), kGiB / 2);
  EXPECT_EQ(cap("1.5GiB"), kGiB + kGiB / 2);
  EXPECT_EQ(cap("1048576KiB"), kGiB);
  EXPECT_EQ(cap("1073741824B"), kGiB);
  EXPECT_EQ(cap("0.0625TiB"), 64 * kGiB);
}

TEST(LimitsTest, RelativeAmounts) {
  EXPECT_EQ(cap("50%"), 40 * kGiB);
  EXPECT_EQ(cap("0.5"), 40 * kGiB);
  EXPECT_EQ(cap(".5"), 40 * kGiB);
  EXPECT_EQ(cap("0.125"), 10 * kGiB);
  EXPECT_EQ(cap("12.5%"), 10 * kGiB);
  EXPECT_EQ(cap("100%"), 80 * kGiB);
  EXPECT_EQ(cap("1.0"), 80 * kGiB);
}

TEST(LimitsTest, NeverAboveTheDeviceAndAlwaysWholeUnits) {
  EXPECT_EQ(cap("200GiB"), 80 * kGiB);
  EXPECT_EQ(cap("33.3%") % 512, 0u);
  EXPECT_EQ(cap("513B"), 512u);
  EXPECT_EQ(cap("0.000000001"), 512u) << "a cap is never 0";
}

TEST(LimitsTest, PerDevice) {
  EXPECT_EQ(cap("0=8GiB,1=25%", 0), 8 * kGiB);
  EXPECT_EQ(cap("0=8GiB,1=25%", 1), 20 * kGiB);
  EXPECT_EQ(cap("0=8GiB,1=25%", 2), UINT64_MAX) << "a device that no item covers is not capped";
  EXPECT_EQ(cap("4GiB,1=8GiB", 1), 8 * kGiB) << "the selector beats the general item";
  EXPECT_EQ(cap("4GiB,1=8GiB", 0), 4 * kGiB);
  EXPECT_EQ(cap(std::string(kUuid) + "=8GiB", 5), 8 * kGiB);
  EXPECT_EQ(cap("gpu-0A1B2C3D-0000-1111-2222-333344445555=8GiB", 5), 8 * kGiB);
  EXPECT_EQ(cap(std::string(kUuid) + "=8GiB", 0, "GPU-ffffffff-0000-1111-2222-333344445555"),
            UINT64_MAX);
  EXPECT_EQ(cap("0=8GiB," + std::string(kUuid) + "=2GiB", 0), 2 * kGiB) << "the lower of two";
}

TEST(LimitsTest, MalformedTextIsRefusedAndNamed) {
  const char* const kWrong[] = {
      "",
      " ",
      "8",
      "1",
      "0",
      "8 GB GB",
      "8XB",
      "GiB",
      "-1GiB",
      "+8GiB",
      "8GiB,",
      ",8GiB",
      "8GiB;",
      "0%",
      "101%",
      "1.5",
      "0.0",
      "1e9B",
      "0x10GiB",
      "8GiB 4GiB",
      "=8GiB",
      "0=",
      "0==8GiB",
      "a=8GiB",
      "-1=8GiB",
      "0.5=8GiB",
      "GPU-=8GiB",
      "GPU-0a1b2c3d=8GiB",
      "1=2=3GiB",
      "8GiB,4GiB",
      "0=8GiB,0=4GiB",
      "9999999999999999999999GiB",
      "17179869184GiB",
      "nan",
      "inf",
      "8,5GiB",
      "511B",
      "0.0000000001",
      "99999=1GiB",
      "\x01\xff",
      "8G\nB",
  };
  for (const char* text : kWrong) {
    Limits limits;
    Message error;
    EXPECT_FALSE(limits.parse(text, error)) << "'" << text << "'";
    EXPECT_FALSE(error.empty()) << "'" << text << "'";
    EXPECT_TRUE(limits.empty()) << "'" << text << "'";
    EXPECT_NE(error.view().find("accepted: "), std::string_view::npos) << error.view();
    for (const char c : error.view()) EXPECT_GE(c, ' ') << "garbles the log: " << error.view();
  }
}

TEST(LimitsTest, TooManyItems) {
  std::string text = "0=1GiB";
  for (int i = 1; i <= 256; ++i) text += "," + std::to_string(i) + "=1GiB";
  Limits limits;
  Message error;
  EXPECT_FALSE(limits.parse(text, error));
  EXPECT_TRUE(limits.parse(std::string_view(text).substr(0, text.rfind(',')), error));
}

TEST(LimitsTest, RandomBytesNeverCrashAndNeverGiveZero) {
  std::mt19937 random(20240501);
  const std::string_view alphabet = "0123456789.,=%GgMmKkTtiIbB -+GPU-abcdef\x80\n";
  for (int i = 0; i < 200000; ++i) {
    std::string text(random() % 24, ' ');
    for (char& c : text) c = alphabet[random() % alphabet.size()];
    Limits limits;
    Message error;
    if (limits.parse(text, error)) {
      EXPECT_GE(limits.cap_for({.key = kUuid, .index = 0}, 80 * kGiB), 512u) << text;
    } else {
      EXPECT_FALSE(error.empty()) << text;
    }
  }
}

TEST(LimitsTest, UnknownSelector) {
  Limits limits;
  Message error;
  ASSERT_TRUE(limits.parse("8GiB,0=1GiB,7=1GiB", error));
  const auto exists = [](const Selector& selector) { return selector.index < 2; };
  EXPECT_EQ(limits.unknown_selector(exists), "7");
  ASSERT_TRUE(limits.parse("8GiB,0=1GiB", error));
  EXPECT_TRUE(limits.unknown_selector(exists).empty());
}

}  // namespace
}  // namespace fracgpu
