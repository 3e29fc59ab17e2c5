#pragma once
// How a model writes tool calls, as its chat template shows it.

#include <optional>
#include <string>
#include <string_view>

namespace moestro::orchestrator {

/// One call is `begin`, white space, {"name": ..., "arguments": ...}, white space, `end`; where `list` is true, the
/// objects stand in a list.
struct ToolStyle {
  std::string begin, end;
  bool list = false;
};

/// Nothing if the template knows no tools, or writes calls in a way that is not known here. Known are
/// <tool_call>...</tool_call> (Hermes, Qwen) and [TOOL_CALLS][...] (Mistral).
std::optional<ToolStyle> tool_style_of(std::string_view chat_template);

}  // namespace moestro::orchestrator
