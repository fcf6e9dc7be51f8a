// Finds out what the last word of a command line may be; see completion.h.
#include "tools/manual/completion.h"

#include <fmt/core.h>

#include <sstream>
#include <string_view>

#include "shim/config/identity.h"
#include "tools/machine/ledger_reader.h"
#include "tools/manual/offers.h"

namespace fracgpu::tools {
namespace {

const Argument* option_named(const std::vector<Argument>& arguments, std::string_view name) {
  for (const Argument& each : arguments) {
    if (each.is_option() && std::ranges::find(each.names, name) != each.names.end()) return &each;
  }
  return nullptr;
}

// Where the walk over the words has come to.
class Walk {
 public:
  explicit Walk(const CommandLine& line) : line_(line) {}

  // Passes a word that is complete.
  void pass(const std::string& word) {
    if (valued_ != nullptr) {
      valued_ = nullptr;
    } else if (word == "--") {
      behind_dashes_ = true;
    } else if (word.starts_with("-")) {
      const Argument* const option = option_named(arguments(), word);
      if (option != nullptr && !option->is_flag) valued_ = option;
    } else if (!enter(word)) {
      ++positional_;
    }
  }

  // Whether this word, which comes next, begins the command of a launch.
  bool is_before_command(const std::string& word) const {
    const bool may_begin = behind_dashes_ || !word.starts_with("-");
    return command_ != nullptr && command_->runs_command() && valued_ == nullptr && may_begin;
  }

  std::string offer(const std::string& word) const {
    if (valued_ != nullptr) return values_of(*valued_, "", word);
    const size_t equals = word.find('=');
    if (word.starts_with("-") && equals != word.npos) {
      const Argument* const option = option_named(arguments(), word.substr(0, equals));
      const std::string before = word.substr(0, equals + 1);
      return option != nullptr ? values_of(*option, before, word.substr(equals + 1)) : "";
    }
    if (word.starts_with("-")) return options(word);
    if (command_ == nullptr && positional_ > 0) return "";  // not a command of ours
    if (const std::string names = names_inside(word); !names.empty() || command_ == nullptr)
      return names;
    int number = 0;
    for (const Argument& each : arguments()) {
      if (!each.is_option() && number++ == positional_) return values_of(each, "", word);
    }
    return number == 0 ? options(word) : "";
  }

 private:
  const std::vector<Argument>& arguments() const {
    return command_ != nullptr ? command_->arguments : line_.arguments;
  }

  // Whether the word is the name of a subcommand here.
  bool enter(const std::string& word) {
    const std::string name = command_ != nullptr ? command_->name + " " + word : word;
    for (const Subcommand& each : line_.subcommands) {
      if (each.name != name) continue;
      command_ = &each;
      return true;
    }
    return false;
  }

  static void add(std::string& out, const std::string& word, const std::string& description) {
    out += word + (description.empty() ? "" : "\t" + description) + "\n";
  }

  std::string names_inside(const std::string& word) const {
    std::string out;
    for (const Subcommand& each : line_.subcommands) {
      const bool is_here = command_ != nullptr ? command_->contains(each) : !each.is_inner();
      if (is_here && each.own_name().starts_with(word)) add(out, each.own_name(), each.description);
    }
    return out;
  }

  std::string options(const std::string& word) const {
    std::string out;
    for (const Argument& each : arguments()) {
      if (!each.is_option()) continue;
      for (const std::string& name : each.names) {
        if (name.starts_with(word)) add(out, name, each.description);
      }
    }
    return out;
  }

  // `before`: what stands in front of the value in its word.
  static std::string values_of(const Argument& argument, std::string before, std::string typed) {
    std::vector<std::string> values;
    switch (argument.kind) {
      case Kind::words: {
        std::istringstream words(argument.words);
        for (std::string each; words >> each;) values.push_back(each);
        break;
      }
      case Kind::machine:
        values = offers_for(argument.words);
        break;
      case Kind::tenant:
        // Any user may put a file with another name there.
        for (const std::string& each : tenant_names()) {
          if (is_tenant_name(each)) values.push_back(each);
        }
        break;
      case Kind::file:
        return ":files\n";
      case Kind::command:
      case Kind::none:
        return "";
    }
    if (const size_t comma = typed.rfind(','); argument.is_list && comma != typed.npos) {
      before += typed.substr(0, comma + 1);
      typed.erase(0, comma + 1);
    }
    std::string out;
    for (const std::string& value : values) {
      if (value.starts_with(typed)) add(out, before + value, "");
    }
    return out;
  }

  const CommandLine& line_;
  const Subcommand* command_ = nullptr;
  const Argument* valued_ = nullptr;  // the last word was this option, whose value comes next
  bool behind_dashes_ = false;
  int positional_ = 0;  // words so far that are no options, values or names of commands
};

constexpr const char* kBash =
    R"(# bash completion for fracgpu, as `fracgpu --completion bash` prints it.
_fracgpu() {
  local IFS=$'\n' piece=${COMP_WORDS[COMP_CWORD]} last=-1 i line before
  local -a words=() lines=()
  # bash makes words of their own of = and :, which belong to the words around them.
  for ((i = 1; i <= COMP_CWORD; i++)); do
    if ((last < 0)) || [[ ${COMP_WORDS[i]} != [=:]* && ${COMP_WORDS[i-1]} != *[=:] ]]; then
      words[++last]=${COMP_WORDS[i]}
    else
      words[last]+=${COMP_WORDS[i]}
    fi
  done
  [[ $piece == *[=:] ]] && piece=
  before=${words[last]%"$piece"}
  mapfile -t lines < <(fracgpu __complete "${words[@]}" 2>/dev/null)
  COMPREPLY=()
  case ${lines[0]} in
  ":command $last") COMPREPLY=($(compgen -c -- "$piece")) ;;
  :files | :command*)
    compopt -o filenames
    COMPREPLY=($(compgen -f -- "$piece"))
    ;;
  *)
    for line in "${lines[@]}"; do
      line=${line%%$'\t'*}
      COMPREPLY+=("${line#"$before"}")
    done
    ;;
  esac
}
complete -F _fracgpu fracgpu
)";

constexpr const char* kZsh = R"(#compdef fracgpu
# zsh completion for fracgpu, as `fracgpu --completion zsh` prints it.
_fracgpu() {
  local line
  local -i first
  local -a lines names shown
  lines=("${(@f)$(fracgpu __complete "${(@Q)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  case $lines[1] in
  :files)
    compset -P '*='
    _files
    ;;
  :command*)
    first=${lines[1]#:command }
    shift $((first + 1)) words
    ((CURRENT -= first + 1))
    _normal
    ;;
  ?*)
    for line in $lines; do
      names+=("${line%%$'\t'*}")
      shown+=("${line/$'\t'/  -- }")
    done
    compadd -l -d shown -a names
    ;;
  esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _fracgpu "$@"
else
  compdef _fracgpu fracgpu
fi
)";

constexpr const char* kFish =
    R"(# fish completion for fracgpu, as `fracgpu --completion fish` prints it.
function __fracgpu_complete
    type -q fracgpu; or return
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (fracgpu __complete $words[2..-1] "$current" 2>/dev/null)
    switch "$lines[1]"
        case ':files'
            set -l before (string match -r '^--[^=]*=' -- "$current")
            for path in (__fish_complete_path (string replace -r '^--[^=]*=' '' -- "$current"))
                echo "$before$path"
            end
        case ':command *'
            set -l first (string replace ':command ' '' -- $lines[1])
            set -l command $words[(math $first + 2)..-1]
            complete -C (string join ' ' -- (string escape -- $command) "$current")
        case '*'
            string join \n -- $lines
    end
end
complete -c fracgpu -f -a '(__fracgpu_complete)'
)";

}  // namespace

std::string complete(const CommandLine& line, const std::vector<std::string>& words) {
  Walk walk(line);
  for (size_t i = 0; i < words.size(); ++i) {
    if (walk.is_before_command(words[i])) return fmt::format(":command {}\n", i);
    if (i + 1 == words.size()) return walk.offer(words[i]);
    walk.pass(words[i]);
  }
  return "";
}

std::string completion_script(const std::string& shell) {
  return shell == "bash" ? kBash : shell == "zsh" ? kZsh : shell == "fish" ? kFish : "";
}

}  // namespace fracgpu::tools
