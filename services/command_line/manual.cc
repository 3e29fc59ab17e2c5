#include "services/command_line/manual.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "services/command_line/help_page.h"

namespace moestro::command_line {
namespace {

/// As troff shows it unchanged: no request, no escape, dashes and quotes that can be copied into a shell.
std::string plain(const std::string& text) {
  static const std::map<char, std::string> kEscapes{
      {'\\', "\\(rs"},  {'-', "\\-"},    {'`', "\\(ga"}, {'\'', "\\(aq"},
      {'^', "\\(ha"}, {'~', "\\(ti"}, {'|', "|\\:"}};  // a line may end behind a value of a list
  std::string out;
  for (const char c : text) {
    const auto escape = kEscapes.find(c);
    out += escape == kEscapes.end() ? std::string(1, c) : escape->second;
  }
  return !out.empty() && out.front() == '.' ? "\\&" + out : out;
}
std::string bold(const std::string& text) { return "\\fB" + plain(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + plain(text) + "\\fR"; }

/// Each line of the text on a line of its own, as written.
void write_lines(std::ostream& out, const std::string& text) {
  std::istringstream lines(text);
  out << ".nf\n";
  for (std::string line; std::getline(lines, line);) out << plain(line) << "\n";
  out << ".fi\n";
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void write_option(std::ostream& out, const OptionInfo& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back(option.positional ? italic(name) : bold(name));
  out << ".TP\n" << joined(names, ", ");
  if (!option.positional && !value_text(option).empty()) out << " " << italic(value_text(option));
  out << "\n" << plain(one_line(option.help + option_details(option))) << "\n";
}

void write_synopsis(std::ostream& out, const CommandInfo& command) {
  out << bold(command.name) << " [" << italic("OPTION") << " ...]";
  for (const OptionInfo& option : command.options) {
    if (!option.positional) continue;
    const std::string name = italic(option.names.front());
    out << " " << (option.required ? name : "[" + name + "]");
  }
  if (!command.commands.empty()) out << " " << italic("COMMAND");
  out << "\n";
}

void write_options(std::ostream& out, const CommandInfo& command) {
  std::string group = kPlainGroup;
  for (const OptionInfo& option : command.options) {
    if (option.group != group) out << ".PP\n" << italic(group = option.group) << "\n";
    write_option(out, option);
  }
  if (!command.footer.empty()) {
    out << ".PP\n";
    write_lines(out, command.footer);
  }
}

void write_commands(std::ostream& out, const CommandInfo& above) {
  for (const CommandInfo& command : above.commands) {
    out << ".SS \"" << plain(command.name) << "\"\n" << plain(one_line(command.help)) << "\n.PP\n";
    write_synopsis(out, command);
    write_options(out, command);
    write_commands(out, command);
  }
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

std::string man_page(const CommandInfo& program) {
  std::ostringstream out;
  out << ".\\\" Printed by " << program.name << " --describe-as man\n"
      << ".TH \"" << upper(plain(program.name)) << "\" 1 \"\" \"Moestro\" \"Moestro manual\"\n"
      << ".ad l\n"  // a line of choices has nothing that could be widened
      << ".SH NAME\n" << plain(program.name) << " \\- " << plain(one_line(program.help)) << "\n"
      << ".SH SYNOPSIS\n";
  write_synopsis(out, program);
  out << ".SH OPTIONS\n";
  write_options(out, program);
  if (!program.commands.empty()) out << ".SH COMMANDS\n";
  write_commands(out, program);
  return out.str();
}

using Writer = std::string (*)(const CommandInfo&);
const std::map<std::string, Writer>& writers() {
  static const std::map<std::string, Writer> kWriters{
      {"man", man_page}, {"bash", bash_completions}, {"zsh", zsh_completions}, {"fish", fish_completions}};
  return kWriters;
}

}  // namespace

std::string joined(const std::vector<std::string>& texts, const std::string& between) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : between) + text;
  return out;
}

const std::vector<std::string>& manual_forms() {
  static const std::vector<std::string> kForms{"man", "bash", "zsh", "fish"};
  return kForms;
}

std::string manual(const CommandInfo& program, const std::string& form) { return writers().at(form)(program); }

}  // namespace moestro::command_line
