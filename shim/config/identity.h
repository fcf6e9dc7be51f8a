// The identity of this process: its PID on the host, its start time, and its tenant.
//
// Everything comes from /proc and the environment. Without /proc the answers are the cautious ones:
// PIDs of an unknown namespace, and a container of its own.
#pragma once

#include "shim/base/text.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {

using TenantName = Text<layout::kNameBytes>;

// Whether a user may give a tenant this name.
bool is_tenant_name(std::string_view name);

// A root-owned file that names the tenant, regardless of the environment; see trusted_file.h.
inline constexpr char kTenantFile[] = "/etc/fracgpu/tenant";

// The tenant's name. It comes from the tenant file, else FRACGPU_TENANT, else HAMi-core's shared
// file, else the container, else the launch tree. A launch tree's first process makes its name and
// exports it to its children. A container with a ceiling is one tenant, whatever the environment
// says. False with `error` set if the name is malformed, or the file cannot be trusted.
bool tenant_name(TenantName& name, Message& error);

// Gives the launch tree its name early, so that children inherit it. Does nothing in a container,
// where the mount namespace is the name, or if a variable already gives the name.
[[gnu::cold]] void export_launch_tree();

// The processes that a PID of this process's own namespace, or a host PID, can mean.
ProcessName process_of_own_namespace(uint32_t pid);
ProcessName process_of_host(uint32_t pid);
// The same for libraries that report one or the other, depending on where the number comes from.
ProcessName process_of_either(uint32_t pid);

// Whether a process has this thread, which is false once the thread has ended; and the process that
// has it, or 0 if /proc does not show it. All numbers are of this process's own namespace.
bool has_thread(uint32_t pid, uint32_t thread);
uint32_t process_of_thread(uint32_t thread);

// The same process by the PID of its own namespace, if that is inside this process's and /proc
// shows it; otherwise all zero.
ProcessName seen_from_inside(uint32_t pid_here);

// A container has at least one of three namespaces of its own, even with --pid=host --ipc=host. The
// mount namespace alone proves nothing: its initial inode varies and services often have their own.
[[gnu::cold]] bool in_container();

// Whether this process sees the host's PIDs, so that getpid() is the host PID.
bool in_host_pid_namespace();

// How far the end of a process without memory has come: its descriptors are closed after its
// memory. `unseen`: the process is in another PID namespace, or /proc is of another one.
enum class Ending { unseen, under_way, done };
Ending ending_of(uint32_t pid, uint64_t pid_namespace, uint64_t start_time);

// Whether no thread of the process runs any more, so that the kernel has closed its descriptors.
// The PID is of this process's own namespace. If /proc does not show the process, it has ended.
bool has_ended(uint32_t pid);

// The process's start time, as `ProcessIdentity::start_time`; 0 if it is gone or this process does
// not see the host's PIDs.
uint64_t start_time_on_host(uint32_t host_pid);

}  // namespace fracgpu
