// What the simulator says: a trace into a file for whoever debugs it, and whatever it was asked and
// does not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rmsim {

// RMSIM_TRACE names the file; nothing is written otherwise.
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));
bool tracing();
void open_trace(const char* path);

// A question that the simulator does not know is never answered with success. Each is said once on
// stderr, and added to the file "unknown" of the state, where tests find it whatever became of
// stderr. `size`: of the request in bytes; 0 if it does not name one.
void report_unknown(const char* what, uint64_t number, const char* name, size_t size = 0);
void keep_unknown_in(const std::string& folder);

const char* control_name(uint32_t command);  // as the headers name it, or "no public name"

}  // namespace rmsim
