// See reader.h. A separate thread decodes ahead of the thread that visits the events: both take
// about the same time.
#include "tools/recording/reader.h"

#include <fmt/core.h>

#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "shim/base/text.h"
#include "tools/recording/chunk_source.h"
#include "tools/recording/event_codec.h"
#include "tools/recording/table_codec.h"
#include "tools/recording/varint.h"

namespace fracgpu::recording {
namespace {

Header header_in(const ChunkSource::Chunk& chunk) {
  if (chunk.header.type != ChunkType::header) throw Damage("no header");
  Decoder in(chunk.content);
  Header header;
  header.began_unix_ns = in.number();
  header.command = in.text(kMostBytesInText);
  header.host = in.text(kMostBytesInText);
  header.tool_version = in.text(kMostBytesInText);
  header.stacks = in.number() != 0;
  header.attached = in.number() != 0;
  if (!in.at_end()) throw Damage("a header that is too long");
  return header;
}

// A chunk's part of the recording.
struct Batch {
  Tables added{{}, {}, {}, {}, {}};
  std::vector<Event> events;
};

// Turns chunks into batches, until the file ends or is damaged.
class BatchSource {
 public:
  BatchSource(ChunkSource& chunks, std::string name) : chunks_(chunks), name_(std::move(name)) {
    chunks_.rewind();
    chunks_.next();  // the header
  }

  // False at the end.
  bool next(Batch& batch) {
    batch.added = {{}, {}, {}, {}, {}};
    batch.events.clear();
    if (ended_) return false;
    try {
      return read(batch);
    } catch (const CutOff&) {
      end(fmt::format("{} was cut off at byte {}, or is still being written", name_,
                      chunks_.chunk_begin()));
    } catch (const Damage& damage) {
      end(fmt::format("{} is damaged at byte {} ({})", name_, chunks_.chunk_begin(),
                      damage.what()));
    }
    return !batch.events.empty();
  }

  const std::string& damage() const { return damage_; }

 private:
  bool read(Batch& batch) {
    const ChunkSource::Chunk chunk = chunks_.next();
    if (chunk.header.type == ChunkType::end) {
      ended_ = true;
      if (Decoder(chunk.content).number() != events_) throw Damage("events are missing");
      if (!chunks_.at_end()) throw Damage("there is more behind its end");
      return false;
    }
    if (chunk.header.type != ChunkType::events) throw Damage("a second header");
    Decoder in(chunk.content);
    Decoder tables;
    DecodedColumns columns;
    std::vector<Decoder*> all{&tables};
    for (Decoder* column : columns.all()) all.push_back(column);
    std::vector<uint64_t> lengths(all.size());
    for (uint64_t& length : lengths) length = in.number();
    for (size_t i = 0; i < all.size(); ++i) *all[i] = in.part(lengths[i]);
    if (!in.at_end()) throw Damage("bytes behind the columns");
    decode_entries(tables, sizes_, batch.added);
    decoder_.open(columns, sizes_);
    batch.events.reserve(chunk.header.events);
    for (uint32_t i = 0; i < chunk.header.events; ++i) {
      Event event;
      decoder_.next(event);
      batch.events.push_back(event);
    }
    if (!decoder_.at_end()) throw Damage("bytes behind the events");
    events_ += batch.events.size();
    return true;
  }

  void end(std::string damage) {
    ended_ = true;
    damage_ = std::move(damage) + "; what precedes that is whole";
  }

  ChunkSource& chunks_;
  std::string name_;
  TableSizes sizes_;
  EventDecoder decoder_;
  uint64_t events_ = 0;
  bool ended_ = false;
  std::string damage_;
};

// Batches that a thread prepares ahead: only a few, so that memory stays small.
class ReadAhead {
 public:
  explicit ReadAhead(BatchSource& source) : source_(source), thread_([this] { fill(); }) {}
  ~ReadAhead() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Gives the last batch back and takes the next one. False at the end.
  bool next(Batch& batch) {
    std::unique_lock lock(mutex_);
    spare_.push_back(std::move(batch));
    changed_.notify_all();
    changed_.wait(lock, [this] { return !full_.empty() || ended_; });
    if (full_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return false;
    }
    batch = std::move(full_.front());
    full_.pop_front();
    return true;
  }

 private:
  void fill() {
    std::exception_ptr error;
    try {
      while (make_one()) {
      }
    } catch (...) {  // errors of the host: no memory, no disk
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    ended_ = true;
    changed_.notify_all();
  }

  bool make_one() {
    Batch batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !spare_.empty() || stopped_; });
      if (stopped_) return false;
      batch = std::move(spare_.back());
      spare_.pop_back();
    }
    if (!source_.next(batch)) return false;
    const std::lock_guard lock(mutex_);
    full_.push_back(std::move(batch));
    changed_.notify_all();
    return true;
  }

  BatchSource& source_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> full_;
  std::vector<Batch> spare_{2};
  std::exception_ptr error_;
  bool stopped_ = false, ended_ = false;
  std::thread thread_;
};

template <typename Entry>
void append(std::vector<Entry>& added, std::vector<Entry>& all) {
  all.insert(all.end(), std::make_move_iterator(added.begin()),
             std::make_move_iterator(added.end()));
}

void append(Tables& added, Tables& all) {
  append(added.processes, all.processes);
  append(added.devices, all.devices);
  append(added.modules, all.modules);
  append(added.texts, all.texts);
  append(added.stacks, all.stacks);
}

}  // namespace

struct Reader::State {
  std::string path;
  ChunkSource chunks{path};
  Header header{};
  Tables tables{};
  std::string damage{};
};

Reader::Reader(const std::string& path) : state_(new State{path}) {
  try {
    state_->header = header_in(state_->chunks.next());
  } catch (const CutOff&) {
    throw std::runtime_error(
        fmt::format("{} was cut off before its first event", fracgpu::quoted(path).view()));
  } catch (const Damage& damage) {
    throw std::runtime_error(fmt::format("{} is a recording whose beginning is damaged ({})",
                                         fracgpu::quoted(path).view(), damage.what()));
  }
}

Reader::~Reader() = default;

const Header& Reader::header() const {
  return state_->header;
}

void Reader::for_each(const std::function<void(const Event&, const Tables&)>& visit) {
  state_->tables = {};
  BatchSource source(state_->chunks, std::string(fracgpu::quoted(state_->path).view()));
  {
    ReadAhead ahead(source);
    for (Batch batch; ahead.next(batch);) {
      append(batch.added, state_->tables);
      for (const Event& event : batch.events) visit(event, state_->tables);
    }
  }
  state_->damage = source.damage();
}

const Tables& Reader::tables() const {
  return state_->tables;
}

const std::string& Reader::damage() const {
  return state_->damage;
}

}  // namespace fracgpu::recording
