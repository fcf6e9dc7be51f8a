// A node can be told to watch a height, which a cap says that no tenant passes. When one does, what
// led to it is gone by the time the test looks at the mark. So whoever is the first to climb past
// it writes down the rows at once, and keeps a copy of a file that the test names, of which the
// node knows nothing: the accounting of whoever was to hold the cap.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/node/node.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

// "<height>:<file to copy>:<where to>"; the rows go to "<where to>.rows". The height is a number of
// bytes, or, where it changes, the path of a file with that number in its first eight bytes.
struct Watch {
  uint64_t fixed = UINT64_MAX;
  const volatile uint64_t* height = &fixed;
  std::string from, to;

  void take_height(const std::string& text) {
    fixed = std::strtoull(text.c_str(), nullptr, 10);
    if (text[0] != '/') return;
    const int fd = ::open(text.c_str(), O_RDONLY | O_CLOEXEC);
    void* const word = mmap(nullptr, sizeof *height, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (word != MAP_FAILED) height = static_cast<const volatile uint64_t*>(word);
  }

  explicit Watch(const char* text) {
    if (text == nullptr) return;
    std::istringstream parts(text);
    std::string first;
    if (std::getline(parts, first, ':') && std::getline(parts, from, ':') &&
        std::getline(parts, to, ':')) {
      take_height(first);
    }
  }
};

}  // namespace

void Node::watch_height(int tenant, int dev, int climber) {
  static const Watch watch(std::getenv(kWatchVariable));
  const Tally tally = file_->tenant[tenant].device[dev].tally.load();
  if (tally.used * kGrain <= *watch.height) return;
  const std::string path = watch.to + ".rows";
  const int first = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (first < 0) return;
  ::close(first);
  std::ofstream(watch.to) << std::ifstream(watch.from).rdbuf();

  NodeDescriptor life(path_);
  std::ofstream rows(path);
  rows << "used " << tally.used << ", peak " << tally.peak << " grains; epoch "
       << file_->header.epoch.load() << '\n';
  for (int i = 0; i < kMaxProcesses; ++i) {
    const ProcessRow& row = file_->process[i];
    if (!in_use(row)) continue;
    const bool dead = i != climber && life.fd() >= 0 && !life.held_elsewhere(kRowLockBase + i);
    rows << "pid " << row.pid << ": context " << row.device[dev].context_bytes.load() / kGrain
         << ", allocations " << row.device[dev].allocation_bytes.load() / kGrain << " grains"
         << (dead ? ", dead" : "") << (row.busy.load() != 0 ? ", busy" : "")
         << (i == climber ? ", climbed\n" : "\n");
  }
}

}  // namespace sim
