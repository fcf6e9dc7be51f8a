// The file of a page: never overwrites a file of another kind.
#pragma once

#include <string>

namespace fracgpu::tools::report {

// Throws std::runtime_error with one line if a page cannot be written to `path`: a folder, a
// device, a link, or a file that is not a page, such as the recording.
void judge_page_file(const std::string& path);

}  // namespace fracgpu::tools::report
