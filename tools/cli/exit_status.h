// All exit statuses of the command. `fracgpu --help`, the man page and each subcommand's help print
// the same.
#pragma once

#include <string>

namespace fracgpu::tools {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  // a line on stderr has the reason; `doctor`: a check failed
inline constexpr int kUsage = 2;   // wrong usage, except for `run` and `record`

// For `fracgpu run` and `fracgpu record`, whose status is otherwise the command's: the statuses of
// env(1) and of a shell.
inline constexpr int kFull = 75;        // no room now; try again, or --wait
inline constexpr int kRunFailed = 125;  // wrong usage, or fracgpu itself failed
inline constexpr int kCannotRun = 126;  // the command exists and cannot be run
inline constexpr int kNoCommand = 127;  // there is no such command

// The statuses as printed for users.
struct ExitStatus {
  int status;
  const char* meaning;
};
inline constexpr ExitStatus kExitStatuses[] = {
    {kOk, "all is well; of run, record and queue: what was run succeeded"},
    {kFailed,
     "something failed, or was not found, and a line says what; of doctor: a check failed"},
    {kUsage, "wrong usage, but of run and record"},
    {kFull, "of run: there is no room now"},
    {kRunFailed, "of run and record: wrong usage, or fracgpu failed"},
    {kCannotRun, "of run and record: the command cannot be run"},
    {kNoCommand, "of run and record: there is no such command"},
};

// For the end of --help.
inline std::string exit_statuses_text() {
  std::string text =
      "Exit status (of run and record it is the command's own, but for those of theirs below):";
  for (const auto& [status, meaning] : kExitStatuses) {
    text += "\n  " + std::to_string(status) +
            std::string(status < 10    ? 4
                        : status < 100 ? 3
                                       : 2,
                        ' ') +
            meaning;
  }
  return text;
}

}  // namespace fracgpu::tools
