// Stands in for the vendors' side of the core: no driver, so no truth and no device list.
#include "shim/report.h"
#include "shim/truth.h"

namespace fracgpu {

void report_call_stack() {}
void report_frames(const uint64_t*, unsigned) {}
unsigned take_call_stack(uint64_t*, unsigned) {
  return 0;
}

namespace truth {

bool bytes_of_self(const char*, uint64_t&) {
  return false;
}
bool bytes_of(uint32_t, const char*, uint64_t&) {
  return false;
}
bool index_of(const char*, int&) {
  return false;
}
bool physical_bytes(const char*, uint64_t&) {
  return false;
}
bool used_bytes(const char*, uint64_t&) {
  return false;
}
bool is_part(const char*) {
  return false;
}
bool whole_of(const char*, Text<64>&) {
  return false;
}
bool bus_id_of(const char*, BusId&) {
  return false;
}
Text<96> describe(const char* device_key) {
  return Text<96>(device_key);
}
bool device_may_exist(const Selector&) {
  return true;
}

}  // namespace truth
}  // namespace fracgpu
