// See writer.h.
#include "tools/recording/writer.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/recording/chunk.h"
#include "tools/recording/event_codec.h"
#include "tools/recording/output_file.h"
#include "tools/recording/table_codec.h"

namespace fracgpu::recording {
namespace {

// A chunk is closed at this size, so that one more entry cannot exceed the limit.
constexpr size_t kMuchInChunk = kMostBytesInChunk / 2;

std::string cut(std::string_view text) {
  return std::string(text.substr(0, kMostBytesInText));
}

std::string start_of_file() {
  std::string start(kMagic, sizeof kMagic);
  for (int shift = 0; shift < 32; shift += 8) start.push_back(static_cast<char>(kVersion >> shift));
  return start;
}

std::string encoded(const Header& header) {
  Encoder out;
  out.number(header.began_unix_ns);
  out.text(cut(header.command));
  out.text(cut(header.host));
  out.text(cut(header.tool_version));
  out.number(header.stacks ? 1 : 0);
  out.number(header.attached ? 1 : 0);
  return out.bytes();
}

}  // namespace

struct Writer::State {
  OutputFile file;
  Compressor compressor{};
  uint32_t chunks = 0;
  TableSizes sizes{};
  // Existing entries, by their encoding.
  std::unordered_map<std::string, uint32_t> texts{{"", 0}}, modules{}, stacks{};
  Encoder tables{};
  EncodedColumns columns{};
  EventEncoder encoder{};
  uint32_t events = 0;  // in the chunk
  uint64_t all_events = 0;
  std::string why_failed{};

  void write(ChunkType type, uint32_t count, const std::vector<std::string_view>& content,
             std::string start = {}) {
    if (!why_failed.empty()) throw std::runtime_error(why_failed);
    compressor.append_chunk(type, chunks, count, content, start);
    try {
      file.append(start);
    } catch (const std::runtime_error& error) {
      why_failed = error.what();
      throw;
    }
    ++chunks;
  }

  void write_events() {
    std::vector<Encoder*> all{&tables};
    for (Encoder* column : columns.all()) all.push_back(column);
    Encoder lengths;
    std::vector<std::string_view> content(1);
    for (const Encoder* column : all) {
      lengths.number(column->bytes().size());
      content.push_back(column->bytes());
    }
    content[0] = lengths.bytes();
    write(ChunkType::events, std::exchange(events, 0), content);
    for (Encoder* column : all) column->clear();
  }

  template <typename Entry>
  bool add(const Entry& entry) {
    if (!sizes.add(entry)) return false;
    encode(entry, tables);
    if (tables.bytes().size() > kMuchInChunk) write_events();
    return true;
  }

  // The index of an entry that is stored once; `otherwise` if there is no room for it.
  template <typename Entry>
  uint32_t add_once(const Entry& entry, std::unordered_map<std::string, uint32_t>& known,
                    const size_t& count, uint32_t otherwise) {
    Encoder key;
    encode(entry, key);
    const auto [place, is_new] = known.try_emplace(key.bytes(), static_cast<uint32_t>(count));
    if (!is_new || add(entry)) return place->second;
    known.erase(place);
    return otherwise;
  }

  bool names_what_is_there(const Event& event) const {
    return (event.process == kNone || event.process < sizes.processes) &&
           (event.device == kNone || event.device < sizes.devices) && event.api < sizes.texts &&
           event.stack < sizes.stacks && event.type >= EventType::allocated &&
           event.type <= EventType::mark && static_cast<int>(event.kind) < kMemoryKinds &&
           event.reason <= RefusalReason::ledger;
  }
};

Writer::Writer(const std::string& path, const Header& header, bool force)
    : state_(new State{OutputFile(path, force)}) {
  state_->write(ChunkType::header, 0, {encoded(header)}, start_of_file());
}

Writer::~Writer() = default;

uint32_t Writer::add_process(const ProcessInfo& process) {
  ProcessInfo entry = process;
  entry.command = cut(entry.command);
  const auto index = static_cast<uint32_t>(state_->sizes.processes);
  return state_->add(entry) ? index : kNone;
}

uint32_t Writer::add_device(const DeviceInfo& device) {
  DeviceInfo entry = device;
  entry.key = cut(entry.key);
  entry.name = cut(entry.name);
  const auto index = static_cast<uint32_t>(state_->sizes.devices);
  return state_->add(entry) ? index : kNone;
}

uint32_t Writer::add_module(const ModuleInfo& module) {
  return state_->add_once(ModuleInfo{cut(module.path), cut(module.build_id)}, state_->modules,
                          state_->sizes.modules, kNone);
}

uint32_t Writer::add_stack(const Stack& stack) {
  if (stack.empty()) return 0;
  for (const Frame& frame : stack) {
    if ((frame.module != kNone && frame.module >= state_->sizes.modules) ||
        frame.name >= state_->sizes.texts) {
      throw std::invalid_argument("a frame names what was not added to the recording");
    }
  }
  const Stack innermost(stack.begin(), stack.begin() + static_cast<ptrdiff_t>(std::min(
                                                           stack.size(), kMostFramesInStack)));
  return state_->add_once(innermost, state_->stacks, state_->sizes.stacks, 0);
}

uint32_t Writer::add_text(const std::string& text) {
  if (text.empty()) return 0;
  return state_->add_once(cut(text), state_->texts, state_->sizes.texts, 0);
}

void Writer::add(const Event& event) {
  if (!state_->names_what_is_there(event)) {
    throw std::invalid_argument("an event names what was not added to the recording");
  }
  state_->encoder.add(event, state_->columns);
  ++state_->all_events;
  if (++state_->events == kMostEventsInChunk) state_->write_events();
}

void Writer::flush() {
  if (!state_->why_failed.empty()) throw std::runtime_error(state_->why_failed);
  if (state_->events > 0 || !state_->tables.bytes().empty()) state_->write_events();
}

void Writer::finish() {
  flush();
  Encoder content;
  content.number(state_->all_events);
  state_->write(ChunkType::end, 0, {content.bytes()});
}

}  // namespace fracgpu::recording
