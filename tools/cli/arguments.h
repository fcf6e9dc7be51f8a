// The command line of a program with subcommands: what it accepts, its --help, and the structure
// for its man page and completions. CLI11 does the work. Only arguments.cc includes it, because
// every file that includes it takes seconds to compile.
//
// A Command and an Option are handles to objects that their Program owns. They may be copied, and
// must not outlive it. An option's target must live until Program::run has returned. No locks.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fracgpu::tools {

// A body throws this if the arguments do not fit together. Program::run prints its line as wrong
// usage.
struct WrongUsage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  Option hidden();  // hidden from --help, the man page and completions
  Option excludes(Option other);
  Option range(int least, int most);
  Option range(double least, double most);
  Option one_of(std::vector<std::string> words);
  Option shows_default();  // shows the current value in --help
  Option separated_by(char separator);
  bool is_given() const;     // on the command line, once it is read
  Option takes_one_value();  // a list that grows by one value with each use of the option

 private:
  CLI::Option* option_;
};

// An argument as --help shows it.
struct ArgumentText {
  std::vector<std::string> names{};  // "--json", "-q"; only the name if positional
  std::string description{};
  bool is_flag = false;  // takes no value, or only one after "="
  bool required = false, repeats = false;
  std::string placeholder{};  // for the value
};

struct CommandText {
  std::string name, description, footer;
  std::vector<ArgumentText> arguments;
  std::vector<CommandText> subcommands;
};

class Program;

class Command {
 public:
  Command(CLI::App* app, Program* program) : app_(app), program_(program) {}

  Command add_subcommand(const std::string& name, const std::string& about);
  void require_subcommand();
  void set_footer(const std::string& text);

  // A name without dashes is a positional argument. The value stays unchanged if the argument is
  // not given.
  Option add_option(const std::string& name, std::string& value, const std::string& about = {});
  Option add_option(const std::string& name, std::vector<std::string>& values,
                    const std::string& about);
  // A command with its arguments, with or without "--" before it. All words from its first word on
  // belong to it.
  void add_command_to_run(const std::string& name, std::vector<std::string>& words,
                          const std::string& about);
  Option add_option(const std::string& name, int& value, const std::string& about);
  Option add_option(const std::string& name, double& value, const std::string& about);
  Option add_flag(const std::string& name, bool& value, const std::string& about);
  // "--wait{forever}": the value is "forever", or the text after "--wait=".
  Option add_flag(const std::string& name, std::string& value, const std::string& about);

  // As soon as one of these is read, `body` runs and the program ends with status 0.
  Option add_final_flag(const std::string& name, std::function<void()> body,
                        const std::string& about);
  // `complaint` returns what is wrong with a value; empty: nothing.
  Option add_final_option(const std::string& name,
                          std::function<void(const std::string& value)> body,
                          std::function<std::string(const std::string& value)> complaint,
                          const std::string& about);

  // The command's action after its arguments are read. Returns the program's exit status.
  void set_body(std::function<int()> body);

  // Everything added so far, except hidden arguments.
  CommandText text() const;

 private:
  CLI::App* app_;
  Program* program_;
};

class Program {
 public:
  Program(const std::string& name, const std::string& about, const std::string& version);
  ~Program();

  Command command();

  // Reads the arguments, calls the body of the subcommand, and returns its status. For wrong usage,
  // prints a line on stderr with the wrong word and the nearest right one, and returns
  // `usage_status`. Passes on the body's exceptions.
  int run(int argc, char** argv, int usage_status);

 private:
  friend class Command;

  std::unique_ptr<CLI::App> app_;
  std::vector<const CLI::App*> runners_;  // commands whose later words belong to another command
  int status_ = 0;
};

}  // namespace fracgpu::tools
