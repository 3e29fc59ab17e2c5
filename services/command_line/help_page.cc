#include "services/command_line/help_page.h"

#include <algorithm>
#include <sstream>

#include "services/command_line/manual.h"

namespace moestro::command_line {
namespace {

constexpr size_t kColumns = 80, kHelpColumn = 26;

/// The words of `text` in lines of kColumns, each behind `indent` spaces; the first line is begun already and is
/// `column` wide. Lines of the text stay lines.
std::string wrapped(const std::string& text, size_t indent, size_t column) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const bool first = column <= indent;
      if (!first && column + 1 + word.size() > kColumns) {
        out += "\n", column = 0;
      } else if (!first) {
        out += ' ', ++column;
      }
      if (column < indent) out += std::string(indent - column, ' '), column = indent;
      out += word, column += word.size();
    }
    out += "\n", column = 0;
  }
  return out;
}

/// "  NAME      help", the help on a line of its own where the name is long.
std::string entry(const std::string& name, const std::string& help) {
  std::string out = "  " + name;
  if (help.empty()) return out + "\n";
  if (out.size() + 2 > kHelpColumn) return out + "\n" + wrapped(help, kHelpColumn, 0);
  out.resize(kHelpColumn, ' ');
  return out + wrapped(help, kHelpColumn, kHelpColumn);
}

std::string option_entry(const OptionInfo& option) {
  std::string name = joined(option.names, ", ");
  if (!option.positional && !value_text(option).empty()) name += " " + value_text(option);
  if (option.repeated) name += " ...";
  return entry(name, option.help + option_details(option));
}

/// -h, --help-all, --version: what every program has is named last.
bool is_usual(const OptionInfo& option) {
  return option.names.back().starts_with("--help") || option.names.back() == "--version";
}

/// Each group in the place of its first entry.
template <class Entry, class Print>
void write_groups(std::ostream& out, const std::vector<Entry>& entries, Print print) {
  std::vector<std::string> groups;
  for (const Entry& e : entries)
    if (std::ranges::find(groups, e.group) == groups.end()) groups.push_back(e.group);
  for (const std::string& group : groups) {
    out << "\n" << group << ":\n";
    for (const Entry& e : entries)
      if (e.group == group) out << print(e);
  }
}

}  // namespace

std::string value_text(const OptionInfo& option) {
  return option.choices.empty() ? option.value : joined(option.choices, "|");
}

std::string option_details(const OptionInfo& option) {
  std::vector<std::string> details;
  if (!option.preset.empty()) details.push_back("default: " + option.preset);
  if (option.required && !option.positional) details.push_back("required");
  if (!option.needs.empty()) details.push_back("only with " + joined(option.needs, ", "));
  if (!option.excludes.empty()) details.push_back("not with " + joined(option.excludes, ", "));
  return details.empty() ? "" : " [" + joined(details, "; ") + "]";
}

std::string usage_line(const CommandInfo& command) {
  std::string line = command.name + " [OPTION...]";
  for (const OptionInfo& option : command.options) {
    if (!option.positional) continue;
    const std::string name = option.names.front() + (option.repeated ? "..." : "");
    line += option.required ? " " + name : " [" + name + "]";
  }
  return line + (command.commands.empty() ? "" : " COMMAND");
}

std::string help_page(const CommandInfo& command, bool all) {
  std::vector<OptionInfo> positionals, options;
  size_t left_out = 0;
  for (const OptionInfo& option : command.options) {
    if (option.advanced && !all)
      ++left_out;
    else
      (option.positional ? positionals : options).push_back(option);
  }
  std::ostringstream out;
  out << "Usage: " << usage_line(command) << "\n\n" << wrapped(command.help, 0, 0);
  if (!positionals.empty()) out << "\nArguments:\n";
  for (const OptionInfo& option : positionals) out << option_entry(option);
  write_groups(out, command.commands,
               [](const CommandInfo& sub) { return entry(sub.name.substr(sub.name.rfind(' ') + 1), sub.help); });
  std::ranges::stable_partition(options, [](const OptionInfo& option) { return !is_usual(option); });
  write_groups(out, options, option_entry);
  if (left_out > 0) out << "\n" << left_out << " more options: " << command.name << " --help-all\n";
  if (!command.footer.empty()) out << "\n" << command.footer << "\n";
  return out.str();
}

}  // namespace moestro::command_line
