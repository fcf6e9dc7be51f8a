// Call stacks of a Python program without the interpreter's frames.
#pragma once

#include "tools/recording/event.h"

namespace fracgpu::tools::report {

// Keeps only the frames that Python itself named (-X perf). Returns false, and changes nothing, if
// there are none.
bool keep_python_frames(recording::Tables& tables);

}  // namespace fracgpu::tools::report
