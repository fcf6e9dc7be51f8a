// See arguments.h.
#include "tools/cli/arguments.h"

#include <CLI/CLI.hpp>
#include <utility>

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

Option Option::range(int least, int most) {
  option_->check(CLI::Range(least, most));
  return *this;
}

Option Option::range(double least, double most) {
  option_->check(CLI::Range(least, most));
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
  return {app_->add_subcommand(name, about), status_};
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
  app_->callback([body = std::move(body), status = status_] { *status = body(); });
}

CommandText Command::text() const {
  return text_of(*app_);
}

Program::Program(const std::string& name, const std::string& about, const std::string& version)
    : app_(std::make_unique<CLI::App>(about, name)) {
  app_->set_version_flag("--version", version);
  app_->failure_message([name](const CLI::App*, const CLI::Error& error) {
    return name + ": " + error.what() + "; see " + name + " --help\n";
  });
}

Program::~Program() = default;

Command Program::command() {
  return {app_.get(), &status_};
}

int Program::run(int argc, char** argv, int usage_status) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : usage_status;
  }
  return status_;
}

}  // namespace fracgpu::tools
