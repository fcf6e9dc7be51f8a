// Writes completion scripts for bash, zsh and fish. All three offer the same: subcommands, options,
// the values of options, the tenants that have a ledger, and the command behind --. They ask this
// command each time which GPUs there are, and how those can be divided.
#include <fmt/core.h>

#include "tools/manual/command_line.h"

namespace fracgpu::tools {
namespace {

// Only valid names of tenants are offered: any user may put a file there.
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

// What bash offers for a value. The leading blank keeps bash from offering anything else if there
// is no value.
std::string bash_offer(const Argument& argument) {
  switch (argument.kind) {
    case Kind::words:
      return fmt::format("offer=\"{}\"", argument.words);
    case Kind::machine:
      return fmt::format("offer=\" $(_fracgpu_offers {})\"{}", argument.words,
                         argument.is_list ? " list=${word%\"${word##*,}\"}" : "");
    case Kind::tenant:
      return "offer=\" $(_fracgpu_tenants)\"";
    case Kind::file:
      return "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\")); return";
    case Kind::command:
    case Kind::none:
      break;
  }
  return "return";
}

// A flag takes a value behind "=" only.
std::string bash_cases(const std::string& command, const std::vector<Argument>& arguments) {
  std::string out;
  for (const Argument& argument : arguments) {
    if (!argument.is_option() || (argument.is_flag && argument.kind == Kind::none)) continue;
    std::string pattern;
    for (const std::string& name : argument.names) {
      const std::string key = fmt::format("{}:{}", command, name);
      if (!pattern.empty()) pattern += "|";
      if (!argument.is_flag) pattern += quoted_for_sh(key) + "|";
      pattern += quoted_for_sh(key + "=");
    }
    out += fmt::format("    {}) {} ;;\n", pattern, bash_offer(argument));
  }
  return out;
}

// The names of the options that take the next word, each after `before`.
std::string names_with_values(const std::vector<Argument>& arguments, const std::string& before,
                              const char* separator) {
  std::string out;
  for (const Argument& argument : arguments) {
    if (!argument.is_option() || argument.is_flag) continue;
    for (const std::string& name : argument.names) {
      out += fmt::format("{}{}{}", out.empty() ? "" : separator, before, name);
    }
  }
  return out;
}

std::string names_inside(const Subcommand& outer, const CommandLine& line) {
  std::string names;
  for (const Subcommand& each : line.subcommands) {
    if (outer.contains(each)) names += (names.empty() ? "" : " ") + each.own_name();
  }
  return names;
}

std::string zsh_action(const Argument& argument) {
  switch (argument.kind) {
    case Kind::words:
      return "(" + argument.words + ")";
    case Kind::machine:
      return fmt::format("{{{}_fracgpu_offers {}}}", argument.is_list ? "compset -P \"*,\"; " : "",
                         argument.words);
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
    const bool optional = argument.is_flag && argument.kind != Kind::none;
    const std::string value =
        optional           ? fmt::format("::value:{}", zsh_action(argument))
        : argument.is_flag ? ""
                           : fmt::format(":{}:{}", argument.placeholder, zsh_action(argument));
    specs += (specs.empty() ? "" : " ") + quoted_for_sh(fmt::format("{}{}[{}]{}", name,
                                                                    optional           ? "=-"
                                                                    : argument.is_flag ? ""
                                                                                       : equals,
                                                                    text, value));
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
      case Kind::machine:
        line += exclusive + fmt::format(" -a '(__fracgpu_offer{} {})'",
                                        argument.is_list ? "_list" : "s", argument.words);
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
  std::string names, values = bash_cases("", line.arguments), words, inner;
  std::string takes = "    " + names_with_values(line.arguments, ":", "|");
  for (const Subcommand& each : line.subcommands) {
    const std::string inside = names_inside(each, line), options = option_names(each.arguments);
    if (!each.is_inner()) names += (names.empty() ? "" : " ") + each.name;
    values += bash_cases(each.name, each.arguments);
    const std::string valued =
        names_with_values(each.arguments, quoted_for_sh(each.name) + ":", "|");
    if (!valued.empty()) takes += "|\\\n    " + valued;
    if (!inside.empty()) {
      inner += fmt::format("      {0}) command=\"{0} ${{COMP_WORDS[i]}}\" ;;\n", each.name);
    }
    if (each.runs_command()) inner += fmt::format("      {}) behind=$i; break 2 ;;\n", each.name);
    std::string offer = inside.empty() ? "" : fmt::format("offer=\"{}\"", inside);
    for (const Argument& argument : each.arguments) {
      if (argument.is_option() || argument.kind == Kind::command) continue;
      if (offer.empty()) offer = bash_offer(argument);
    }
    if (offer.empty()) offer = fmt::format("offer=\"{}\"", options);
    if (each.runs_command()) {
      words += fmt::format("    {}:[!-]*) COMPREPLY=($(compgen -c -- \"$word\")); return ;;\n",
                           each.name);
    }
    words += fmt::format("    {0}:-*) offer=\"{1}\" ;;\n    {0}:*) {2} ;;\n",
                         quoted_for_sh(each.name), options, offer);
  }
  return fmt::format(R"(# bash completion for fracgpu, as `fracgpu --completion bash` prints it.
_fracgpu_tenants() {{
  local name
  for name in /dev/shm/fracgpu-*; do
    name=${{name#/dev/shm/fracgpu-}}
    [[ $name =~ {} ]] && echo "$name"
  done
}}

# What this machine has.
_fracgpu_offers() {{
  fracgpu --offer "$1" 2>/dev/null
}}

# Whether the word behind this option of this command is its value.
_fracgpu_takes_word() {{
  case $1 in
{}) return 0 ;;
  esac
  return 1
}}

_fracgpu() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
  local command='' offer='' list='' colons='' behind='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${{COMP_WORDS[i]}} in
    --) behind=$((i + 1)); break ;;
    =|:) ((i++)) ;;
    -*) [[ ${{COMP_WORDS[i+1]}} != = ]] && _fracgpu_takes_word "$command:${{COMP_WORDS[i]}}" && ((i++)) ;;
    *)
      case $command in
      '') command=${{COMP_WORDS[i]}} ;;
{}      esac ;;
    esac
  done
  if [[ $behind ]]; then # A command of its own
    if ((behind == COMP_CWORD)); then
      COMPREPLY=($(compgen -c -- "$word"))
    else
      compopt -o filenames
      COMPREPLY=($(compgen -f -- "$word"))
    fi
    return
  fi
  # bash makes three words of 0:1, of which it completes the last.
  for ((i = COMP_CWORD; i > 1; i--)); do
    if [[ ${{COMP_WORDS[i]}} == : ]]; then
      [[ $word == : ]] && word=
      colons=${{COMP_WORDS[i-1]}}:$colons
    elif [[ ${{COMP_WORDS[i-1]}} != : ]]; then
      break
    fi
  done
  word=$colons$word
  before=${{COMP_WORDS[i-1]}}
  # So it does of --option=value.
  if [[ $word == = ]]; then
    word=''
    before+==
  elif [[ $before == = ]]; then
    before=${{COMP_WORDS[i-2]}}=
  fi
  case $command:$before in
{}  esac
  if [[ ! $offer ]]; then
    case $command:$word in
    :-*) offer="{}" ;;
    :*) offer="{}" ;;
{}    esac
  fi
  COMPREPLY=($(compgen -P "$list" -W "$offer" -- "${{word#"$list"}}"))
  COMPREPLY=("${{COMPREPLY[@]#"$colons"}}")
}}
complete -F _fracgpu fracgpu
)",
                     kTenantPattern, takes, inner, values, option_names(line.arguments), names,
                     words);
}

std::string zsh_completion(const CommandLine& line) {
  std::string commands, cases;
  for (const Subcommand& each : line.subcommands) {
    if (each.is_inner()) continue;
    commands += fmt::format(
        "        {}\n", quoted_for_sh(each.name + ":" + replaced(each.description, ":", "\\:")));
    const std::string inside = names_inside(each, line);
    if (inside.empty()) {
      cases += fmt::format("      {})\n        _arguments{}\n        ;;\n", each.name,
                           zsh_arguments(each.arguments));
      continue;
    }
    cases += fmt::format(
        "      {})\n        _arguments -C{} \\\n        '1:command:({})' '*::argument:->inner'\n"
        "        case $state:$line[1] in\n",
        each.name, zsh_arguments(each.arguments), inside);
    for (const Subcommand& inner : line.subcommands) {
      if (!each.contains(inner)) continue;
      cases += fmt::format("        inner:{})\n        _arguments{}\n        ;;\n",
                           inner.own_name(), zsh_arguments(inner.arguments));
    }
    cases += "        esac\n        ;;\n";
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

# What this machine has.
_fracgpu_offers() {{
  compadd -- $(fracgpu --offer $1 2>/dev/null)
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
  std::string runners, valued;
  for (const Subcommand& each : line.subcommands) {
    if (!each.runs_command()) continue;
    runners += " " + each.name;
    valued += names_with_values(each.arguments, " ", "");
  }
  std::string out =
      fmt::format(R"(# fish completion for fracgpu, as `fracgpu --completion fish` prints it.
function __fracgpu_tenants
    for path in /dev/shm/fracgpu-*
        string match -r '{}' (string replace /dev/shm/fracgpu- '' $path)
    end
end

# What this machine has; and in a list, behind what stands there.
function __fracgpu_offers
    type -q fracgpu; and fracgpu --offer $argv 2>/dev/null
end
function __fracgpu_offer_list
    set -l before (string replace -r '[^,]*$' '' -- (commandline -ct | string replace -r '^--[^=]*=' ''))
    for word in (__fracgpu_offers $argv)
        echo "$before$word"
    end
end

# In a command of its own: behind --, or behind its first word.
function __fracgpu_at_command
    set -l words (commandline -opc)
    contains -- -- $words; and return 0
    test (count $words) -ge 3; and contains -- $words[2]{}; or return 1
    set -l is_value 0
    for word in $words[3..-1]
        if test $is_value = 1
            set is_value 0
        else if contains -- $word{}
            set is_value 1
        else if not string match -q -- '-*' $word
            return 0
        end
    end
    return 1
end

complete -c fracgpu -f
complete -c fracgpu -n __fracgpu_at_command -xa '(__fish_complete_command)'
)",
                  kTenantPattern, runners, valued);
  out += fish_lines("__fish_use_subcommand", line.arguments);
  for (const Subcommand& each : line.subcommands) {
    const std::string inside = names_inside(each, line);
    const std::string seen = fmt::format("__fish_seen_subcommand_from {}", each.own_name());
    if (!each.is_inner()) {
      out += fmt::format("complete -c fracgpu -n __fish_use_subcommand -a {} -d {}\n", each.name,
                         quoted_for_fish(each.description));
    }
    const std::string here =
        inside.empty() ? seen + "; and not __fracgpu_at_command"
                       : fmt::format("{}; and not __fish_seen_subcommand_from {}", seen, inside);
    if (!inside.empty()) {
      out += fmt::format("complete -c fracgpu -n {} -a {}\n", quoted_for_fish(here),
                         quoted_for_fish(inside));
    }
    if (each.runs_command()) {
      out += fmt::format(
          "complete -c fracgpu -n {} -a '(__fish_complete_command)'\n",
          quoted_for_fish(here + "; and not string match -q -- '-*' (commandline -ct)"));
    }
    out += fish_lines(here, each.arguments);
  }
  return out;
}

}  // namespace fracgpu::tools
