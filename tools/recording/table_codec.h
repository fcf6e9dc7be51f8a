// The tables' entries as a recording's file holds them, and how many there may be.
#pragma once

#include <string>

#include "tools/recording/event.h"
#include "tools/recording/varint.h"

namespace fracgpu::recording {

// How much tables hold. Writer and reader count alike.
struct TableSizes {
  size_t processes = 0, devices = 0, modules = 0, texts = 1, stacks = 1;
  size_t frames = 0, text_bytes = 0;

  // False where `Tables` may hold no more of it; it is counted otherwise.
  bool add(const ProcessInfo& process);
  bool add(const DeviceInfo& device);
  bool add(const ModuleInfo& module);
  bool add(const std::string& text);
  bool add(const Stack& stack);

 private:
  bool add_texts(size_t bytes);
};

void encode(const ProcessInfo& process, Encoder& out);
void encode(const DeviceInfo& device, Encoder& out);
void encode(const ModuleInfo& module, Encoder& out);
void encode(const std::string& text, Encoder& out);
void encode(const Stack& stack, Encoder& out);

// Appends all entries that there are. Throws Damage, also where there are too many, or where a
// frame names what is not there.
void decode_entries(Decoder in, TableSizes& sizes, Tables& added);

}  // namespace fracgpu::recording
