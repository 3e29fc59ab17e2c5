#include "services/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <set>

#include "common/nearest_name.h"
#include "services/command_line/help_page.h"
#include "services/command_line/manual.h"

namespace moestro::command_line {
namespace {
constexpr int kExitUsage = 2;
constexpr const char* kHelpAll = "--help-all";

/// "TEXT:{auto,on,off}", as the library describes a check against a list: auto, on, off.
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{');
  const size_t close = type.find('}', open);
  if (close == std::string::npos) return {};
  return CLI::detail::split(type.substr(open + 1, close - open - 1), ',');
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::vector<std::string> last_names(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options)
    names.push_back(option->get_lnames().empty() ? option->get_name() : "--" + option->get_lnames()[0]);
  std::ranges::sort(names);  // the set's order is that of addresses
  return names;
}

/// The library's name of a type, as the help has it.
std::string value_of_type(const std::string& type) {
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "X";
  return type.empty() ? "VALUE" : type;
}

OptionInfo info_of(const CLI::Option& option) {
  OptionInfo info;
  info.names = names_of(option);
  info.positional = info.names.empty();
  if (info.positional)
    info.names.push_back(option.get_option_text().empty() ? option.get_name(true) : option.get_option_text());
  info.required = option.get_required();
  info.help = option.get_description();
  info.group = option.get_group();
  info.needs = last_names(option.get_needs());
  info.excludes = last_names(option.get_excludes());
  if (option.get_items_expected_max() == 0) return info;
  const std::string type = option.get_type_name();
  info.choices = choices_in(type);
  info.value = option.get_option_text();
  if (info.value.empty()) info.value = value_of_type(type.substr(0, type.find(':')));
  info.repeated = option.get_items_expected_max() >= CLI::detail::expected_max_vector_size;
  info.preset = option.get_default_str();
  return info;
}

/// "--max-token=5": without its value.
std::string option_name(const std::string& word) {
  return word.substr(0, word.find('='));
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
/// The library puts the values of a list in brackets, which are not typed.
Option* Option::capture_default_str() {
  option_->capture_default_str();
  const std::string text = option_->get_default_str();
  if (option_->get_items_expected_max() > 1 && text.starts_with('[') && text.ends_with(']'))
    option_->default_str(text.substr(1, text.size() - 2));
  return this;
}
Option* Option::default_str(const std::string& text) { return option_->default_str(text), this; }
Option* Option::option_text(const std::string& text) { return option_->option_text(text), this; }
Option* Option::type_name(const std::string& text) { return option_->type_name(text), this; }
Option* Option::choices(const std::vector<std::string>& values) {
  return option_->type_name("{" + joined(values, ",") + "}"), this;
}
/// An empty group would hide the option's name from the library's refusals too.
Option* Option::group(const std::string& name) {
  hidden_ = name.empty();
  if (!hidden_) option_->group(name);
  return this;
}
Option* Option::advanced(bool is_advanced) {
  return advanced_ = is_advanced, this;
}
Option* Option::delimiter(char between) { return option_->delimiter(between), this; }
Option* Option::expected(int values) { return option_->expected(values), this; }
Option* Option::take_all() { return option_->take_all(), this; }
Option* Option::allow_extra_args(bool allowed) { return option_->allow_extra_args(allowed), this; }
Option* Option::excludes(Option* other) { return option_->excludes(other->option_), this; }
Option* Option::needs(Option* other) { return option_->needs(other->option_), this; }

App::App(const std::string& description, const std::string& name)
    : own_(std::make_unique<CLI::App>(description, name)), app_(own_.get()) {
  app_->set_help_flag("-h,--help", "Print this help");
  app_->set_help_all_flag(kHelpAll, "Print every option");
}
App::App(CLI::App* app) : app_(app) {}
App::~App() = default;

App* App::add_subcommand(const std::string& name, const std::string& help) {
  subcommands_.push_back(std::unique_ptr<App>(new App(app_->add_subcommand(name, help))));
  return subcommands_.back().get();
}

Option* App::kept(CLI::Option* option) {
  for (const auto& there : options_)
    if (there->option_ == option) return there.get();
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

void App::set_version_flag(const std::string& names, const std::string& text) {
  app_->set_version_flag(names, text, "Print the version");
}
void App::require_subcommand(int count) { app_->require_subcommand(count); }
void App::strays_are_for(const std::string& option) {
  stray_option_ = option;
}
void App::callback(const std::function<void()>& run) { app_->callback(run); }
void App::group(const std::string& name) { app_->group(name); }
void App::group_commands(std::initializer_list<std::string_view> names, const std::string& group) {
  for (const auto& command : subcommands_)
    if (std::ranges::find(names, command->name()) != names.end()) command->group(group);
}
void App::footer(const std::string& text) { app_->footer(text); }
std::string App::name() const { return app_->get_name(); }
std::string App::help(bool all) const {
  return help_page(info(), all);
}

std::string App::full_name() const {
  std::string name = app_->get_name();
  for (const CLI::App* above = app_->get_parent(); above != nullptr; above = above->get_parent())
    name = above->get_name() + " " + name;
  return name;
}

CommandInfo App::info() const {
  CommandInfo info{full_name(), app_->get_group(), app_->get_description(), app_->get_footer(), {}, {}};
  if (info.group == "Subcommands") info.group = kPlainCommands;  // the library's
  for (const CLI::Option* option : app_->get_options()) {
    const auto ours = std::ranges::find_if(options_, [&](const auto& o) { return o->option_ == option; });
    if (ours != options_.end() && (*ours)->hidden_) continue;
    OptionInfo& shown = info.options.emplace_back(info_of(*option));
    shown.advanced = ours != options_.end() && (*ours)->advanced_;
  }
  if (std::ranges::none_of(info.options, &OptionInfo::advanced))  // then there is no more than --help shows
    std::erase_if(info.options, [](const OptionInfo& option) { return option.names.back() == kHelpAll; });
  for (const auto& command : subcommands_)
    if (!command->app_->get_group().empty()) info.commands.push_back(command->info());
  return info;
}

const App& App::deepest() const {
  for (const auto& command : subcommands_)
    if (app_->got_subcommand(command->app_)) return command->deepest();
  return *this;
}

std::string App::unknown_words(const std::vector<std::string>& words) const {
  const auto guess = [](const std::string& word, const std::vector<std::string>& names) {
    const auto nearest = nearest_name(word, names);
    return nearest ? "; did you mean '" + *nearest + "'?" : std::string();
  };
  const auto option = std::ranges::find_if(words, [](const std::string& s) { return s.size() > 1 && s[0] == '-'; });
  if (option != words.end()) {
    const std::string word = option_name(*option);
    if (has_option(word)) return "write " + word + " after '" + name() + "'";
    std::vector<std::string> names;
    for (const OptionInfo& known : info().options)
      if (!known.positional) names.insert(names.end(), known.names.begin(), known.names.end());
    return "unknown option '" + word + "'" + guess(word, names);
  }
  const std::string& word = words.front();
  if (subcommands_.empty())
    return "unexpected argument '" + word + "'" +
           (stray_option_.empty() ? "" : "; did you mean " + stray_option_ + " " + word + "?");
  std::vector<std::string> names;
  for (const auto& sub : subcommands_) names.push_back(sub->name());
  return "unknown command '" + word + "'" +
         (has_option("--" + word) ? "; did you mean '--" + word + "'?" : guess(word, names));
}

std::string App::missing() const {
  for (const CLI::Option* option : app_->get_options())
    if (option->get_required() && option->count() == 0) return info_of(*option).names.back() + " is required";
  std::vector<std::string> names;
  for (const auto& sub : subcommands_) names.push_back(sub->name());
  return "a command is required: " + joined(names, ", ");
}

template <class Parse>
App::Outcome App::outcome_of(Parse parse) {
  Outcome outcome;
  try {
    parse();
    return outcome;
  } catch (const CLI::CallForHelp&) {
    outcome.exit_code = 0, outcome.print = deepest().help();
  } catch (const CLI::CallForAllHelp&) {
    outcome.exit_code = 0, outcome.print = deepest().help(true);
  } catch (const CLI::CallForVersion& asked) {
    outcome.exit_code = 0, outcome.print = std::string(asked.what()) + "\n";
  } catch (const CLI::Success&) {
    outcome.exit_code = 0;
  } catch (const CLI::ParseError& error) {
    outcome.exit_code = kExitUsage;
    const std::vector<std::string> strangers = app_->remaining(true);
    const bool lacks = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
    if (!strangers.empty() && (lacks || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr))
      outcome.refused = deepest().unknown_words(strangers);  // a mistyped word also makes what it stood for missing
    else
      outcome.refused = lacks ? deepest().missing() : error.what();
  }
  outcome.help_of = deepest().full_name();
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
