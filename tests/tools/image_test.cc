// What a container engine may say of a container before it starts.
#include "tools/cdi/image.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "tests/unit/child.h"

namespace fracgpu::tools::cdi {
namespace {

class ImageTest : public testing::Test {
 protected:
  ImageTest() {
    EXPECT_NE(mkdtemp(bundle_.data()), nullptr);
    std::filesystem::create_directory(bundle_ + "/rootfs");
  }
  ~ImageTest() override { std::filesystem::remove_all(bundle_); }

  // What is wrong with a container whose root folder the configuration names so; empty when
  // nothing is. In a child, since the check moves the process into the folder.
  std::string complaint_about(const std::string& root) const {
    std::ofstream(bundle_ + "/config.json") << R"({"root": {"path": ")" << root << R"("}})";
    const std::string result = bundle_ + "/result";
    std::ofstream file(result);
    EXPECT_EQ(status_of_child([&] {
                try {
                  check_image(R"({"bundle": ")" + bundle_ + R"("})");
                } catch (const std::runtime_error& error) {
                  file << error.what() << std::flush;
                }
                return 0;
              }),
              0);
    std::string line;
    std::getline(std::ifstream(result), line);
    return line;
  }

  std::string bundle_ = testing::TempDir() + "bundle-XXXXXX";
};

TEST_F(ImageTest, NoRootFolderIsNamed) {
  const std::string line = complaint_about("");
  EXPECT_NE(line.find("root folder"), std::string::npos) << line;
  EXPECT_NE(line.find("empty"), std::string::npos) << line;
}

TEST_F(ImageTest, RootFolderByItsFullPathOrInTheBundle) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for chroot";
  EXPECT_EQ(complaint_about("rootfs"), "");
  EXPECT_EQ(complaint_about(bundle_ + "/rootfs"), "");
  EXPECT_NE(complaint_about("elsewhere").find("elsewhere"), std::string::npos);
}

}  // namespace
}  // namespace fracgpu::tools::cdi
