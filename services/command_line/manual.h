#pragma once
// Man pages and shell completions, made from an App's commands and options.

#include <string>
#include <vector>

#include "services/command_line/command_line.h"

namespace moestro::command_line {

/// man, bash, zsh, fish.
const std::vector<std::string>& manual_forms();
/// `form` is one of manual_forms(). man: a page of section 1 in troff; the others: completions for the shell.
std::string manual(const CommandInfo& program, const std::string& form);

std::string bash_completions(const CommandInfo& program);
std::string zsh_completions(const CommandInfo& program);
std::string fish_completions(const CommandInfo& program);
std::string joined(const std::vector<std::string>& texts, const std::string& between);

}  // namespace moestro::command_line
