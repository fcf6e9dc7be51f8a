// The command line of a program with subcommands: what it accepts, its --help, and the structure
// that its man page and completions are made from. CLI11 does the work and is seen by arguments.cc
// alone: every file that includes it costs seconds of compiling.
//
// A Command and an Option are handles to what their Program owns; they may be copied, and must not
// outlive it. What an option fills in must live until Program::run has returned. No locks.
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

// Thrown by a body: the arguments do not go together. Its line is what Program::run says of wrong
// usage.
struct WrongUsage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option required();
  Option hidden();  // --help, the man page and completions leave it out
  Option excludes(Option other);
  Option range(int least, int most);
  Option range(double least, double most);
  Option one_of(std::vector<std::string> words);
  Option shows_default();  // the value that it has now, in --help
  Option separated_by(char separator);
  Option takes_one_value();  // a list that grows by one value each time the option is given

 private:
  CLI::Option* option_;
};

// An argument as --help shows it.
struct ArgumentText {
  std::vector<std::string> names{};  // "--json", "-q"; of a positional one its name alone
  std::string description{};
  bool is_flag = false;  // takes no value, or one only behind "="
  bool required = false, repeats = false;
  std::string placeholder{};  // of the value
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

  // A name without dashes is a positional argument. The value stays as it is where the argument is
  // not given.
  Option add_option(const std::string& name, std::string& value, const std::string& about = {});
  Option add_option(const std::string& name, std::vector<std::string>& values,
                    const std::string& about);
  // A command with its arguments, behind "--" or not: from its first word on nothing is ours.
  void add_command_to_run(const std::string& name, std::vector<std::string>& words,
                          const std::string& about);
  Option add_option(const std::string& name, int& value, const std::string& about);
  Option add_option(const std::string& name, double& value, const std::string& about);
  Option add_flag(const std::string& name, bool& value, const std::string& about);
  // "--wait{forever}": the value is "forever", or what stands behind "--wait=".
  Option add_flag(const std::string& name, std::string& value, const std::string& about);

  // As soon as one of these is read, `body` is called and the program ends with status 0.
  Option add_final_flag(const std::string& name, std::function<void()> body,
                        const std::string& about);
  // `complaint` says what is wrong with a value; empty: nothing.
  Option add_final_option(const std::string& name,
                          std::function<void(const std::string& value)> body,
                          std::function<std::string(const std::string& value)> complaint,
                          const std::string& about);

  // What the command does once its arguments are read; returns the exit status of the program.
  void set_body(std::function<int()> body);

  // All that is there by now, but for what is hidden.
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

  // Reads the arguments and calls the body of the subcommand that they name; its status. Wrong
  // usage is a line on stderr, which names the word that is wrong and the nearest right one, and
  // `usage_status`. Throws what the body throws.
  int run(int argc, char** argv, int usage_status);

 private:
  friend class Command;

  std::unique_ptr<CLI::App> app_;
  std::vector<const CLI::App*> runners_;  // whose words behind the first are another command's
  int status_ = 0;
};

}  // namespace fracgpu::tools
