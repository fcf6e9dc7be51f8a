// What a launch runs in run_storm.py, and the judge of it: witness DIR ID PARTS MS [daemon].
//
// It reports which GPUs it was given, holds them for MS milliseconds, and looks whether those who
// hold the same ones at this moment come to more than a whole GPU. It trusts nothing of the command
// under test: a witness is there as long as the kernel keeps its lock on its own file in DIR. With
// `daemon`, a child that closed every descriptor holds the GPUs for as long again.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>

namespace {

constexpr int kWhole = 8;  // parts of a GPU

// The file stays open and locked until the process ends.
void report(const std::string& path, const std::string& gpus, const char* eighths) {
  const int fd = open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  flock(fd, LOCK_EX);
  dprintf(fd, "%d %s %s\n", getpid(), eighths, gpus.c_str());
}

bool is_there(int fd) {
  const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;
  if (free) flock(fd, LOCK_UN);
  return !free;
}

// Counts everybody who is there now, by GPU; the caller among them.
void judge(const std::string& directory) {
  std::map<std::string, int> held;
  DIR* const entries = opendir(directory.c_str());
  while (const dirent* entry = readdir(entries)) {
    if (strncmp(entry->d_name, "at-", 3) != 0) continue;
    const int fd = open((directory + "/" + entry->d_name).c_str(), O_RDONLY | O_CLOEXEC);
    char text[1024] = "";
    if (fd >= 0 && read(fd, text, sizeof text - 1) > 0 && is_there(fd)) {
      std::istringstream words(text);
      int pid = 0, eighths = 0;
      std::string gpus;
      words >> pid >> eighths >> gpus;
      std::istringstream list(gpus);
      for (std::string gpu; std::getline(list, gpu, ',');) held[gpu] += eighths;
    }
    if (fd >= 0) close(fd);
  }
  closedir(entries);
  for (const auto& [gpu, eighths] : held) {
    if (eighths <= kWhole) continue;
    const int fd = open((directory + "/violations").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0644);
    dprintf(fd, "%s has %d of %d parts\n", gpu.c_str(), eighths, kWhole);
    close(fd);
  }
}

void hold(const std::string& directory, const std::string& id, const char* eighths, long ms,
          int ready = -1) {
  const char* const gpus = getenv("CUDA_VISIBLE_DEVICES");
  // One at a time reports, so that the later of two sees the earlier.
  const int turn = open((directory + "/turn").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  flock(turn, LOCK_EX);
  report(directory + "/at-" + id, gpus == nullptr ? "" : gpus, eighths);
  judge(directory);
  flock(turn, LOCK_UN);
  if (ready >= 0) close(ready);
  usleep(static_cast<useconds_t>(ms) * 1000);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const std::string directory = argv[1], id = argv[2];
  const long ms = atol(argv[4]);
  if (argc == 5) {
    hold(directory, id, argv[3], ms);
    return 0;
  }
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return 3;
  if (fork() == 0) {
    setsid();
    for (int fd = 0; fd < 4096; ++fd) {
      if (fd != ready[1]) close(fd);
    }
    hold(directory, id, argv[3], ms, ready[1]);
    return 0;
  }
  // The child is there before its parent goes.
  close(ready[1]);
  char nothing;
  return read(ready[0], &nothing, 1) == 0 ? 0 : 4;
}
