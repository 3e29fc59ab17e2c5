#pragma once
// Command lines: options, checks, subcommands, help. Names and meaning are those of CLI11, which only command_line.cc
// includes.

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
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
  Option* group(const std::string& name);
  Option* delimiter(char between);
  Option* expected(int values);
  Option* take_all();
  Option* allow_extra_args(bool allowed);
  Option* excludes(Option* other);
  Option* needs(Option* other);

 private:
  CLI::Option* option_;
};

/// The help's information about an option or a positional.
struct OptionInfo {
  std::vector<std::string> names;    ///< "-c", "--config"; for a positional: its name
  std::string value;                 ///< its value, "PATH"; empty: a flag
  std::vector<std::string> choices;  ///< accepted values; empty: not a list
  std::string preset;                ///< the default; empty: the help shows none
  std::string help;
  bool positional = false;
  bool required = false;
};
/// What the help says of a command and of those below it. Hidden ones are left out.
struct CommandInfo {
  std::string name;  ///< all of it: "moestro bench serve"
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
  /// Runs once all of the line is read and in order.
  void callback(const std::function<void()>& run);
  /// A group's heading in the list of subcommands.
  void group(const std::string& name);
  void footer(const std::string& text);
  std::string name() const;
  /// The text that --help prints.
  std::string help() const;
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
  Option* kept(CLI::Option* option);
  template <class Parse>
  Outcome outcome_of(Parse parse);

  std::unique_ptr<CLI::App> own_;
  CLI::App* app_;
  std::vector<std::unique_ptr<App>> subcommands_;
  std::vector<std::unique_ptr<Option>> options_;
};

/// Parses the line. Prints help, the version, or one line that says what is wrong and which --help to use. Returns the
/// exit code if the program has nothing more to do. `PROGRAM --describe-as man|bash|zsh|fish`, which no help shows,
/// prints a man page or a shell's completions (manual.h).
std::optional<int> parse_program_line(App& app, int argc, const char* const* argv);

}  // namespace moestro::command_line
