// Turns the names that linkers know into those that people wrote.
#pragma once

#include <string>

namespace fracgpu::recording {

// "_ZN3foo3barEi" is "foo::bar(int)", "_RNvC4main5alloc" is "main::alloc". What is no such name, or
// is more than any compiler makes, stays as it is.
std::string demangle(const std::string& name);

}  // namespace fracgpu::recording
