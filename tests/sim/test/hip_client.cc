// Starting and driving the HIP client. Newer releases need a newer C library than the system's and
// come with their own loader, which then runs the program.
#include "sim/test/hip_client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace simtest {
namespace {

std::string output_of(const std::string& command, int* status) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char piece[256];
  while (fgets(piece, sizeof piece, pipe) != nullptr) text += piece;
  *status = pclose(pipe);
  return text;
}

// Tests run side by side, and one of them at a time may fetch.
bool fetch(const std::string& part, const std::string& where, std::string* why) {
  mkdir(TEST_PARTS, 0777);
  const int lock = open((where + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  flock(lock, LOCK_EX);
  int status = -1;
  *why = output_of(std::string(TEST_FETCH) + " " + part + " " + where + " 2>&1", &status);
  close(lock);
  return status == 0;
}

std::string first_match(const std::string& pattern) {
  glob_t found = {};
  std::string path;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) path = found.gl_pathv[0];
  globfree(&found);
  return path;
}

}  // namespace

std::vector<std::string> hip_command(const HipRelease& release, std::string* why) {
  if (*SIM_SANITIZED != '\0') {
    *why = "a sanitizer's runtime would have to be in the program too";
    return {};
  }
  if (!release.fetched) {
    // The loader knows where the system keeps it; only a child may load it.
    const std::string library = "libamdhip64.so.5";
    std::string path = first_match("/usr/lib/*/" + library + ".2*");
    if (path.empty()) {
      *why = library + " of 5.2 is not on this machine";
      return {};
    }
    return {TEST_HIP_CLIENT, path};
  }
  const std::string part = std::string("hip-") + release.name;
  const std::string where = std::string(TEST_PARTS) + "/" + part;
  if (!fetch(part, where, why)) return {};
  const std::string libraries = first_match(where + "/usr/lib/*-linux-gnu");
  const std::string loader = first_match(where + "/lib64/ld-linux-*.so.*");
  const std::string library = first_match(libraries + "/libamdhip64.so.?");
  return {loader, "--library-path", std::string(SIM_FOLDER) + ":" + libraries, TEST_HIP_CLIENT,
          library};
}

HipClient::HipClient(const std::vector<std::string>& command) {
  int up[2], down[2];
  if (pipe2(up, O_CLOEXEC) != 0 || pipe2(down, O_CLOEXEC) != 0) abort();
  fflush(stdout);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(down[0], 0);
    dup2(up[1], 1);
    // Copies by the engine and not by a kernel, which nobody would run.
    setenv("GPU_FORCE_BLIT_COPY_SIZE", "0", 1);
    // A loader that was given its path must not look into the system's folders by this one.
    if (command.size() > 2)
      unsetenv("LD_LIBRARY_PATH");
    else
      setenv("LD_LIBRARY_PATH", SIM_FOLDER, 1);
    std::vector<char*> arguments;
    for (const std::string& argument : command)
      arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(up[1]);
  close(down[0]);
  in_ = up[0];
  out_ = down[1];
}

HipClient::~HipClient() {
  close(out_);
  close(in_);
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::vector<std::string> HipClient::ask(const std::string& line) {
  const std::string sent = line + "\n";
  if (write(out_, sent.data(), sent.size()) != static_cast<ssize_t>(sent.size()))
    ADD_FAILURE() << "the client is gone before: " << line;
  std::string text;
  char byte;
  while (read(in_, &byte, 1) == 1 && byte != '\n') text += byte;
  if (text.empty()) ADD_FAILURE() << "the client gives no answer to: " << line;
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) words.push_back("-1");
  return words;
}

int HipClient::result(const std::string& line) {
  return std::atoi(ask(line)[0].c_str());
}

std::string HipClient::make(const std::string& line) {
  const std::vector<std::string> words = ask(line);
  EXPECT_EQ(words[0], "0") << line;
  EXPECT_GE(words.size(), 2u) << line;
  return words.size() > 1 ? words[1] : "";
}

unsigned long long HipClient::number(const std::string& line, size_t word) {
  const std::vector<std::string> words = ask(line);
  EXPECT_EQ(words[0], "0") << line;
  EXPECT_GT(words.size(), word) << line;
  return words.size() > word ? std::strtoull(words[word].c_str(), nullptr, 10) : 0;
}

void HipClient::kill() {
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool HipClient::finish() {
  close(out_);
  out_ = -1;
  int status = -1;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace simtest
