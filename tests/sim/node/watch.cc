// A node can be told to watch a height, which a cap says that no tenant passes. When one does, what
// led to it is gone by the time the test looks at the mark. So whoever is the first to climb past
// it writes down the rows at once, and keeps a copy of a file that the test names, of which the
// node knows nothing: the accounting of whoever was to hold the cap.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "sim/node/node.h"
#include "sim/node/reap.h"

namespace sim {
namespace {

// "<bytes>:<file to copy>:<where to>"; the rows go to "<where to>.rows".
struct Watch {
  uint64_t bytes = UINT64_MAX;
  std::string from, to;

  static Watch read(const char* text) {
    Watch watch;
    if (text == nullptr) return watch;
    std::istringstream parts(text);
    std::string bytes;
    if (std::getline(parts, bytes, ':') && std::getline(parts, watch.from, ':') &&
        std::getline(parts, watch.to, ':'))
      watch.bytes = std::strtoull(bytes.c_str(), nullptr, 10);
    return watch;
  }
};

}  // namespace

void Node::watch_height(int tenant, int dev, int climber) {
  static const Watch watch = Watch::read(std::getenv(kWatchVariable));
  const Tally tally = file_->tenant[tenant].device[dev].tally.load();
  if (tally.used * kGrain <= watch.bytes) return;
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
