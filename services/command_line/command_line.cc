#include "services/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>

#include "services/command_line/manual.h"

namespace moestro::command_line {
namespace {
constexpr int kExitUsage = 2;

/// The deepest command that the line names: whose help has the answer.
std::string deepest(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

/// "TEXT:{auto,on,off}", as the library describes a check against a list: auto, on, off.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  if (close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

OptionInfo info_of(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  info.positional = info.names.empty();
  if (info.positional) info.names.push_back(option.get_name(true));
  info.required = option.get_required();
  info.help = option.get_description();
  if (option.get_items_expected_max() == 0) return info;
  const std::string type = option.get_type_name();
  info.choices = choices_in(type);
  info.value = option.get_option_text();
  if (info.value.empty()) info.value = type.substr(0, type.find(':'));
  if (info.value.empty()) info.value = "VALUE";
  info.preset = option.get_default_str();
  return info;
}

CommandInfo info_of(const CLI::App& app, const std::string& name) {
  CommandInfo info{name, app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) info.options.push_back(info_of(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); }))
    info.commands.push_back(info_of(*command, name + " " + command->get_name()));
  return info;
}
}  // namespace

Check::Check(CLI::Validator validator) : validator_(std::make_shared<const CLI::Validator>(std::move(validator))) {}

template <class T>
Check Range(T least, T most) {
  return Check(CLI::Range(least, most));
}
template Check Range<int>(int, int);
template Check Range<int64_t>(int64_t, int64_t);
template Check Range<uint64_t>(uint64_t, uint64_t);
template Check Range<double>(double, double);

Check IsMember(const std::vector<std::string>& names) { return Check(CLI::IsMember(names)); }
Check PositiveNumber() { return Check(CLI::PositiveNumber); }

Option* Option::required() { return option_->required(), this; }
Option* Option::check(const Check& condition) { return option_->check(condition.validator()), this; }
Option* Option::check(const std::function<std::string(const std::string&)>& condition) {
  return option_->check(condition), this;
}
Option* Option::capture_default_str() { return option_->capture_default_str(), this; }
Option* Option::default_str(const std::string& text) { return option_->default_str(text), this; }
Option* Option::option_text(const std::string& text) { return option_->option_text(text), this; }
Option* Option::type_name(const std::string& text) { return option_->type_name(text), this; }
Option* Option::group(const std::string& name) { return option_->group(name), this; }
Option* Option::delimiter(char between) { return option_->delimiter(between), this; }
Option* Option::expected(int values) { return option_->expected(values), this; }
Option* Option::take_all() { return option_->take_all(), this; }
Option* Option::allow_extra_args(bool allowed) { return option_->allow_extra_args(allowed), this; }
Option* Option::excludes(Option* other) { return option_->excludes(other->option_), this; }
Option* Option::needs(Option* other) { return option_->needs(other->option_), this; }

App::App(const std::string& description, const std::string& name)
    : own_(std::make_unique<CLI::App>(description, name)), app_(own_.get()) {}
App::App(CLI::App* app) : app_(app) {}
App::~App() = default;

App* App::add_subcommand(const std::string& name, const std::string& help) {
  subcommands_.push_back(std::unique_ptr<App>(new App(app_->add_subcommand(name, help))));
  return subcommands_.back().get();
}

Option* App::kept(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

template <class T>
Option* App::add_option(const std::string& names, T& variable, const std::string& help) {
  return kept(app_->add_option(names, variable, help));
}
#define MOESTRO_OPTION_OF(...) \
  template Option* App::add_option<__VA_ARGS__>(const std::string&, __VA_ARGS__&, const std::string&)
MOESTRO_OPTION_OF(std::string);
MOESTRO_OPTION_OF(std::filesystem::path);
MOESTRO_OPTION_OF(int);
MOESTRO_OPTION_OF(uint32_t);
MOESTRO_OPTION_OF(int64_t);
MOESTRO_OPTION_OF(uint64_t);
MOESTRO_OPTION_OF(float);
MOESTRO_OPTION_OF(double);
MOESTRO_OPTION_OF(std::optional<std::string>);
MOESTRO_OPTION_OF(std::optional<int64_t>);
MOESTRO_OPTION_OF(std::optional<uint64_t>);
MOESTRO_OPTION_OF(std::optional<double>);
MOESTRO_OPTION_OF(std::vector<std::string>);
MOESTRO_OPTION_OF(std::vector<int64_t>);
MOESTRO_OPTION_OF(std::vector<double>);
#undef MOESTRO_OPTION_OF

template <class T>
Option* App::add_option_function(const std::string& names, const std::function<void(const T&)>& take,
                                 const std::string& help) {
  const auto in_clis_words = [take](const T& value) {
    try {
      take(value);
    } catch (const ValidationError& error) {
      throw CLI::ValidationError(error.what());
    }
  };
  return kept(app_->add_option_function<T>(names, in_clis_words, help));
}
template Option* App::add_option_function<std::string>(const std::string&,
                                                       const std::function<void(const std::string&)>&,
                                                       const std::string&);
template Option* App::add_option_function<int64_t>(const std::string&, const std::function<void(const int64_t&)>&,
                                                   const std::string&);
template Option* App::add_option_function<std::vector<std::string>>(
    const std::string&, const std::function<void(const std::vector<std::string>&)>&, const std::string&);

Option* App::add_flag(const std::string& names, bool& variable, const std::string& help) {
  return kept(app_->add_flag(names, variable, help));
}
Option* App::get_option(const std::string& name) { return kept(app_->get_option(name)); }
bool App::has_option(const std::string& name) const { return app_->get_option_no_throw(name) != nullptr; }

void App::set_version_flag(const std::string& names, const std::string& text) { app_->set_version_flag(names, text); }
void App::require_subcommand(int count) { app_->require_subcommand(count); }
void App::callback(const std::function<void()>& run) { app_->callback(run); }
void App::group(const std::string& name) { app_->group(name); }
void App::footer(const std::string& text) { app_->footer(text); }
std::string App::name() const { return app_->get_name(); }
std::string App::help() const { return app_->help(); }
CommandInfo App::info() const { return info_of(*app_, app_->get_name()); }

template <class Parse>
App::Outcome App::outcome_of(Parse parse) {
  Outcome outcome;
  try {
    parse();
    return outcome;
  } catch (const CLI::CallForHelp&) {
    outcome.exit_code = 0, outcome.print = app_->help();
  } catch (const CLI::CallForVersion& asked) {
    outcome.exit_code = 0, outcome.print = std::string(asked.what()) + "\n";
  } catch (const CLI::Success&) {
    outcome.exit_code = 0;
  } catch (const CLI::ParseError& error) {
    const std::vector<std::string> strangers = app_->remaining(true);
    const bool no_command = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && !strangers.empty() &&
                            !strangers.front().starts_with("-");
    outcome.exit_code = kExitUsage;
    outcome.refused = no_command ? "unknown command '" + strangers.front() + "'" : error.what();
  }
  outcome.help_of = deepest(*app_);
  return outcome;
}

App::Outcome App::parse(int argc, const char* const* argv) {
  return outcome_of([&] { app_->parse(argc, argv); });
}
App::Outcome App::parse(const std::string& line) {
  return outcome_of([&] { app_->parse(line); });
}

std::optional<int> parse_program_line(App& app, int argc, const char* const* argv) {
  const auto form = std::make_shared<std::string>();
  app.add_option_function<std::string>("--describe-as", [form](const std::string& given) { *form = given; }, "")
      ->check(IsMember(manual_forms()))
      ->group("");
  App::Outcome outcome = app.parse(argc, argv);
  if (!form->empty()) outcome = {0, manual(app.info(), *form), "", ""};
  std::fputs(outcome.print.c_str(), stdout);
  if (!outcome.refused.empty()) {
    std::string why = outcome.refused;
    // One line without control characters, whatever an argument had in it.
    std::replace_if(
        why.begin(), why.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
    std::fprintf(stderr, "%s: %s (see %s --help)\n", app.name().c_str(), why.c_str(), outcome.help_of.c_str());
  }
  return outcome.exit_code;
}

}  // namespace moestro::command_line
