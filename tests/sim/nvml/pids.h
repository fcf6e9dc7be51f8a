// The PIDs that the simulated NVML gives, and what is wrong with them in which driver.
#pragma once

#include "sim/node/node.h"

namespace sim {

// True for the driver version `text` ("535.129.03") if it is at least this one.
bool driver_is_since(const char* text, int major, int minor, int patch);

// How a driver lists processes. Where nothing is set it says the process's PID in the caller's
// namespace, and that process's memory.
struct ListRules {
  bool host_pids = false;           // the host's PIDs, whoever asks
  bool thread_pids = false;         // the PID of the thread that opened the driver
  bool memory_by_host_pid = false;  // the memory of whoever has that number on the host
  bool repeats_clients = false;     // who is listed already is looked up by the host's PID
};
ListRules list_rules(const char* version, bool open_modules);

// The number by which this driver tells the calling process of another one; 0 if that is outside of
// the caller's namespace.
int pid_for_caller(const ProcessInfo& process, const ListRules& rules);

}  // namespace sim
