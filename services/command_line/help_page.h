#pragma once
// The text of --help.

#include <string>

#include "services/command_line/command_line.h"

namespace moestro::command_line {

/// "moestro up [OPTION...] COMMAND", positionals in their places.
std::string usage_line(const CommandInfo& command);

/// What an option takes: "PATH", "auto|on|off"; empty: nothing.
std::string value_text(const OptionInfo& option);

/// What follows an option's help: " [default: 8; required; only with --url]"; empty: nothing.
std::string option_details(const OptionInfo& option);

/// Usage, options under their headings, commands; 80 columns wide where no word is longer. `all`: the advanced ones
/// too.
std::string help_page(const CommandInfo& command, bool all);

}  // namespace moestro::command_line
