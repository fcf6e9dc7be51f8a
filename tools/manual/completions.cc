// Writes completion scripts for bash, zsh and fish. The three know the same: subcommands, options,
// what an option's value may be, the tenants that have a ledger, and the command behind --.
#include <fmt/core.h>

#include "tools/manual/command_line.h"

namespace fracgpu::tools {
namespace {

// Names of tenants are offered only where they are such: anybody may put a file there.
constexpr const char* kTenantPattern = "^[A-Za-z0-9_-][A-Za-z0-9._-]*$";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
  return text;
}

// In single quotes, for bash and zsh.
std::string quoted_for_sh(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

std::string quoted_for_fish(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

std::string option_names(const std::vector<Argument>& arguments) {
  std::string names;
  for (const Argument& argument : arguments) {
    if (!argument.is_option()) continue;
    for (const std::string& name : argument.names) names += (names.empty() ? "" : " ") + name;
  }
  return names;
}

// What bash offers for a value; empty: nothing.
std::string bash_offer(const Argument& argument) {
  switch (argument.kind) {
    case Kind::words:
      return fmt::format("offer=\"{}\"", argument.words);
    case Kind::tenant:
      return "offer=$(_fracgpu_tenants)";
    case Kind::file:
      return "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return";
    case Kind::command:
    case Kind::none:
      break;
  }
  return "return";
}

std::string bash_cases(const std::string& command, const std::vector<Argument>& arguments) {
  std::string out;
  for (const Argument& argument : arguments) {
    if (!argument.is_option() || argument.is_flag) continue;
    std::string pattern;
    for (const std::string& name : argument.names) {
      pattern += fmt::format("{}{}:{}", pattern.empty() ? "" : "|", command, name);
    }
    out += fmt::format("    {}) {} ;;\n", pattern, bash_offer(argument));
  }
  return out;
}

std::string zsh_action(const Argument& argument) {
  switch (argument.kind) {
    case Kind::words:
      return "(" + argument.words + ")";
    case Kind::tenant:
      return "_fracgpu_tenants";
    case Kind::file:
      return "_files";
    case Kind::command:
    case Kind::none:
      break;
  }
  return " ";
}

// A specification for _arguments.
std::string zsh_spec(const Argument& argument) {
  std::string text = argument.description;
  for (const char* const special : {"\\", "[", "]", ":"}) {
    text = replaced(text, special, std::string("\\") + special);
  }
  if (argument.kind == Kind::command) return quoted_for_sh("*::command:_normal");
  if (!argument.is_option()) {
    return quoted_for_sh(fmt::format("*:{}:{}", argument.names[0], zsh_action(argument)));
  }
  std::string specs;
  for (const std::string& name : argument.names) {
    const char* const equals = name.starts_with("--") ? "=" : "+";
    const std::string value =
        argument.is_flag ? "" : fmt::format(":{}:{}", argument.placeholder, zsh_action(argument));
    specs +=
        (specs.empty() ? "" : " ") +
        quoted_for_sh(fmt::format("{}{}[{}]{}", name, argument.is_flag ? "" : equals, text, value));
  }
  return specs;
}

std::string zsh_arguments(const std::vector<Argument>& arguments) {
  std::string out;
  for (const Argument& argument : arguments) out += " \\\n        " + zsh_spec(argument);
  return out;
}

std::string fish_lines(const std::string& condition, const std::vector<Argument>& arguments) {
  std::string out;
  for (const Argument& argument : arguments) {
    std::string line = fmt::format("complete -c fracgpu -n {}", quoted_for_fish(condition));
    for (const std::string& name : argument.names) {
      if (!argument.is_option()) continue;
      line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    const char* const exclusive = argument.is_option() && !argument.is_flag ? " -x" : "";
    switch (argument.kind) {
      case Kind::words:
        line += exclusive + (" -a " + quoted_for_fish(argument.words));
        break;
      case Kind::tenant:
        line += exclusive + std::string(" -a '(__fracgpu_tenants)'");
        break;
      case Kind::file:
        line += argument.is_option() ? " -r -F" : " -F";
        break;
      case Kind::command:
        continue;  // one line for all of them, below
      case Kind::none:
        if (!argument.is_option()) continue;
        line += exclusive;
        break;
    }
    out += line + " -d " + quoted_for_fish(argument.description) + "\n";
  }
  return out;
}

}  // namespace

std::string bash_completion(const CommandLine& line) {
  std::string names, values = bash_cases("", line.arguments), words;
  for (const Subcommand& each : line.subcommands) {
    names += (names.empty() ? "" : " ") + each.name;
    values += bash_cases(each.name, each.arguments);
    std::string offer;
    for (const Argument& argument : each.arguments) {
      if (argument.is_option() || argument.kind == Kind::command) continue;
      if (offer.empty()) offer = bash_offer(argument);
    }
    words += fmt::format(
        "    {}:-*) offer=\"{}\" ;;\n    {}:*) {} ;;\n", each.name, option_names(each.arguments),
        each.name,
        offer.empty() ? fmt::format("offer=\"{}\"", option_names(each.arguments)) : offer);
  }
  return fmt::format(R"(# bash completion for fracgpu, as `fracgpu --completion bash` prints it.
_fracgpu_tenants() {{
  local name
  for name in /dev/shm/fracgpu-*; do
    name=${{name#/dev/shm/fracgpu-}}
    [[ $name =~ {} ]] && echo "$name"
  done
}}

_fracgpu() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command='' offer='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
    --) # A command of its own
      if ((i + 1 == COMP_CWORD)); then
        COMPREPLY=($(compgen -c -- "$word"))
      else
        compopt -o filenames
        COMPREPLY=($(compgen -f -- "$word"))
      fi
      return ;;
    -*) ;;
    *) [[ $command ]] || command=${{COMP_WORDS[i]}} ;;
    esac
  done
  # bash makes three words of --option=value.
  if [[ $word == = ]]; then
    word=''
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  case $command:$before in
{}  esac
  if [[ ! $offer ]]; then
    case $command:$word in
    :-*) offer="{}" ;;
    :*) offer="{}" ;;
{}    esac
  fi
  COMPREPLY=($(compgen -W "$offer" -- "$word"))
}}
complete -F _fracgpu fracgpu
)",
                     kTenantPattern, values, option_names(line.arguments), names, words);
}

std::string zsh_completion(const CommandLine& line) {
  std::string commands, cases;
  for (const Subcommand& each : line.subcommands) {
    commands += fmt::format(
        "        {}\n", quoted_for_sh(each.name + ":" + replaced(each.description, ":", "\\:")));
    cases += fmt::format("      {})\n        _arguments{}\n        ;;\n", each.name,
                         zsh_arguments(each.arguments));
  }
  return fmt::format(R"(#compdef fracgpu
# zsh completion for fracgpu, as `fracgpu --completion zsh` prints it.
_fracgpu_tenants() {{
  local -a names=(/dev/shm/fracgpu-*(N:s,/dev/shm/fracgpu-,,))
  local name
  for name in $names; do
    [[ $name =~ '{}' ]] && compadd -- $name
  done
}}

_fracgpu() {{
  local curcontext=$curcontext state
  local -a line
  _arguments -C{} \
        '1:command:->command' '*::argument:->argument'
  case $state in
    command)
      local -a commands=(
{}      )
      _describe command commands
      ;;
    argument)
      case $line[1] in
{}      esac
      ;;
  esac
}}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _fracgpu "$@"
else
  compdef _fracgpu fracgpu
fi
)",
                     kTenantPattern, zsh_arguments(line.arguments), commands, cases);
}

std::string fish_completion(const CommandLine& line) {
  std::string out =
      fmt::format(R"(# fish completion for fracgpu, as `fracgpu --completion fish` prints it.
function __fracgpu_tenants
    for path in /dev/shm/fracgpu-*
        string match -r '{}' (string replace /dev/shm/fracgpu- '' $path)
    end
end

# Behind --, a command of its own.
function __fracgpu_at_command
    contains -- -- (commandline -opc)
end

complete -c fracgpu -f
complete -c fracgpu -n __fracgpu_at_command -xa '(__fish_complete_command)'
)",
                  kTenantPattern);
  out += fish_lines("__fish_use_subcommand", line.arguments);
  for (const Subcommand& each : line.subcommands) {
    out += fmt::format("complete -c fracgpu -n __fish_use_subcommand -a {} -d {}\n", each.name,
                       quoted_for_fish(each.description));
    out += fish_lines(
        fmt::format("__fish_seen_subcommand_from {}; and not __fracgpu_at_command", each.name),
        each.arguments);
  }
  return out;
}

}  // namespace fracgpu::tools
