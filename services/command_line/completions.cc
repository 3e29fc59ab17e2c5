// The three scripts work alike: the words of the line so far name a command, and each command has a list of what may
// follow. Where nothing of ours fits, a value or a positional, the shell offers files.

#include <algorithm>
#include <functional>
#include <sstream>

#include "services/command_line/manual.h"

namespace moestro::command_line {
namespace {

/// A name that a shell's function may have.
std::string function_name(const std::string& program) {
  std::string name = "_" + program;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string last_word(const std::string& name) { return name.substr(name.rfind(' ') + 1); }

std::string replaced(const std::string& text, char from, const std::string& to) {
  std::string out;
  for (const char c : text) out += c == from ? to : std::string(1, c);
  return out;
}

/// The first sentence of a help, on one line: there is no room for more next to a completion.
std::string short_help(const std::string& help) {
  return replaced(help.substr(0, std::min(help.find("; "), help.find(". "))), '\n', " ");
}

void for_each(const CommandInfo& command, const std::function<void(const CommandInfo&)>& visit) {
  visit(command);
  for (const CommandInfo& sub : command.commands) for_each(sub, visit);
}

/// All commands below the program, each in quotes.
std::vector<std::string> commands_below(const CommandInfo& program) {
  std::vector<std::string> names;
  for_each(program, [&](const CommandInfo& command) {
    if (&command != &program) names.push_back("'" + command.name + "'");
  });
  return names;
}

std::string head(const CommandInfo& program, const std::string& shell) {
  return "# Printed by " + program.name + " --describe-as " + shell + "\n";
}

/// Bash and zsh alike: $command becomes the command that the words before the cursor name.
std::string find_command(const CommandInfo& program, const std::string& words, int first, const std::string& cursor) {
  const std::vector<std::string> below = commands_below(program);
  std::string out = "  local command=" + program.name + "\n";
  if (below.empty()) return out;
  const std::string word = "${" + words + "[at]}";
  return out + "  local at\n  for ((at = " + std::to_string(first) + "; at < " + cursor + "; ++at)); do\n" +
         "    case \"$command " + word + "\" in\n      " + joined(below, " | ") + ") command+=\" " + word +
         "\" ;;\n    esac\n  done\n";
}

// --- zsh

/// In single quotes, within [] of _arguments.
std::string zsh_help(const std::string& help) {
  return replaced(replaced(replaced(replaced(short_help(help), '\\', "\\\\"), '[', "\\["), ']', "\\]"), '\'', "'\\''");
}

/// `--name=` takes its value as `--name VALUE` and as `--name=VALUE`; with * before it, it is offered again.
std::string zsh_option(const OptionInfo& option, const std::string& name) {
  const bool long_with_value = name.starts_with("--") && !option.value.empty();
  std::string out =
      (option.repeated ? "'*" : "'") + name + (long_with_value ? "=[" : "[") + zsh_help(option.help) + "]";
  if (!option.value.empty())
    out += ":value:" + (option.choices.empty() ? "_files" : "(" + joined(option.choices, " ") + ")");
  return out + "'";
}

// --- fish

std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

std::string fish_option(const OptionInfo& option) {
  std::string out;
  for (const std::string& name : option.names)
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.choices.empty())
    out += " -x -a " + fish_quoted(joined(option.choices, " "));
  else if (!option.value.empty())
    out += " -r";
  return out + " -d " + fish_quoted(short_help(option.help));
}

}  // namespace

std::string bash_completions(const CommandInfo& program) {
  const std::string function = function_name(program.name);
  std::ostringstream values, lists;
  for_each(program, [&](const CommandInfo& command) {
    std::vector<std::string> commands, options;
    for (const CommandInfo& sub : command.commands) commands.push_back(last_word(sub.name));
    for (const OptionInfo& option : command.options) {
      if (option.positional) continue;
      std::vector<std::string> before;
      for (const std::string& name : option.names) before.push_back("'" + command.name + " " + name + "'");
      options.insert(options.end(), option.names.begin(), option.names.end());
      if (option.value.empty()) continue;
      values << "    " << joined(before, " | ") << ") values='" << joined(option.choices, " ") << "' ;;\n";
    }
    lists << "    '" << command.name << "')\n      commands='" << joined(commands, " ") << "'\n      options='"
          << joined(options, " ") << "' ;;\n";
  });
  std::ostringstream out;
  out << head(program, "bash") << function << "() {\n"
      << "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} values commands options\n"
      << "  # --name=VALUE is three words here.\n"
      << "  if [ \"$word\" = = ]; then\n    word=\n"
      << "  elif [ \"$before\" = = ]; then\n    before=${COMP_WORDS[COMP_CWORD-2]}\n  fi\n"
      << find_command(program, "COMP_WORDS", 1, "COMP_CWORD") << "  COMPREPLY=()\n  case \"$command $before\" in\n"
      << values.str() << "  esac\n  if [ -n \"${values+set}\" ]; then\n"
      << "    COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n    return\n  fi\n  case $command in\n"
      << lists.str() << "  esac\n  [[ $word == -* ]] && commands=$options\n"
      << "  COMPREPLY=($(compgen -W \"$commands\" -- \"$word\"))\n}\n"
      << "complete -o default -F " << function << " " << program.name << "\n";
  return out.str();
}

std::string zsh_completions(const CommandInfo& program) {
  const std::string function = function_name(program.name);
  std::ostringstream out;
  out << "#compdef " << program.name << "\n" << head(program, "zsh") << function << "() {\n"
      << find_command(program, "words", 2, "CURRENT") << "  local -a commands options\n  case $command in\n";
  for_each(program, [&](const CommandInfo& command) {
    out << "    '" << command.name << "')\n      commands=(\n";
    for (const CommandInfo& sub : command.commands)
      out << "        '" << last_word(sub.name) << ":" << replaced(short_help(sub.help), '\'', "'\\''") << "'\n";
    out << "      )\n      options=(\n";
    for (const OptionInfo& option : command.options) {
      if (option.positional) continue;
      for (const std::string& name : option.names) out << "        " << zsh_option(option, name) << "\n";
    }
    out << "      ) ;;\n";
  });
  out << "  esac\n  if (( $#commands )) && [[ ${words[CURRENT]} != -* ]]; then\n"
      << "    _describe -t commands command commands\n  else\n    _arguments $options '*:file:_files'\n  fi\n}\n"
      << function << " \"$@\"\n";
  return out.str();
}

std::string fish_completions(const CommandInfo& program) {
  const std::string function = "_" + function_name(program.name) + "_command";
  const std::vector<std::string> below = commands_below(program);
  std::ostringstream out;
  out << head(program, "fish") << "function " << function << "\n    set -l command " << program.name << "\n";
  if (!below.empty())
    out << "    set -l words (commandline -opc)\n    for word in $words[2..-1]\n        switch \"$command $word\"\n"
        << "            case " << joined(below, " ") << "\n                set command \"$command $word\"\n"
        << "        end\n    end\n";
  out << "    echo $command\nend\n";
  for_each(program, [&](const CommandInfo& command) {
    const std::string start =
        "complete -c " + program.name + " -n \"test (" + function + ") = '" + command.name + "'\"";
    for (const CommandInfo& sub : command.commands)
      out << start << " -f -a " << last_word(sub.name) << " -d " << fish_quoted(short_help(sub.help)) << "\n";
    for (const OptionInfo& option : command.options)
      if (!option.positional) out << start << fish_option(option) << "\n";
  });
  return out.str();
}

}  // namespace moestro::command_line
