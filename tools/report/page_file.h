// Where a page goes: to a file of its own, never over something else that lies there.
#pragma once

#include <string>

namespace fracgpu::tools::report {

// Throws std::runtime_error with one line where `path` is no place for a page: a folder, a device,
// a link, or a file that is no page, such as the recording.
void judge_page_file(const std::string& path);

}  // namespace fracgpu::tools::report
