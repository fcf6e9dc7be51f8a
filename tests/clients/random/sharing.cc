// Memory that goes between the processes of a run: each exports some, and imports what others have
// pinned to a board, a file that all of them map (RANDOM_CALLS_BOARD). What is taken down and freed
// may still be open elsewhere, and costs its exporter as long as it is.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "tests/clients/share.h"

namespace client {
namespace {

constexpr size_t kPage = 2u << 20;
constexpr size_t kNotes = 64;

struct Note {
  enum State : uint32_t { kFree, kHeld, kPinned };  // held: somebody reads or writes it
  std::atomic<uint32_t> state;
  int32_t pid;
  uint64_t bytes;
  char token[240];

  bool take(State from) {
    uint32_t expected = from;
    return state.compare_exchange_strong(expected, kHeld);
  }
  void leave(State as) { state.store(as); }
};

Note* open_board() {
  const char* path = std::getenv("RANDOM_CALLS_BOARD");
  const int fd = path != nullptr ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  void* notes = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, kNotes * sizeof(Note)) == 0) {
    notes = mmap(nullptr, kNotes * sizeof(Note), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (fd >= 0) close(fd);
  if (notes != MAP_FAILED) return static_cast<Note*>(notes);
  std::fprintf(stderr, "RANDOM_CALLS_BOARD: no board\n");
  std::_Exit(3);
}

class Sharing : public Actor {
 public:
  using Actor::Actor;

  void move() override {
    switch (below(6)) {
      case 0:
        pin_new();
        break;
      case 1:
      case 2:
        import_one();
        break;
      case 3:
        if (chance(60)) take_down();
        break;
      default:
        drop_import();
    }
  }

  void clear() override {
    while (!imports_.empty()) drop_import();
    while (!pinned_.empty()) take_down();
  }

 private:
  struct Pinned {
    Shared memory;
    Note* note;
  };

  void pin_new() {
    Note* const note = &board_[below(kNotes)];
    if (pinned_.size() > 10 || !note->take(Note::kFree)) return;
    Pinned one{.memory = {}, .note = note};
    one.memory.bytes = (size() + kPage - 1) / kPage * kPage;
    std::string token;
    const auto way = static_cast<Way>(below(3));
    if (!good(export_memory(way, &one.memory, &token), "export", one.memory.bytes)) {
      return note->leave(Note::kFree);
    }
    note->pid = getpid();
    note->bytes = one.memory.bytes;
    std::snprintf(note->token, sizeof note->token, "%s", token.c_str());
    note->leave(Note::kPinned);
    pinned_.push_back(one);
  }

  // While a note is held its exporter cannot take it down, so that the import must succeed.
  void import_one() {
    Note* const note = &board_[below(kNotes)];
    if (imports_.size() > 20 || !note->take(Note::kPinned)) return;
    if (note->pid != getpid()) {
      Shared memory;
      memory.bytes = note->bytes;
      const bool mapped = chance(80);
      if (good(import_memory(note->token, &memory, mapped), "import")) imports_.push_back(memory);
    }
    note->leave(Note::kPinned);
  }

  void take_down() {
    if (pinned_.empty()) return;
    std::swap(pinned_[below(pinned_.size())], pinned_.back());
    const Pinned one = pinned_.back();
    while (!one.note->take(Note::kPinned)) {  // somebody is importing it
    }
    one.note->leave(Note::kFree);
    free(one.memory);
    pinned_.pop_back();
  }

  void drop_import() {
    if (imports_.empty()) return;
    std::swap(imports_[below(imports_.size())], imports_.back());
    free(imports_.back());
    imports_.pop_back();
  }

  void free(const Shared& memory) {
    good(let_go(memory), memory.imported ? "let go of an import" : "let go of an export");
    if (memory.pool != nullptr) good(call("cuMemPoolDestroy", memory.pool), "cuMemPoolDestroy");
  }

  Note* const board_ = open_board();
  std::vector<Pinned> pinned_;
  std::vector<Shared> imports_;
};

}  // namespace

std::unique_ptr<Actor> make_sharing(const World& world, uint64_t seed) {
  return std::make_unique<Sharing>(world, seed);
}

}  // namespace client
