// What a container leaves a process of the machine's AMD devices. FRACGPU_SIM_HIDDEN lists the
// others, by the node's numbers: "0,2". Their files of the kernel driver cannot be read then, and
// they have no render node, as where a device cgroup forbids them. With ":render" behind the
// numbers ("0,2:render") the render nodes alone are missing, as in rootless containers, which have
// no device cgroup.
#pragma once

namespace sim {

inline constexpr const char* kHiddenVariable = "FRACGPU_SIM_HIDDEN";

// KFD answers EPERM to who reads about it (kfd_devcgroup_check_permission in the kernel).
bool is_forbidden(int dev);
// /dev/dri/renderD* is not there. libhsakmt leaves out both kinds, and numbers the rest anew.
bool lacks_render_node(int dev);

}  // namespace sim
