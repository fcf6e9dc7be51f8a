// Reads the command line's structure from CLI11 and prints what is made of it; see manual.h.
#include "tools/manual/manual.h"

#include "tools/cli/output.h"
#include "tools/manual/command_line.h"

namespace fracgpu::tools {
namespace {

// Values that a shell can offer, by the names of options and positional arguments.
struct Value {
  const char* name;
  Kind kind;
  const char* words;
};
constexpr Value kValues[] = {
    {"--tenant", Kind::tenant, ""},
    {"TENANT", Kind::tenant, ""},
    {"--textfile", Kind::file, ""},
    {"FILE", Kind::file, ""},
    {"COMMAND", Kind::command, ""},
    {"--fraction", Kind::words, "0.125 0.25 0.375 0.5 0.625 0.75 0.875 1"},
    {"--count", Kind::words, "1 2 4"},
    {"--listen", Kind::words, "127.0.0.1:9400"},
    {"--completion", Kind::words, "bash zsh fish"},
};

Argument argument_of(const CLI::Option& option) {
  Argument argument;
  argument.description = option.get_description();
  if (option.get_lnames().empty() && option.get_snames().empty()) {
    argument.names = {option.get_name()};
  }
  for (const std::string& name : option.get_snames()) argument.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) argument.names.push_back("--" + name);
  argument.is_flag = option.get_type_size() == 0 || option.get_expected_min() == 0;
  argument.required = option.get_required();
  argument.repeats = option.get_items_expected_max() > 1;
  argument.placeholder = option.get_type_name();
  for (const Value& value : kValues) {
    if (argument.names.back() != value.name) continue;
    argument.kind = value.kind;
    argument.words = value.words;
  }
  return argument;
}

std::vector<Argument> arguments_of(const CLI::App& app) {
  std::vector<Argument> arguments;
  for (const CLI::Option* const option : app.get_options()) {
    if (!option->get_group().empty()) arguments.push_back(argument_of(*option));
  }
  return arguments;
}

}  // namespace

CommandLine command_line_of(const CLI::App& app) {
  CommandLine line{app.get_description(), app.get_footer(), arguments_of(app), {}};
  for (const CLI::App* const each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (each->get_group().empty()) continue;
    line.subcommands.push_back(
        {each->get_name(), each->get_description(), each->get_footer(), arguments_of(*each)});
  }
  return line;
}

void add_manual_options(CLI::App& app) {
  app.add_flag_callback(
         "--manual",
         [&app] {
           print(man_page(command_line_of(app)));
           throw CLI::Success();
         },
         "Print the man page, for man -l -")
      ->trigger_on_parse();
  app.add_option_function<std::string>(
         "--completion",
         [&app](const std::string& shell) {
           const CommandLine line = command_line_of(app);
           print(shell == "bash"  ? bash_completion(line)
                 : shell == "zsh" ? zsh_completion(line)
                                  : fish_completion(line));
           throw CLI::Success();
         },
         "Print completions for this shell: bash, zsh or fish")
      ->check([](const std::string& shell) {
        const bool known = shell == "bash" || shell == "zsh" || shell == "fish";
        return known ? "" : "there are completions for bash, zsh and fish, and not for " + shell;
      })
      ->trigger_on_parse();
}

}  // namespace fracgpu::tools
