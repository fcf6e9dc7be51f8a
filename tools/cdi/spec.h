// What container engines are told about our devices, as the Container Device Interface has it.
//
// A device is a cap that a container asks for by name, `--device fracgpu.dev/memory=8gb`. It puts
// three read-only files of the node into the container, whatever its image: the library, the file
// that makes the loader preload it, and a ceiling, which no environment can raise. A hook first
// refuses images in which that would not work.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/json.h"

namespace fracgpu::tools::cdi {

// Where things are on the node.
struct NodePaths {
  std::string library;
  std::string command;  // for the hook
  std::string files;    // the folder for the preload file and the ceilings
};

// "memory" has sizes ("8gb"), "fraction" shares of a GPU ("0.5"), "tenant" names of tenants. The
// first two are caps; the third goes beside them, for containers that share /dev/shm to share one
// cap.
struct Class {
  std::string name;
  std::vector<std::string> devices;
};

// Those caps that are offered where no others are asked for.
Class default_class(const std::string& name);

// Throws, with what is accepted, where a device of the class cannot be called so.
void check_device(const std::string& class_name, const std::string& device);

// The file of a device's own, a ceiling or the name of a tenant.
struct DeviceFile {
  std::string path;    // on the node
  std::string inside;  // where a container finds it
  std::string text;
};
DeviceFile file_of(const NodePaths& paths, const std::string& class_name,
                   const std::string& device);

// The file that makes a container's loader preload the library, and what stands in it.
std::string preload_path(const NodePaths& paths);
std::string preload_text();

// The name of the class's spec file.
std::string spec_file(const std::string& class_name);

Json spec_of(const Class& offered, const NodePaths& paths);

// The spec of a class whose devices are already written, each with a name and edits of its own;
// adds the library, its preload file and the hook to all of them.
Json spec_of(const std::string& class_name, const NodePaths& paths, const Json& devices);

// A file of the node that a device mounts.
enum class Access { ro, rw };
Json mount(const std::string& from, const std::string& to, Access access);

}  // namespace fracgpu::tools::cdi
