// --manual and --completion: the command's own man page and completions.
#pragma once

namespace fracgpu::tools {

class Command;

// Adds both to the command, which must have all its subcommands when it parses.
void add_manual_options(Command program);

// If these are the words of a shell's call to complete a line, prints what may complete it.
bool completes(Command program, int count, char** words);

}  // namespace fracgpu::tools
