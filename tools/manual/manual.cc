// Reads the structure of the command line and prints the man page, the completion scripts, or what
// may complete a word; see manual.h.
#include "tools/manual/manual.h"

#include "tools/cli/output.h"
#include "tools/manual/command_line.h"
#include "tools/manual/completion.h"

namespace fracgpu::tools {
namespace {

// Values that a shell can offer, by the names of options and positional arguments. The subcommand's
// name comes first if the same name means something else in another subcommand.
struct Value {
  const char* name;
  Kind kind;
  const char* words;
  bool is_list = false;
};
constexpr Value kValues[] = {
    {"--tenant", Kind::tenant, ""},
    {"TENANT", Kind::tenant, ""},
    {"partition GPU", Kind::machine, "board"},
    {"partition --compute", Kind::machine, "compute"},
    {"partition --memory", Kind::machine, "memory"},
    {"--partition", Kind::machine, "partition"},
    {"--textfile", Kind::file, ""},
    {"FILE", Kind::file, ""},
    {"COMMAND", Kind::command, ""},
    {"--fraction", Kind::words, "0.125 0.25 0.375 0.5 0.625 0.75 0.875 1"},
    {"--count", Kind::words, "1 2 4 8"},
    {"--gpus", Kind::machine, "gpus", true},
    {"--gpu", Kind::machine, "gpu"},
    {"--mig", Kind::machine, "mig"},
    {"--wait", Kind::words, "forever 30s 10m 2h 1d"},
    {"--output", Kind::file, ""},
    {"OTHER", Kind::file, ""},
    {"--format", Kind::words, "text json collapsed perfetto"},
    {"--of", Kind::words, "peak leaks allocated"},
    {"--symbols", Kind::file, ""},
    {"--files", Kind::file, ""},
    {"--library", Kind::file, ""},
    {"--command", Kind::file, ""},
    {"--kubeconfig", Kind::file, ""},
    {"--kubelet-dir", Kind::file, ""},
    {"--cdi-dir", Kind::file, ""},
    {"--run-dir", Kind::file, ""},
    {"--listen", Kind::words, "127.0.0.1:9400"},
    {"--completion", Kind::words, "bash zsh fish"},
};

std::vector<Argument> arguments_of(const std::string& command,
                                   const std::vector<ArgumentText>& texts) {
  std::vector<Argument> arguments;
  for (const ArgumentText& text : texts) {
    Argument argument{text};
    const std::string& name = text.names.back();
    for (const Value& value : kValues) {
      if (value.name != name && value.name != command + " " + name) continue;
      argument.kind = value.kind;
      argument.words = value.words;
      argument.is_list = value.is_list;
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace

CommandLine command_line_of(const CommandText& text) {
  CommandLine line{text.description, text.footer, arguments_of("", text.arguments), {}};
  for (const CommandText& each : text.subcommands) {
    line.subcommands.push_back(
        {each.name, each.description, each.footer, arguments_of(each.name, each.arguments)});
    for (const CommandText& inner : each.subcommands) {
      line.subcommands.push_back({each.name + " " + inner.name, inner.description, inner.footer,
                                  arguments_of(inner.name, inner.arguments)});
    }
  }
  return line;
}

void add_manual_options(Command program) {
  program.add_final_flag(
      "--manual", [program] { print(man_page(command_line_of(program.text()))); },
      "Print the man page, for man -l -");
  program.add_final_option(
      "--completion", [](const std::string& shell) { print(completion_script(shell)); },
      [](const std::string& shell) {
        return !completion_script(shell).empty()
                   ? ""
                   : "there are completions for bash, zsh and fish, and not for " + shell;
      },
      "Print completions for this shell: bash, zsh or fish");
}

bool completes(Command program, int count, char** words) {
  if (count < 2 || words[1] != std::string(kCompleteCommand)) return false;
  print(complete(command_line_of(program.text()), {words + 2, words + count}));
  return true;
}

}  // namespace fracgpu::tools
