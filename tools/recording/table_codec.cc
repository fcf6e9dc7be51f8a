// See table_codec.h.
#include "tools/recording/table_codec.h"

#include <utility>

#include "tools/recording/format.h"

namespace fracgpu::recording {
namespace {

enum Tag : uint64_t { kProcess = 1, kDevice, kModule, kText, kStack };

// kNone is the most common large number. It becomes 0.
uint64_t above_none(uint32_t index) {
  return index + 1U;
}

std::string text_of(Decoder& in) {
  return std::string(in.text(kMostBytesInText));
}

uint32_t number32(Decoder& in) {
  return static_cast<uint32_t>(in.number_below(uint64_t{1} << 32));
}

ProcessInfo process_of(Decoder& in) {
  ProcessInfo process;
  process.pid = number32(in);
  process.host_pid = number32(in);
  process.command = text_of(in);
  process.began_ns = in.number();
  return process;
}

DeviceInfo device_of(Decoder& in) {
  DeviceInfo device;
  device.key = text_of(in);
  device.name = text_of(in);
  device.physical = in.number();
  device.cap = in.number();
  return device;
}

ModuleInfo module_of(Decoder& in) {
  ModuleInfo module;
  module.path = text_of(in);
  module.build_id = text_of(in);
  return module;
}

Stack stack_of(Decoder& in, const TableSizes& sizes) {
  Stack stack(in.number_below(kMostFramesInStack + 1));
  for (Frame& frame : stack) {
    frame.module = static_cast<uint32_t>(in.number_below(sizes.modules + 1)) - 1U;
    frame.offset = in.number();
    frame.name = static_cast<uint32_t>(in.number_below(sizes.texts));
  }
  return stack;
}

template <typename Entry>
void keep(Entry entry, TableSizes& sizes, std::vector<Entry>& entries) {
  if (!sizes.add(entry)) throw Damage("tables that are too large");
  entries.push_back(std::move(entry));
}

}  // namespace

bool TableSizes::add_texts(size_t bytes) {
  if (bytes > kMostTextBytes - text_bytes) return false;
  text_bytes += bytes;
  return true;
}

bool TableSizes::add(const ProcessInfo& process) {
  if (processes == kMostProcesses || !add_texts(process.command.size())) return false;
  ++processes;
  return true;
}

bool TableSizes::add(const DeviceInfo& device) {
  if (devices == kMostDevices || !add_texts(device.key.size() + device.name.size())) return false;
  ++devices;
  return true;
}

bool TableSizes::add(const ModuleInfo& module) {
  if (modules == kMostModules || !add_texts(module.path.size() + module.build_id.size())) {
    return false;
  }
  ++modules;
  return true;
}

bool TableSizes::add(const std::string& text) {
  if (texts == kMostTexts || !add_texts(text.size())) return false;
  ++texts;
  return true;
}

bool TableSizes::add(const Stack& stack) {
  if (stacks == kMostStacks || stack.size() > kMostFrames - frames) return false;
  ++stacks;
  frames += stack.size();
  return true;
}

void encode(const ProcessInfo& process, Encoder& out) {
  out.number(kProcess);
  out.number(process.pid);
  out.number(process.host_pid);
  out.text(process.command);
  out.number(process.began_ns);
}

void encode(const DeviceInfo& device, Encoder& out) {
  out.number(kDevice);
  out.text(device.key);
  out.text(device.name);
  out.number(device.physical);
  out.number(device.cap);
}

void encode(const ModuleInfo& module, Encoder& out) {
  out.number(kModule);
  out.text(module.path);
  out.text(module.build_id);
}

void encode(const std::string& text, Encoder& out) {
  out.number(kText);
  out.text(text);
}

void encode(const Stack& stack, Encoder& out) {
  out.number(kStack);
  out.number(stack.size());
  for (const Frame& frame : stack) {
    out.number(above_none(frame.module));
    out.number(frame.offset);
    out.number(frame.name);
  }
}

void decode_entries(Decoder in, TableSizes& sizes, Tables& added) {
  while (!in.at_end()) {
    switch (in.number()) {
      case kProcess:
        keep(process_of(in), sizes, added.processes);
        break;
      case kDevice:
        keep(device_of(in), sizes, added.devices);
        break;
      case kModule:
        keep(module_of(in), sizes, added.modules);
        break;
      case kText:
        keep(text_of(in), sizes, added.texts);
        break;
      case kStack:
        keep(stack_of(in, sizes), sizes, added.stacks);
        break;
      default:
        throw Damage("an entry of an unknown kind");
    }
  }
}

}  // namespace fracgpu::recording
