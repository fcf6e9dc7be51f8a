// Completion in shells. The shells' scripts call `fracgpu __complete` with the words of the line,
// and offer what it prints.
#pragma once

#include <string>
#include <vector>

#include "tools/manual/command_line.h"

namespace fracgpu::tools {

inline constexpr const char* kCompleteCommand = "__complete";

// What may stand in place of the last of these words, which follow "fracgpu" and of which the last
// may be empty: one a line, with a tab and its description if it has one. Or a line for the shell:
// ":files" if a file's name fits, ":command N" if the command of a launch begins with the word N,
// counted from 0.
std::string complete(const CommandLine& line, const std::vector<std::string>& words);

// The script for bash, zsh or fish; empty for other shells.
std::string completion_script(const std::string& shell);

}  // namespace fracgpu::tools
