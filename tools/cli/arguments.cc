// See arguments.h.
#include "tools/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <utility>

#include "tools/cli/output.h"
#include "tools/cli/plain_text.h"
#include "tools/cli/spelling.h"

namespace fracgpu::tools {
namespace {

ArgumentText text_of(const CLI::Option& option) {
  ArgumentText text;
  text.description = option.get_description();
  if (option.get_lnames().empty() && option.get_snames().empty()) text.names = {option.get_name()};
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  text.is_flag = option.get_type_size() == 0 || option.get_expected_min() == 0;
  text.required = option.get_required();
  text.repeats = option.get_items_expected_max() > 1;
  text.placeholder = option.get_type_name();
  return text;
}

CommandText text_of(const CLI::App& app) {
  CommandText text{app.get_name(), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* const option : app.get_options()) {
    if (!option->get_group().empty()) text.arguments.push_back(text_of(*option));
  }
  for (const CLI::App* const each : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!each->get_group().empty()) text.subcommands.push_back(text_of(*each));
  }
  return text;
}

std::vector<CLI::App*> subcommands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

// Whether it takes no separate value: a flag, even if it may have a value after "=".
bool is_flag(const CLI::Option& option) {
  return option.get_items_expected_max() == 0 || option.get_expected_min() == 0;
}

// The words in it may come from the user or from a script. They must not control a terminal, nor
// fill it.
std::string plain_line(const std::string& text) {
  constexpr size_t kShown = 300;
  const std::string shown = clean(text.c_str(), std::min(text.size(), kShown));
  return text.size() > kShown ? shown + "..." : shown;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& words) {
  const std::string found = nearest(word, words);
  return found.empty() ? "" : " (did you mean " + found + "?)";
}

std::string complaint_about_command(CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* const each : subcommands_of(app)) {
    if (!each->get_group().empty()) names.push_back(each->get_name());
  }
  return app.get_name() + " has no command " + word + did_you_mean(word, names);
}

std::string complaint_about_option(CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::Option* const option : app.get_options()) {
    for (const std::string& each : option->get_lnames()) names.push_back("--" + each);
  }
  return app.get_name() + " has no option " + name + did_you_mean(name, names);
}

// Reads the words as CLI11 will, as far as names matter, to report the wrong one. CLI11 reports
// another word if an unknown option has a value. Puts "--" before the first word of a command to
// run: all later words belong to that command. Empty: no complaint.
std::string prepare(CLI::App& program, const std::vector<const CLI::App*>& runners,
                    std::vector<std::string>& words) {
  CLI::App* app = &program;
  std::set<const CLI::Option*> given;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return {};
    const bool is_number = word.size() > 1 && std::isdigit(static_cast<unsigned char>(word[1]));
    if (word.size() > 1 && word[0] == '-' && !is_number) {
      const std::string name = word.substr(0, word.find('='));
      const CLI::Option* option = app->get_option_no_throw(name);
      if (option == nullptr) return complaint_about_option(*app, name);
      if (is_flag(*option)) continue;
      if (!given.insert(option).second && option->get_items_expected_max() == 1) {
        return name + " is given twice";
      }
      // An unset variable of a script must not mean the same as a missing option.
      const bool in_next_word = name == word;
      if (in_next_word && i + 1 == words.size()) return name + " needs a value behind it";
      if (in_next_word ? i + 1 < words.size() && words[i + 1].empty()
                       : word.size() == name.size() + 1) {
        return name + ": the value is empty; leave the option out, or give one";
      }
      if (in_next_word) ++i;  // whatever it looks like
    } else if (!subcommands_of(*app).empty()) {
      const std::vector<CLI::App*> all = subcommands_of(*app);
      const auto next = std::find_if(
          all.begin(), all.end(), [&](const CLI::App* each) { return each->get_name() == word; });
      if (next == all.end()) return complaint_about_command(*app, word);
      app = *next;
    } else if (std::find(runners.begin(), runners.end(), app) != runners.end()) {
      words.insert(words.begin() + static_cast<ptrdiff_t>(i), "--");
      return {};
    }
  }
  return {};
}

}  // namespace

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::hidden() {
  option_->group("");
  return *this;
}

Option Option::excludes(Option other) {
  option_->excludes(other.option_);
  return *this;
}

bool Option::is_given() const {
  return option_->count() > 0;
}

Option Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::range(double least, double most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::one_of(std::vector<std::string> words) {
  option_->check([words = std::move(words)](const std::string& value) -> std::string {
    if (std::find(words.begin(), words.end(), value) != words.end()) return {};
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : ", ") + word;
    return "there is no " + value + did_you_mean(value, words) + "; what there is: " + all;
  });
  return *this;
}

Option Option::shows_default() {
  option_->capture_default_str();
  return *this;
}

Option Option::separated_by(char separator) {
  option_->delimiter(separator);
  return *this;
}

Option Option::takes_one_value() {
  option_->allow_extra_args(false);
  return *this;
}

Command Command::add_subcommand(const std::string& name, const std::string& about) {
  return {app_->add_subcommand(name, about), program_};
}

void Command::require_subcommand() {
  app_->require_subcommand(1);
}

void Command::set_footer(const std::string& text) {
  app_->footer(text);
}

Option Command::add_option(const std::string& name, std::string& value, const std::string& about) {
  return Option(app_->add_option(name, value, about));
}

Option Command::add_option(const std::string& name, std::vector<std::string>& values,
                           const std::string& about) {
  return Option(app_->add_option(name, values, about));
}

void Command::add_command_to_run(const std::string& name, std::vector<std::string>& words,
                                 const std::string& about) {
  app_->add_option(name, words, about);
  program_->runners_.push_back(app_);
}

Option Command::add_option(const std::string& name, int& value, const std::string& about) {
  return Option(app_->add_option(name, value, about));
}

Option Command::add_option(const std::string& name, double& value, const std::string& about) {
  return Option(app_->add_option(name, value, about));
}

Option Command::add_flag(const std::string& name, bool& value, const std::string& about) {
  return Option(app_->add_flag(name, value, about));
}

Option Command::add_flag(const std::string& name, std::string& value, const std::string& about) {
  return Option(app_->add_flag(name, value, about));
}

Option Command::add_final_flag(const std::string& name, std::function<void()> body,
                               const std::string& about) {
  const auto finish = [body = std::move(body)] {
    body();
    throw CLI::Success();
  };
  return Option(app_->add_flag_callback(name, finish, about)->trigger_on_parse());
}

Option Command::add_final_option(const std::string& name,
                                 std::function<void(const std::string&)> body,
                                 std::function<std::string(const std::string&)> complaint,
                                 const std::string& about) {
  const auto finish = [body = std::move(body)](const std::string& value) {
    body(value);
    throw CLI::Success();
  };
  return Option(app_->add_option_function<std::string>(name, finish, about)
                    ->check(std::move(complaint))
                    ->trigger_on_parse());
}

void Command::set_body(std::function<int()> body) {
  app_->callback([body = std::move(body), program = program_] { program->status_ = body(); });
}

CommandText Command::text() const {
  return text_of(*app_);
}

Program::Program(const std::string& name, const std::string& about, const std::string& version)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->set_version_flag("--version", version);
  app_->failure_message([name](const CLI::App*, const CLI::Error& error) {
    return name + ": " + plain_line(error.what()) + "; see " + name + " --help\n";
  });
}

Program::~Program() = default;

Command Program::command() {
  return {app_.get(), this};
}

int Program::run(int argc, char** argv, int usage_status) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  try {
    const std::string complaint = prepare(*app_, runners_, words);
    if (!complaint.empty()) throw CLI::ArgumentMismatch(complaint);
    std::reverse(words.begin(), words.end());  // the order that CLI11 expects
    app_->parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : usage_status;
  } catch (const WrongUsage& error) {
    complain(error.what());
    return usage_status;
  }
  return status_;
}

}  // namespace fracgpu::tools
