#pragma once
// Command lines: options, checks, subcommands, help. Names and meaning are those of CLI11, which only command_line.cc
// includes.

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
class Validator;
}  // namespace CLI

namespace moestro::command_line {

/// Thrown by a function of add_option_function: what is wrong with the value.
class ValidationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A condition on a value, which the help names.
class Check {
 public:
  explicit Check(CLI::Validator validator);
  const CLI::Validator& validator() const { return *validator_; }

 private:
  std::shared_ptr<const CLI::Validator> validator_;
};
/// T: int, int64_t, uint64_t, double.
template <class T>
Check Range(T least, T most);
Check IsMember(const std::vector<std::string>& names);
inline Check IsMember(std::initializer_list<const char*> names) {
  return IsMember(std::vector<std::string>(names.begin(), names.end()));
}
Check PositiveNumber();

/// Owned by its App.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option* required();
  Option* check(const Check& condition);
  /// The function returns what is wrong with the text; empty if it is valid.
  Option* check(const std::function<std::string(const std::string&)>& condition);
  /// The help shows the variable's current value.
  Option* capture_default_str();
  Option* default_str(const std::string& text);
  /// Text that the help shows instead of the type.
  Option* option_text(const std::string& text);
  Option* type_name(const std::string& text);
  /// The values that help and completions list. Nothing is checked.
  Option* choices(const std::vector<std::string>& values);
  /// Its heading in the help; empty: no help, manual or completion shows it.
  Option* group(const std::string& name);
  /// Only --help-all shows it, and the manual.
  Option* advanced(bool is_advanced = true);
  Option* delimiter(char between);
  Option* expected(int values);
  Option* take_all();
  Option* allow_extra_args(bool allowed);
  Option* excludes(Option* other);
  Option* needs(Option* other);

 private:
  friend class App;
  CLI::Option* option_;
  bool advanced_ = false, hidden_ = false;
};

/// The help's information about an option or a positional.
struct OptionInfo {
  std::vector<std::string> names;    ///< "-c", "--config"; for a positional: its name
  std::string value;                 ///< its value, "PATH"; empty: a flag
  std::vector<std::string> choices;  ///< accepted values; empty: not a list
  std::string preset;                ///< the default; empty: the help shows none
  std::string help;
  std::string group;                         ///< its heading; kPlainGroup: no heading of its own
  std::vector<std::string> needs, excludes;  ///< other options, by one of their names
  bool positional = false;
  bool required = false;
  bool repeated = false;  ///< it may be given several times, or with several values
  bool advanced = false;  ///< for --help-all
};
inline constexpr const char *kPlainGroup = "Options", *kPlainCommands = "Commands";

/// What the help says of a command and of those below it. Hidden ones are left out.
struct CommandInfo {
  std::string name;   ///< all of it: "moestro bench serve"
  std::string group;  ///< its heading in the list of commands
  std::string help;
  std::string footer;
  std::vector<OptionInfo> options;
  std::vector<CommandInfo> commands;
};

class App {
 public:
  explicit App(const std::string& description = "", const std::string& name = "");
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  App* add_subcommand(const std::string& name, const std::string& help);
  /// A positional if `names` has no dash. T: text, numbers, vectors and optionals of them; command_line.cc lists them.
  template <class T>
  Option* add_option(const std::string& names, T& variable, const std::string& help);
  /// T: std::string, int64_t, std::vector<std::string>. `take` may throw ValidationError.
  template <class T>
  Option* add_option_function(const std::string& names, const std::function<void(const T&)>& take,
                              const std::string& help);
  /// "!--no-x": sets it to false.
  Option* add_flag(const std::string& names, bool& variable, const std::string& help);
  Option* get_option(const std::string& name);
  bool has_option(const std::string& name) const;

  void set_version_flag(const std::string& names, const std::string& text);
  void require_subcommand(int count);
  /// Which option a stray argument was probably meant for; its refusal says so.
  void strays_are_for(const std::string& option);
  /// Runs once all of the line is read and in order.
  void callback(const std::function<void()>& run);
  /// Its heading in the list of subcommands; empty: it is not listed.
  void group(const std::string& name);
  /// The same for subcommands that are there.
  void group_commands(std::initializer_list<std::string_view> names, const std::string& group);
  /// Below the options, as it is written: examples.
  void footer(const std::string& text);
  std::string name() const;
  /// The text that --help prints, or --help-all.
  std::string help(bool all = false) const;
  CommandInfo info() const;

  struct Outcome {
    std::optional<int> exit_code;  ///< nullopt: callbacks have run
    std::string print;             ///< on stdout: help or version
    std::string refused;           ///< what is wrong with the line
    std::string help_of;           ///< the command in question: "moestro bench serve"
  };
  Outcome parse(int argc, const char* const* argv);
  /// A line as a shell would split it, without the program's name.
  Outcome parse(const std::string& line);

 private:
  explicit App(CLI::App* app);
  /// The one that is there for it, or a new one.
  Option* kept(CLI::Option* option);
  /// The deepest command that the line names.
  const App& deepest() const;
  std::string full_name() const;
  /// What is wrong with a line that has unknown words, and what may have been meant.
  std::string unknown_words(const std::vector<std::string>& words) const;
  /// What is wrong with a line that lacks something.
  std::string missing() const;
  template <class Parse>
  Outcome outcome_of(Parse parse);

  std::unique_ptr<CLI::App> own_;
  CLI::App* app_;
  std::vector<std::unique_ptr<App>> subcommands_;
  std::vector<std::unique_ptr<Option>> options_;
  std::string stray_option_;
};

/// Parses the line. Prints help, the version, or one line that says what is wrong and which --help to use. Returns the
/// exit code if the program has nothing more to do. `PROGRAM --describe-as man|bash|zsh|fish`, which no help shows,
/// prints a man page or a shell's completions (manual.h).
std::optional<int> parse_program_line(App& app, int argc, const char* const* argv);

}  // namespace moestro::command_line
