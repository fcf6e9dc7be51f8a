// Memory that goes between the processes of a run: each exports some, and imports what others have
// pinned to a board, a file that all of them map (RANDOM_CALLS_BOARD).
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "actor_base.h"

namespace client {

struct Note {
  enum State : uint32_t { kFree, kHeld, kPinned };  // held: somebody reads or writes it
  std::atomic<uint32_t> state;
  std::atomic<uint32_t> importers;
  int32_t pid;
  uint64_t bytes;
  char token[240];  // what another process needs to import it

  bool take(State from) {
    uint32_t expected = from;
    return state.compare_exchange_strong(expected, kHeld);
  }
  void leave(State as) { state.store(as); }
};

inline constexpr size_t kNotes = 64;

inline Note* open_board() {
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

// `Ways` is an API's: Memory, with `bytes`; kWays of exporting it, by make(way, Memory*, token*),
// which takes_more(way) says may take more than the bytes; import(token, Memory*, mapped);
// let_go(const Memory&, imported), and kOutlivesFree: whether what is freed while others have it
// open goes on counting for who made it.
template <typename Ways>
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
        if (!pinned_.empty() && chance(60)) take_down(false);
        break;
      default:
        if (!imports_.empty()) drop_import();
    }
  }

  void clear() override {
    while (!imports_.empty()) drop_import();
    while (!pinned_.empty()) take_down(true);
  }

 private:
  struct Shared {
    typename Ways::Memory memory;
    Note* note;
  };
  static constexpr size_t kPage = 2u << 20;

  void pin_new() {
    Note* const note = &board_[below(kNotes)];
    if (pinned_.size() > 10 || !note->take(Note::kFree)) return;
    Shared one{.memory = {}, .note = note};
    one.memory.bytes = (size() + kPage - 1) / kPage * kPage;
    std::string token;
    const uint64_t way = below(Ways::kWays);
    const int rc = Ways::make(way, &one.memory, &token);
    if (!(Ways::takes_more(way) ? good(rc, "export") : good(rc, "export", one.memory.bytes))) {
      return note->leave(Note::kFree);
    }
    note->pid = getpid();
    note->importers = 0;
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
      Shared one{.memory = {}, .note = note};
      one.memory.bytes = note->bytes;
      if (good(Ways::import(note->token, &one.memory, chance(80)), "import")) {
        ++note->importers;
        imports_.push_back(one);
      }
    }
    note->leave(Note::kPinned);
  }

  void take_down(bool wait) {
    std::swap(pinned_[below(pinned_.size())], pinned_.back());
    const Shared one = pinned_.back();
    while (!one.note->take(Note::kPinned)) sched_yield();  // somebody is importing it
    const auto in_use = [&] { return !Ways::kOutlivesFree && one.note->importers > 0; };
    if (in_use() && !wait) return one.note->leave(Note::kPinned);
    while (in_use()) sched_yield();
    good(Ways::let_go(one.memory, false), "let go of an export");
    pinned_.pop_back();
    one.note->leave(Note::kFree);
  }

  void drop_import() {
    std::swap(imports_[below(imports_.size())], imports_.back());
    good(Ways::let_go(imports_.back().memory, true), "let go of an import");
    // Where exports outlive their notes, this may be the next one's: nobody asks for it then.
    --imports_.back().note->importers;
    imports_.pop_back();
  }

  Note* const board_ = open_board();
  std::vector<Shared> pinned_;
  std::vector<Shared> imports_;
};

}  // namespace client
