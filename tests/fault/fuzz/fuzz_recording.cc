// Hostile recordings. What must come out: events whose every index is valid, and sums of them; or
// an exception of one line.
//
// Input: a byte that chooses, then a file as it is; or two bytes, how many events there are, and
// the content of a chunk behind checksums that are right. That is read twice, one chunk after
// another.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tools/recording/chunk.h"
#include "tools/recording/reader.h"
#include "tools/recording/varint.h"
#include "tools/report/memory.h"

namespace {

using namespace fracgpu::recording;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what);
  abort();
}

std::string header() {
  Encoder out;
  out.number(0);
  for (int i = 0; i < 3; ++i) out.text("");
  out.number(0);
  out.number(0);
  return out.bytes();
}

std::string file_of(std::string_view content, uint32_t events) {
  static Compressor compressor;
  std::string file(kMagic, sizeof kMagic);
  file += std::string("\1\0\0\0", 4);
  compressor.append_chunk(ChunkType::header, 0, 0, {header()}, file);
  for (uint32_t i = 1; i <= 2; ++i) {
    compressor.append_chunk(ChunkType::events, i, events, {content}, file);
  }
  return file;
}

void read_recording(const std::string& file) {
  const int fd = memfd_create("recording", MFD_CLOEXEC);
  require(write(fd, file.data(), file.size()) == static_cast<ssize_t>(file.size()), "memory");
  try {
    Reader reader("/proc/self/fd/" + std::to_string(fd));
    const fracgpu::tools::report::Choice choice;
    fracgpu::tools::report::Memory memory(choice, reader.tables());
    reader.for_each([&](const Event& event, const Tables& tables) {
      require(event.process == kNone || event.process < tables.processes.size(), "a process");
      require(event.device == kNone || event.device < tables.devices.size(), "a device");
      require(event.stack < tables.stacks.size(), "a stack");
      require(event.api < tables.texts.size(), "a text");
      memory.apply(event);
    });
    for (const Stack& stack : reader.tables().stacks) {
      for (const Frame& frame : stack) {
        require(frame.module == kNone || frame.module < reader.tables().modules.size(), "a module");
        require(frame.name < reader.tables().texts.size(), "a name");
      }
    }
    fracgpu::tools::report::Analysis analysis;
    memory.finish(analysis);
  } catch (const std::runtime_error& error) {
    for (const char* c = error.what(); *c != 0; ++c) require(*c >= ' ' && *c <= '~', "one line");
  }
  close(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (data[0] % 4 == 0) {
    read_recording(std::string(bytes.substr(1)));
  } else {
    read_recording(file_of(bytes.substr(3), data[1] | data[2] << 8));
  }
  return 0;
}
