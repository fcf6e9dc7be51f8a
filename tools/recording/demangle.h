// Turns linker names into source names.
#pragma once

#include <string>

namespace fracgpu::recording {

// "_ZN3foo3barEi" is "foo::bar(int)", "_RNvC4main5alloc" is "main::alloc". Other names stay
// unchanged, and so do names longer than any compiler makes.
std::string demangle(const std::string& name);

}  // namespace fracgpu::recording
