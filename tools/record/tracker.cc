// See tracker.h.
#include "tools/record/tracker.h"

#include <string.h>

#include <algorithm>

#include "tools/record/jit_names.h"
#include "tools/record/live_memory.h"
#include "tools/record/process_end.h"

namespace fracgpu::tools {

using recording::Event;
using recording::EventType;
using recording::MemoryKind;
using ring::Record;
using ring::Type;

struct Tracker::Process {
  uint32_t number = 0;  // in the recording
  ring::ProcessText told;
  bool leaves = false;  // has reported that it exits
  bool lossy = false;   // some of its events were dropped
  // All times are since the recording began: its start, its last event, the last time it was seen
  // alive, and the time at which others reported it gone.
  uint64_t began_ns = 0, last_ns = 0, alive_ns = 0, gone_ns = UINT64_MAX;
  LiveMemory memory;
  std::map<uint32_t, uint64_t> taken, unknown;  // by the device's number in the recording
  JitNames jit_names;
  ProcessEnd end;
  // By the process's own numbers.
  std::unordered_map<uint32_t, uint32_t> devices, modules, stacks, apis;
  // The parts of an incomplete text. Parts arrive one after another.
  std::string text;
  // The current levels, by kind and owner.
  struct Level {
    uint32_t device = recording::kNone;
    uint64_t taken = 0;
  };
  std::map<std::pair<MemoryKind, uint64_t>, Level> levels;
  // Each thread's last release, in case the driver refuses it.
  std::unordered_map<uint32_t, std::pair<uint64_t, Live>> last_released;

  bool is_later_program_of(const Process& other) const {
    return told.pid == other.told.pid && told.pid_namespace == other.told.pid_namespace &&
           told.start_time == other.told.start_time && began_ns > other.began_ns;
  }
};

namespace {

uint32_t find_or(const std::unordered_map<uint32_t, uint32_t>& map, uint32_t key, uint32_t other) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : other;
}

// Whether the memory shares chunks with others of its kind. (Small arrays do so too, but the
// overhead includes them.)
bool is_in_chunk(const Record& record) {
  return record.taken == 0 &&
         (record.kind == ring::Kind::linear || record.kind == ring::Kind::managed);
}

template <typename Struct>
bool read_text(const std::string& text, Struct& out) {
  if (text.size() != sizeof out) return false;
  memcpy(&out, text.data(), sizeof out);
  return true;
}

std::string bounded(const char* text, size_t most) {
  return {text, strnlen(text, most)};
}

}  // namespace

Tracker::Tracker(recording::Writer& writer, uint64_t began_ns,
                 std::function<std::string(const std::string&)> name_of)
    : writer_(writer), began_ns_(began_ns), name_of_(std::move(name_of)) {}

Tracker::~Tracker() = default;

void Tracker::emit(const Event& event) {
  batch_.push_back(event);
  ++events_;
}

void Tracker::emit(Process& process, const Event& event) {
  if (event.type == EventType::allocated) process.taken[event.device] += event.taken;
  if (event.type == EventType::released) process.taken[event.device] -= event.taken;
  emit(event);
}

Event Tracker::event_of(const Process& process, const Record& record) const {
  Event event;
  event.kind = static_cast<MemoryKind>(
      std::min<int>(static_cast<int>(record.kind), recording::kMemoryKinds - 1));
  event.process = process.number;
  event.device = record.device == ring::kNoDevice
                     ? recording::kNone
                     : find_or(process.devices, record.device, recording::kNone);
  event.thread = record.thread;
  event.api = find_or(process.apis, record.api, 0);
  event.stack = find_or(process.stacks, record.stack, 0);
  event.time_ns = process.last_ns;
  event.bytes = record.bytes;
  event.taken = record.taken;
  event.owner = record.owner;
  event.address = record.address;
  return event;
}

namespace {

Event with(Event event, EventType type, const Live& live) {
  event.type = type;
  event.kind = live.kind;
  event.device = live.device;
  event.stack = live.stack;
  event.bytes = live.bytes;
  event.taken = live.taken;
  event.owner = live.owner;
  return event;
}

}  // namespace

// Emits the level if it changed.
void Tracker::set_level(Process& process, Event event) {
  auto& [device, taken] = process.levels[{event.kind, event.owner}];
  if (event.device == recording::kNone) event.device = device;
  if (event.device == recording::kNone || (event.device == device && event.taken == taken)) return;
  if (device != event.device) process.taken[device] -= taken;
  process.taken[event.device] += event.taken - (device == event.device ? taken : 0);
  device = event.device;
  taken = event.taken;
  event.type = EventType::level;
  event.stack = event.api = 0;
  event.bytes = event.address = 0;
  emit(event);
}

// A device's chunks are one level. Its owner is the device.
void Tracker::set_chunks(Process& process, Event event, uint32_t device, uint64_t bytes) {
  event.kind = MemoryKind::chunks;
  event.device = device;
  event.owner = device;
  event.taken = bytes;
  set_level(process, event);
}

void Tracker::release(Process& process, uint64_t key, const Record& record) {
  const Event event = event_of(process, record);
  const std::optional<Live> live = process.memory.take(key);
  process.last_released.erase(record.thread);
  if (!live) {
    // A small allocation from before the recording.
    if (const auto device = process.memory.chunk_at(key))
      set_chunks(process, event, *device, process.memory.leave_chunk(*device, key));
    return;
  }
  process.last_released[record.thread] = {key, *live};
  emit(process, with(event, EventType::released, *live));
  if (live->in_chunk)
    set_chunks(process, event, live->device, process.memory.leave_chunk(live->device, key));
}

void Tracker::add(uint32_t slot, const Record& record) {
  if (record.type >= Type::process && record.type <= Type::api) return add_text(slot, record);
  const auto found = processes_.find(slot);
  if (found == processes_.end()) return;
  Process& process = *found->second;
  // Keeps the order in which the process reported its events.
  process.last_ns = std::max(process.last_ns, since_beginning(record.time_ns));
  Event event = event_of(process, record);
  const auto enter = [&](uint64_t key, const Live& live) {
    // Its release was dropped, or a call that is not hooked released it.
    if (const auto stale = process.memory.add(key, live)) {
      emit(process, with(event, EventType::released, *stale));
      if (stale->in_chunk) process.memory.leave_chunk(stale->device, key);
    }
    if (process.lossy) keep_within_peak(slot, process, with(event, EventType::allocated, live));
    emit(process, with(event, EventType::allocated, live));
    if (live.in_chunk)
      set_chunks(process, event, live.device, process.memory.enter_chunk(live.device, key));
  };
  switch (record.type) {
    case Type::allocated:
      enter(record.address, {event.kind, event.device, event.stack, event.bytes, event.taken,
                             event.owner, is_in_chunk(record)});
      break;
    case Type::released:
      release(process, record.address, record);
      break;
    case Type::kept:
      if (const auto last = process.last_released.find(record.thread);
          last != process.last_released.end() && last->second.first == record.address) {
        const Live live = last->second.second;
        process.last_released.erase(last);
        enter(record.address, live);
      }
      break;
    case Type::level: {
      set_level(process, event);
      // Of memory from before the recording, no release is seen. Its pool has no more than this.
      const uint64_t key = ring::pool_key(record.owner);
      const Live* const earlier = process.memory.find(key);
      if (event.kind != MemoryKind::reserved || earlier == nullptr ||
          earlier->bytes <= record.taken)
        break;
      Live rest = *earlier;
      rest.bytes = record.taken;
      release(process, key, record);
      if (rest.bytes > 0) enter(key, rest);
      break;
    }
    case Type::refused:
      event.type = EventType::refused;
      event.reason = static_cast<recording::RefusalReason>(record.reason & 3);
      event.held = record.address;
      event.cap = record.owner;
      event.address = event.owner = 0;
      // Another program may have changed the cap a moment ago.
      if (event.reason == recording::RefusalReason::cap && event.device != recording::kNone)
        change_cap(event.device, event.cap, event.time_ns);
      emit(event);
      break;
    case Type::context_gone:
      for (const auto& [key, live] : process.memory.take_all_of(record.owner)) {
        emit(process, with(event, EventType::released, live));
        if (live.in_chunk)
          set_chunks(process, event, live.device, process.memory.leave_chunk(live.device, key));
      }
      break;
    case Type::chunk:
      set_chunks(process, event, event.device,
                 process.memory.enter_chunk(event.device, record.address, record.bytes));
      break;
    case Type::mark:
      event.type = EventType::mark;
      event.bytes = event.taken;
      event.taken = 0;
      emit(event);
      break;
    case Type::leaving:
      process.leaves = true;
      break;
    case Type::ended:
      if (const auto other = processes_.find(static_cast<uint32_t>(record.owner));
          record.owner <= UINT32_MAX && other != processes_.end() && other->first != slot &&
          other->second->began_ns < event.time_ns) {
        other->second->gone_ns = std::min(other->second->gone_ns, event.time_ns);
      }
      break;
    default:
      break;
  }
}

void Tracker::missed(uint32_t slot, uint64_t number) {
  dropped_ += number;
  const auto found = processes_.find(slot);
  if (found == processes_.end()) return;
  Process& process = *found->second;
  process.lossy = true;
  Event event;
  event.type = EventType::dropped;
  event.process = process.number;
  event.bytes = number;
  event.time_ns = process.last_ns;
  emit(event);
}

// A process that exits reports that, and is gone a moment later.
void Tracker::end(uint32_t slot, uint64_t now_ns, const Process* next) {
  const auto found = processes_.find(slot);
  if (found == processes_.end()) return;
  const Process& process = *found->second;
  uint64_t ended_ns = std::min(since_beginning(now_ns), process.gone_ns);
  if (process.leaves) ended_ns = std::min(ended_ns, process.alive_ns);
  Event event;
  event.type = EventType::ended;
  event.process = process.number;
  // The program that its PID became may have ended by now, too.
  const bool goes_on = (next != nullptr && next->is_later_program_of(process)) ||
                       std::any_of(processes_.begin(), processes_.end(), [&](const auto& other) {
                         return other.second->is_later_program_of(process);
                       });
  event.bytes = process.leaves ? recording::kExited
                : goes_on      ? recording::kByExec
                               : process.end.how();
  event.time_ns = std::max(ended_ns, process.last_ns);
  emit(event);
  processes_.erase(found);
}

void Tracker::set_alive(uint32_t slot, uint64_t now_ns) {
  const auto found = processes_.find(slot);
  if (found != processes_.end()) found->second->alive_ns = since_beginning(now_ns);
}

void Tracker::set_unknown(Process& process, uint32_t device, uint64_t bytes, uint64_t time_ns) {
  process.unknown[device] = bytes;
  Event event;
  event.kind = MemoryKind::unknown;
  event.process = process.number;
  event.device = device;
  event.taken = bytes;
  event.time_ns = time_ns;
  set_level(process, event);
}

void Tracker::lower(Process& process, uint32_t device, uint64_t excess, uint64_t time_ns) {
  uint64_t& unknown = process.unknown[device];
  const uint64_t less = std::min(unknown, excess);
  if (less > 0) set_unknown(process, device, unknown - less, time_ns);
  if (excess == less) return;
  Event event;
  event.process = process.number;
  event.time_ns = time_ns;
  for (const auto& [key, live] : process.memory.take_last(device, excess - less)) {
    event.address = key;
    emit(process, with(event, EventType::released, live));
  }
}

// The releases of earlier allocations may have been dropped.
void Tracker::keep_within_peak(uint32_t slot, Process& process, const Event& event) {
  const uint64_t taken = process.taken[event.device] + event.taken;
  if (event.device == recording::kNone || !held_by_) return;
  for (const auto& [key, number] : devices_) {
    if (number != event.device) continue;
    const std::optional<Held> held = held_by_(slot, process.told, key);
    if (held && taken > held->most) lower(process, number, taken - held->most, event.time_ns);
  }
}

void Tracker::renew(uint32_t slot, uint64_t now_ns, bool quiet) {
  const auto found = processes_.find(slot);
  if (found == processes_.end() || !held_by_) return;
  Process& process = *found->second;
  for (const auto& [key, device] : devices_) {
    const std::optional<Held> held = held_by_(slot, process.told, key);
    if (!held) continue;
    if (process.taken[device] > held->now)
      lower(process, device, process.taken[device] - held->now, process.last_ns);
    const uint64_t taken = process.taken[device];
    if (taken < held->now && quiet) {
      process.last_ns = std::max(process.last_ns, since_beginning(now_ns));
      set_unknown(process, device, process.unknown[device] + held->now - taken, process.last_ns);
    }
  }
}

void Tracker::change_cap(uint32_t device, uint64_t cap, uint64_t time_ns) {
  uint64_t& known = caps_[device];
  if (known == cap) return;
  known = cap;
  Event event;
  event.type = EventType::cap;
  event.device = device;
  event.cap = cap;
  event.time_ns = time_ns;
  emit(event);
}

void Tracker::set_cap(const std::string& device_key, uint64_t cap, uint64_t now_ns) {
  const auto device = devices_.find(device_key);
  if (device == devices_.end()) return;
  change_cap(device->second, cap, since_beginning(now_ns));
}

void Tracker::add_remark(const std::string& text, uint64_t now_ns) {
  Event event;
  event.type = EventType::mark;
  event.api = writer_.add_text(text);
  event.time_ns = since_beginning(now_ns);
  emit(event);
}

std::vector<uint32_t> Tracker::living() const {
  std::vector<uint32_t> slots;
  for (const auto& [slot, process] : processes_) slots.push_back(slot);
  return slots;
}

std::vector<uint32_t> Tracker::gone() const {
  std::vector<uint32_t> slots;
  for (const auto& [slot, process] : processes_) {
    if (process->gone_ns != UINT64_MAX) slots.push_back(slot);
  }
  return slots;
}

std::vector<uint32_t> Tracker::lossy() const {
  std::vector<uint32_t> slots;
  for (const auto& [slot, process] : processes_) {
    if (process->lossy) slots.push_back(slot);
  }
  return slots;
}

void Tracker::write(uint64_t until_ns) {
  std::stable_sort(batch_.begin(), batch_.end(),
                   [](const Event& a, const Event& b) { return a.time_ns < b.time_ns; });
  uint64_t until = since_beginning(until_ns);
  // In the recording, a process that exits ends at the time it was last seen alive.
  for (const auto& [slot, process] : processes_) {
    if (process->leaves && until_ns != UINT64_MAX) until = std::min(until, process->alive_ns);
  }
  const auto end = std::find_if(batch_.begin(), batch_.end(),
                                [&](const Event& event) { return event.time_ns > until; });
  for (auto at = batch_.begin(); at != end; ++at) {
    meter_.apply(*at);
    writer_.add(*at);
  }
  batch_.erase(batch_.begin(), end);
}

std::map<std::string, uint64_t> Tracker::needed() const {
  std::map<std::string, uint64_t> needed;
  for (const auto& [key, number] : devices_) {
    const auto peak = meter_.peaks().find(number);
    if (peak != meter_.peaks().end()) needed[key] = peak->second;
  }
  return needed;
}

void Tracker::add_text(uint32_t slot, const Record& record) {
  const auto found = processes_.find(slot);
  // The text of a new process is kept at the slot's previous process, or at no process yet.
  std::string& text = found != processes_.end() ? found->second->text : (first_texts_[slot]);
  if (record.thread == 0) text.clear();
  const size_t size = std::min<size_t>(record.api, ring::kMostText);
  if (record.thread * ring::kPartBytes != text.size() || text.size() >= size) return;
  char bytes[sizeof record];
  memcpy(bytes, &record, sizeof record);
  text.append(bytes + (sizeof record - ring::kPartBytes),
              std::min(ring::kPartBytes, size - text.size()));
  if (text.size() == size) describe(slot, record.type, record.stack, std::string(text));
}

void Tracker::describe(uint32_t slot, Type type, uint32_t number, const std::string& text) {
  if (type == Type::process) return begin_process(slot, text);
  const auto found = processes_.find(slot);
  if (found == processes_.end()) return;
  Process& process = *found->second;
  if (type == Type::device) process.devices[number] = add_device(text);
  if (type == Type::module) process.modules[number] = add_module(text);
  if (type == Type::stack) process.stacks[number] = add_stack(process, text);
  if (type == Type::api) process.apis[number] = writer_.add_text(text);
}

void Tracker::begin_process(uint32_t slot, const std::string& text) {
  ring::ProcessText told;
  if (!read_text(text, told)) return;
  auto process = std::make_unique<Process>();
  process->told = told;
  process->began_ns = process->last_ns = process->alive_ns = since_beginning(told.began_ns);
  end(slot, told.began_ns, process.get());
  process->number = writer_.add_process({.pid = told.pid,
                                         .host_pid = told.host_pid,
                                         .command = bounded(told.command, sizeof told.command),
                                         .began_ns = process->began_ns});
  const uint32_t pid = told.host_pid != 0 ? told.host_pid : told.pid;
  process->jit_names = JitNames(pid, told.pid);
  process->end = ProcessEnd(pid, told.start_time);
  processes_[slot] = std::move(process);
  ++process_count_;
}

uint32_t Tracker::add_device(const std::string& text) {
  ring::DeviceText told;
  if (!read_text(text, told)) return recording::kNone;
  const std::string key = bounded(told.key, sizeof told.key);
  const auto [place, is_new] = devices_.try_emplace(key, 0);
  if (is_new) {
    place->second = writer_.add_device(
        {.key = key, .name = name_of_(key), .physical = told.physical, .cap = told.cap});
    caps_[place->second] = told.cap;
  }
  return place->second;
}

uint32_t Tracker::add_module(const std::string& text) {
  const auto [place, is_new] = modules_.try_emplace(text, 0);
  if (is_new) {
    const size_t end = std::min(text.find('\0'), text.size());
    place->second = writer_.add_module(
        {.path = end < text.size() ? text.substr(end + 1) : "", .build_id = text.substr(0, end)});
  }
  return place->second;
}

uint32_t Tracker::add_stack(Process& process, const std::string& text) {
  recording::Stack stack;
  for (size_t at = 0; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
    uint64_t told = 0;
    memcpy(&told, text.data() + at, sizeof told);
    const auto number = static_cast<uint32_t>(told >> 48);
    recording::Frame frame;
    frame.offset = told & 0xffffffffffff;
    frame.module = find_or(process.modules, number, recording::kNone);
    if (told == ring::kCutFrame) {
      frame.offset = 0;
      frame.name = writer_.add_text("(cut here: record with more --frames)");
    } else if (number == ring::kNoModule) {
      if (const std::string name = process.jit_names.name_at(frame.offset); !name.empty())
        frame.name = writer_.add_text(name);
    }
    stack.push_back(frame);
  }
  std::string key;
  for (const recording::Frame& frame : stack) {
    key.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  }
  const auto [place, is_new] = stacks_.try_emplace(key, 0);
  if (is_new) place->second = writer_.add_stack(stack);
  return place->second;
}

}  // namespace fracgpu::tools
