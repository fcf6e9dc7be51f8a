// Describes our devices to container engines, in the form of the Container Device Interface.
//
// A device is a cap that a container requests by name, `--device fracgpu.dev/memory=8gb`. The
// device puts three read-only files of the node into the container, whatever its image: the
// library, the file that makes the loader preload it, and a ceiling, which no environment can
// raise. Before that, a hook refuses images in which the library would not work.
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

// The class "memory" has sizes ("8gb"), "fraction" has shares of a GPU ("0.5"), "tenant" has names
// of tenants. The first two are caps. The third goes beside them, so that containers that share
// /dev/shm share one cap.
struct Class {
  std::string name;
  std::vector<std::string> devices;
};

// The caps that are offered if no others are requested.
Class default_class(const std::string& name);

// Throws, with the accepted names, if a device of the class cannot have this name.
void check_device(const std::string& class_name, const std::string& device);

// A device's own file: a ceiling or the name of a tenant.
struct DeviceFile {
  std::string path;    // on the node
  std::string inside;  // where a container finds it
  std::string text;
};
DeviceFile file_of(const NodePaths& paths, const std::string& class_name,
                   const std::string& device);

// The file that makes a container's loader preload the library, and its text.
std::string preload_path(const NodePaths& paths);
std::string preload_text();

// The name of the class's spec file.
std::string spec_file(const std::string& class_name);

Json spec_of(const Class& offered, const NodePaths& paths);

// The spec of a class whose devices are written already, each with a name and edits of its own.
// Adds the library, its preload file and the hook to all of them.
Json spec_of(const std::string& class_name, const NodePaths& paths, const Json& devices);

// A file of the node that a device mounts.
enum class Access { ro, rw };
Json mount(const std::string& from, const std::string& to, Access access);

}  // namespace fracgpu::tools::cdi
