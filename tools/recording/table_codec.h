// The encoding of table entries in a recording's file, and their limits.
#pragma once

#include <string>

#include "tools/recording/event.h"
#include "tools/recording/varint.h"

namespace fracgpu::recording {

// The sizes of tables. Writer and reader count alike.
struct TableSizes {
  size_t processes = 0, devices = 0, modules = 0, texts = 1, stacks = 1;
  size_t frames = 0, text_bytes = 0;

  // Counts the entry. False, without counting it, if `Tables` has no room for it.
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

// Appends all entries. Throws Damage, also if there are too many, or if a frame names a missing
// entry.
void decode_entries(Decoder in, TableSizes& sizes, Tables& added);

}  // namespace fracgpu::recording
