// Exports: memory that a descriptor of /dev/nvidiactl carries from process to process.
//
// As in the open modules 535.261.03, the memory belongs to the open file description: a client of
// RM's own holds it until the last descriptor is closed, in whichever process (os.c, osapi.c,
// rmobjexportimport.c). RM reports that client's memory for no process (gpu_rmapi.c). Here such a
// description is an eventfd, whose counter is the export's number. A lock on the description shows
// whether it is still open.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "diagnostics.h"
#include "kernel.h"
#include "proc_file.h"

namespace rmsim {
namespace {

constexpr uint32_t kExports = 512;
struct ExportedObject {
  int record;
  uint32_t generation, object_class, attr, attr2;
};
struct Export {
  uint32_t count, most, metadata_size;
  uint8_t metadata[4096];
  ExportedObject objects[kExports];
};

// The number of the export that a descriptor carries; 0: none.
uint32_t number_of(int fd) {
  char path[40], text[1024];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  read_proc_file(path, text);
  const char* const count = strstr(text, "eventfd-count:");
  return count == nullptr ? 0 : strtoul(count + strlen("eventfd-count:"), nullptr, 16);
}

bool read_export(uint32_t number, Export& out) {
  return number != 0 && accounting.read_export(number, &out, sizeof out);
}

NV_STATUS write_export(uint32_t number, const Export& out) {
  return accounting.write_export(number, &out, sizeof out) ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

// The export of one of this process's descriptors, made if there is none. 0: it is no descriptor of
// /dev/nvidiactl.
uint32_t export_at(int fd, Export& out) {
  const auto descriptor = descriptors.find(fd);
  if (descriptor == descriptors.end() || descriptor->second.device != Device::kControl) return 0;
  uint32_t number = number_of(fd);
  if (number == 0) {
    number = accounting.new_export(fd);
    const uint64_t counter = number;
    if (syscall(SYS_write, fd, &counter, sizeof counter) != sizeof counter) return 0;
  }
  if (!read_export(number, out)) out = Export{};
  return number;
}

}  // namespace

NV_STATUS export_objects(int fd, uint32_t client, const uint32_t* handles, uint32_t count,
                         uint32_t index) {
  Export out;
  const uint32_t number = export_at(fd, out);
  if (number == 0) return NV_ERR_INVALID_ARGUMENT;
  for (uint32_t i = 0; i < count; ++i) {
    if (index >= kExports || i >= kExports - index) return NV_ERR_INVALID_ARGUMENT;
    const uint32_t position = index + i;
    // It would end the export at that position.
    if (handles[i] == 0) report_unknown("export", position, "without an object");
    const Object* object = find_object(client, handles[i]);
    if (object == nullptr || object->memory == nullptr || object->memory->record < 0)
      return NV_ERR_INVALID_OBJECT;
    const Memory& memory = *object->memory;
    out.objects[position] = {memory.record, memory.generation, object->object_class, memory.attr,
                             memory.attr2};
    out.count = std::max(out.count, position + 1);
    if (!accounting.hold_by_export(number, position, memory.record))
      return NV_ERR_INSUFFICIENT_RESOURCES;
  }
  return write_export(number, out);
}

NV_STATUS describe_export(int fd, const uint8_t* metadata, uint32_t size, uint32_t most) {
  Export out;
  const uint32_t number = export_at(fd, out);
  if (number == 0) return NV_ERR_INVALID_ARGUMENT;
  out.most = most;
  out.metadata_size = std::min<uint32_t>(size, sizeof out.metadata);
  memcpy(out.metadata, metadata, out.metadata_size);
  return write_export(number, out);
}

NV_STATUS import_objects(int fd, uint32_t client, uint32_t parent, uint32_t* handles,
                         uint32_t count, uint32_t index) {
  Export in;
  if (!read_export(number_of(fd), in)) return NV_ERR_INVALID_ARGUMENT;
  if (index > in.count || count > in.count - index) return NV_ERR_INVALID_ARGUMENT;
  if (find_object(client, parent) == nullptr) return NV_ERR_INVALID_OBJECT_PARENT;
  for (uint32_t i = 0; i < count; ++i) {
    const ExportedObject& exported = in.objects[index + i];
    MemoryPtr memory = import_memory(exported.record, exported.generation);
    if (memory == nullptr) return NV_ERR_INVALID_OBJECT;
    memory->attr = exported.attr;
    memory->attr2 = exported.attr2;
    add_object(client, parent, handles[i], exported.object_class)->memory = memory;
  }
  return NV_OK;
}

NV_STATUS export_info(int fd, ExportInfo& info) {
  Export in;
  if (!read_export(number_of(fd), in)) return NV_ERR_INVALID_ARGUMENT;
  info.metadata.assign(in.metadata, in.metadata + in.metadata_size);
  info.gpu = in.count != 0 ? accounting.record(in.objects[0].record).gpu : 0;
  info.objects = static_cast<uint16_t>(in.most != 0 ? in.most : in.count);
  return NV_OK;
}

}  // namespace rmsim
