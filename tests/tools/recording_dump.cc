// recording_dump FILE: prints all that a recording holds, a line of JSON each: tables first as they
// come, then events. For tests, which compute what it tells by themselves.
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "tools/recording/reader.h"

using nlohmann::json;
namespace recording = fracgpu::recording;

int main(int, char** argv) try {
  recording::Reader reader(argv[1]);
  const auto print = [](const json& line) {
    std::puts(line.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
  };
  reader.for_each([&](const recording::Event& event, const recording::Tables&) {
    const auto index = [](uint32_t number) {
      return number == recording::kNone ? json(nullptr) : json(number);
    };
    print({{"event", static_cast<int>(event.type)},
           {"kind", static_cast<int>(event.kind)},
           {"process", index(event.process)},
           {"device", index(event.device)},
           {"thread", event.thread},
           {"api", event.api},
           {"stack", event.stack},
           {"time", event.time_ns},
           {"bytes", event.bytes},
           {"taken", event.taken},
           {"owner", event.owner},
           {"address", event.address},
           {"held", event.held},
           {"cap", event.cap},
           {"reason", static_cast<int>(event.reason)}});
  });
  const recording::Tables& tables = reader.tables();
  json processes = json::array(), devices = json::array(), modules = json::array();
  json stacks = json::array();
  for (const auto& it : tables.processes) {
    processes.push_back({{"pid", it.pid}, {"host_pid", it.host_pid}, {"command", it.command}});
  }
  for (const auto& it : tables.devices) {
    devices.push_back(
        {{"key", it.key}, {"name", it.name}, {"physical", it.physical}, {"cap", it.cap}});
  }
  for (const auto& it : tables.modules) {
    modules.push_back({{"path", it.path}, {"build_id", it.build_id}});
  }
  for (const recording::Stack& stack : tables.stacks) {
    json frames = json::array();
    for (const recording::Frame& frame : stack) {
      frames.push_back({frame.module == recording::kNone ? json(nullptr) : json(frame.module),
                        frame.offset, frame.name});
    }
    stacks.push_back(frames);
  }
  print({{"processes", processes},
         {"devices", devices},
         {"modules", modules},
         {"stacks", stacks},
         {"texts", tables.texts},
         {"command", reader.header().command},
         {"damage", reader.damage()}});
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
