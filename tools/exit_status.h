// The exit statuses of the command, all of them. `fracgpu --help`, the man page and each
// subcommand's help say the same.
#pragma once

namespace fracgpu::tools {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  // a line on stderr says why; of `doctor`: a check failed
inline constexpr int kUsage = 2;   // wrong usage, but of `run`

// Of `fracgpu run`, whose status is otherwise its command's: as those of env(1) and of a shell.
inline constexpr int kFull = 75;        // no room now; try again, or --wait
inline constexpr int kRunFailed = 125;  // wrong usage, or fracgpu itself failed
inline constexpr int kCannotRun = 126;  // the command is there and cannot be run
inline constexpr int kNoCommand = 127;  // there is no such command

inline constexpr char kExitStatuses[] =
    "Exit status: 0 all is well; 1 nothing was found, or something failed; 2 wrong usage. Of run "
    "it is the command's own, or 75 no room now; 125 wrong usage, or fracgpu failed; 126 the "
    "command cannot be run; 127 there is no such command.";

}  // namespace fracgpu::tools
