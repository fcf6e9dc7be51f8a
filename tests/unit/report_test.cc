// Where lines go.
#include "shim/base/report.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/unit/child.h"

namespace fracgpu {
namespace {

std::string whole(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// In a folder that goes with it.
class ReportTest : public testing::Test {
 protected:
  ~ReportTest() override {
    for (const std::string& path : {first_, second_}) unlink(path.c_str());
    rmdir(folder_.c_str());
  }

  static std::string make_folder() {
    std::string name = testing::TempDir() + "report-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }

  const std::string folder_ = make_folder();
  const std::string first_ = folder_ + "/first", second_ = folder_ + "/second";
};

// A program that changes its environment neither moves the lines nor races with them.
TEST_F(ReportTest, TheFileIsTheOneThatTheFirstLineWentTo) {
  EXPECT_EQ(status_of_child([&] {
              setenv("FRACGPU_LOG_FILE", first_.c_str(), 1);
              write_line(Level::error, "one");
              setenv("FRACGPU_LOG_FILE", second_.c_str(), 1);
              write_line(Level::error, "two");
              unsetenv("FRACGPU_LOG_FILE");
              write_line(Level::error, "three");
              return status_of_child([] { return write_line(Level::error, "four"), 0; });
            }),
            0);
  const std::string lines = whole(first_);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4) << lines;
  for (const char* const line : {"one\n", "two\n", "three\n", "four\n"}) {
    EXPECT_NE(lines.find(line), std::string::npos) << lines;
  }
  EXPECT_NE(access(second_.c_str(), F_OK), 0);
}

// A process may call itself anything, and its name is in other processes' lines.
TEST_F(ReportTest, NothingSteersATerminalOrBeginsAnotherLine) {
  EXPECT_EQ(status_of_child([&] {
              setenv("FRACGPU_LOG_FILE", first_.c_str(), 1);
              write_line(Level::error, "pid 7 (\x1b[2J\nroot: \x9b\x7f ) holds the most");
              return 0;
            }),
            0);
  const std::string line = whole(first_);
  EXPECT_TRUE(line.ends_with("error: pid 7 (?[2J?root: ?? ) holds the most\n")) << line;
}

TEST_F(ReportTest, AFileThatIsNamedTooLateIsNotUsed) {
  EXPECT_EQ(status_of_child([&] {
              unsetenv("FRACGPU_LOG_FILE");
              write_line(Level::error, "on stderr");
              setenv("FRACGPU_LOG_FILE", first_.c_str(), 1);
              write_line(Level::error, "on stderr as well");
              return 0;
            }),
            0);
  EXPECT_NE(access(first_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace fracgpu
