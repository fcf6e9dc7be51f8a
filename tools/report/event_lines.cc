// See event_lines.h.
#include "tools/report/event_lines.h"

#include "tools/cli/json.h"
#include "tools/report/names.h"

namespace fracgpu::tools::report {
namespace {

using recording::Event;
using recording::EventType;
using recording::kNone;
using recording::Tables;

const char* type_name(EventType type) {
  constexpr const char* kNames[] = {"",        "allocated", "released", "level", "refused",
                                    "dropped", "cap",       "ended",    "mark"};
  return kNames[static_cast<size_t>(type)];
}

Json line_of(const Event& event, const Tables& tables, recording::Symbols& symbols) {
  Json line = {{"event", type_name(event.type)}, {"time_ns", event.time_ns}};
  if (event.process != kNone) {
    const recording::ProcessInfo& process = tables.processes[event.process];
    line["pid"] = process.host_pid != 0 ? process.host_pid : process.pid;
    line["command"] = process.command;
  }
  if (event.thread != 0) line["thread"] = event.thread;
  if (event.device != kNone) line["device"] = tables.devices[event.device].key;
  if (event.api != 0) line["api"] = tables.texts[event.api];
  const bool is_memory = event.type == EventType::allocated || event.type == EventType::released ||
                         event.type == EventType::level;
  if (is_memory) line["kind"] = kind_key(event.kind);
  if (event.type == EventType::allocated || event.type == EventType::released)
    line["address"] = event.address;
  if (is_memory && event.owner != 0) line["owner"] = event.owner;
  if (event.type != EventType::level && event.type != EventType::cap) {
    if (event.type == EventType::ended) {
      line["exited"] = event.bytes == recording::kExited;
      line["end"] = end_of(event.bytes);
    } else {
      line[event.type == EventType::dropped ? "events" : "bytes"] = event.bytes;
    }
  }
  if (is_memory || event.type == EventType::refused) line["taken_bytes"] = event.taken;
  if (event.type == EventType::refused) line["held_bytes"] = event.held;
  if (event.type == EventType::refused || event.type == EventType::cap)
    line["cap_bytes"] = event.cap;
  if (event.stack != 0) {
    Json stack = Json::array();
    for (const std::string& each : stack_names(tables, event.stack, symbols)) stack.push_back(each);
    line["stack"] = stack;
  }
  return line;
}

}  // namespace

void write_event_lines(recording::Reader& reader, recording::Symbols& symbols,
                       const std::function<void(const std::string&)>& write) {
  constexpr size_t kMuch = 1u << 20;
  std::string text;
  reader.for_each([&](const Event& event, const Tables& tables) {
    text += line_of(event, tables, symbols).dump_ascii(-1) + "\n";
    if (text.size() < kMuch) return;
    write(text);
    text.clear();
  });
  write(text);
}

}  // namespace fracgpu::tools::report
