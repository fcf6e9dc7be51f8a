// Hostile text where a person or an administrator writes: the limit grammar, the ceiling file and
// each environment variable. What must come out: accepted, or one line that says why not.
//
// Input: the first byte chooses the reader, the rest is its text.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "shim/config/ceiling.h"
#include "shim/config/identity.h"
#include "shim/process/configuration.h"
#include "shim/process/process.h"
// The level is read once in a process; only from inside can it be read again.
#include "shim/base/report.cc"

namespace {

using namespace fracgpu;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  abort();
}

void require_one_line(const Message& error) {
  require(!error.empty(), "a refusal says why");
  for (const char c : error.view()) require(c >= ' ' && c <= '~', "in one line of plain text");
}

// A file system of our own at the ceiling file's place. False where that is not permitted.
bool own_ceiling_directory() {
  const std::string file = kCeilingFile;
  const std::string directory = file.substr(0, file.rfind('/'));
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", "none", MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/etc", "tmpfs", 0, "size=1m") == 0 && mkdir(directory.c_str(), 0755) == 0;
}

void read_configuration() {
  Configuration configuration;
  Message error;
  if (!configuration.read(error)) require_one_line(error);
}

void read_limit(std::string_view text) {
  Limits limits;
  Amount amount;
  Message error;
  if (!limits.parse(text, error)) {
    require_one_line(error);
    require(limits.empty(), "what is refused leaves nothing behind");
  }
  error.clear();
  if (!parse_amount(text, amount, error)) return require_one_line(error);
  for (const uint64_t physical : {uint64_t{1}, uint64_t{80} << 30, ~uint64_t{0}}) {
    const uint64_t units = amount.of(physical);
    require(units % layout::kUnit == 0 && units > 0, "an amount is in whole units");
    require(units <= physical || physical < layout::kUnit, "and at most the device");
  }
}

void read_ceiling(std::string_view text) {
  static const bool own = own_ceiling_directory();
  if (!own) return;
  const int fd = open(kCeilingFile, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
  require(fd >= 0 && write(fd, text.data(), text.size()) >= 0, "the ceiling can be written");
  close(fd);
  unsetenv("FRACGPU_MEMORY_LIMIT");
  read_configuration();
  unlink(kCeilingFile);
}

void read_tenant(const std::string& text) {
  setenv("FRACGPU_TENANT", text.c_str(), 1);
  TenantName name;
  Message error;
  if (!tenant_name(name, error)) return require_one_line(error);
  require(name.view().find('/') == name.view().npos && name.size() > 0 && name.c_str()[0] != '.',
          "a tenant's name cannot lead elsewhere");
}

void read_log(const std::string& level, const std::string& file) {
  setenv("FRACGPU_LOG", level.c_str(), 1);
  setenv("FRACGPU_LOG_FILE", file.c_str(), 1);
  current_level.store(kUnknown);
  log_file.forget();
  report(Level::warn, "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  // Lines of a log that cannot be opened go to stderr.
  static const int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string as_variable(text.substr(0, text.find('\0')));
  switch (data[0] % 6) {
    case 0:
      read_limit(text);
      break;
    case 1:
      read_ceiling(text);
      break;
    case 2:
      setenv("FRACGPU_MEMORY_LIMIT", as_variable.c_str(), 1);
      read_configuration();
      break;
    case 3:
      read_tenant(as_variable);
      break;
    default: {
      const int loud = dup(STDERR_FILENO);
      dup2(quiet, STDERR_FILENO);
      // A name below a file: it may not lead anywhere where something would be written.
      if (data[0] % 6 == 4) read_log(as_variable, "");
      if (data[0] % 6 == 5) read_log("warn", "/dev/null/" + as_variable);
      dup2(loud, STDERR_FILENO);
      close(loud);
    }
  }
  return 0;
}
