// Call stacks of a program of Python without the interpreter's frames.
#pragma once

#include "tools/recording/event.h"

namespace fracgpu::tools::report {

// Leaves the frames that Python has named itself (-X perf). False, with nothing changed, where it
// has named none.
bool keep_python_frames(recording::Tables& tables);

}  // namespace fracgpu::tools::report
