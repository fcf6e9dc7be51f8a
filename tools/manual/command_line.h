// The command line in plain values. The man page and the completions are made from them, so that
// they always say what --help says.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tools/cli/arguments.h"

namespace fracgpu::tools {

// What a shell may offer for an argument.
enum class Kind { none, words, machine, tenant, file, command };

struct Argument : ArgumentText {
  Kind kind = Kind::none;  // of the value
  // For kind words: separated by blanks. For kind machine: the name that offers.h takes.
  std::string words{};
  bool is_list = false;  // several, with commas

  bool is_option() const { return names[0][0] == '-'; }
};

// A subcommand of another one follows that one; both names are in its name, as "cdi generate".
struct Subcommand {
  std::string name, description, footer;
  std::vector<Argument> arguments;

  bool is_inner() const { return name.find(' ') != std::string::npos; }
  std::string own_name() const { return name.substr(name.find(' ') + 1); }
  bool contains(const Subcommand& other) const { return other.name.starts_with(name + " "); }
  bool runs_command() const {
    return std::any_of(arguments.begin(), arguments.end(),
                       [](const Argument& each) { return each.kind == Kind::command; });
  }
};

struct CommandLine {
  std::string description, footer;
  std::vector<Argument> arguments;
  std::vector<Subcommand> subcommands;
};

CommandLine command_line_of(const CommandText& text);

// fracgpu(1), for man. (man_page.cc)
std::string man_page(const CommandLine& line);

}  // namespace fracgpu::tools
