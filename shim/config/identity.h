// Who this process is: its PID on the host, its start time, and the tenant it belongs to.
//
// Everything comes from /proc and the environment. Where /proc is missing the answers are the
// cautious ones: PIDs of an unknown namespace, and a container of its own.
#pragma once

#include "shim/base/text.h"
#include "shim/ledger/ledger.h"

namespace fracgpu {

using TenantName = Text<layout::kNameBytes>;

// Whether a user may name a tenant so.
bool is_tenant_name(std::string_view name);

// A file of root's that names the tenant, whatever the environment says; see trusted_file.h.
inline constexpr char kTenantFile[] = "/etc/fracgpu/tenant";

// The tenant's name: what the tenant file says, else FRACGPU_TENANT, else the container, else the
// launch tree, whose first process takes a name of its own and exports it to its children. A
// container with a ceiling of its own is one tenant, whatever FRACGPU_TENANT is. False with `error`
// set when the name is malformed, or the file cannot be trusted.
bool tenant_name(TenantName& name, Message& error);

// Gives the launch tree its name early, so that children inherit it. Does nothing in a container,
// where the mount namespace is the name, or where FRACGPU_TENANT is set already.
[[gnu::cold]] void export_launch_tree();

// The processes that others mean by a PID of this process's own namespace, or by a host PID.
ProcessName process_of_own_namespace(uint32_t pid);
ProcessName process_of_host(uint32_t pid);
// The same for libraries that give one or the other, by where the number comes from.
ProcessName process_of_either(uint32_t pid);

// Whether a process has this thread, which is not so once the thread has ended; and the process
// that has it, or 0 where /proc does not tell. All numbers are of this process's own namespace.
bool has_thread(uint32_t pid, uint32_t thread);
uint32_t process_of_thread(uint32_t thread);

// The same process by the PID of its own namespace, if that lies inside this process's and /proc
// shows it; else all zero.
ProcessName seen_from_inside(uint32_t pid_here);

// In a container at least one of three namespaces is its own, even with --pid=host --ipc=host. The
// mount namespace alone proves nothing: its initial inode varies and services often have their own.
[[gnu::cold]] bool in_container();

// Whether this process sees the host's PIDs, so that getpid() is the host PID.
bool in_host_pid_namespace();

// How far the end of a process has come that has no memory of its own any more: its descriptors are
// closed after that. `unseen`: of another PID namespace, or /proc is not of this one.
enum class Ending { unseen, under_way, done };
Ending ending_of(uint32_t pid, uint64_t pid_namespace, uint64_t start_time);

// Whether nothing of the process runs any more, so that the kernel has closed what it had open. Its
// PID is of this process's own namespace; where /proc does not tell, it has ended.
bool has_ended(uint32_t pid);

// When the process was started, as `ProcessIdentity::start_time`; 0 where it is gone or this
// process does not see the host's PIDs.
uint64_t start_time_on_host(uint32_t host_pid);

}  // namespace fracgpu
