#pragma once
// How a model writes tool calls, as its chat template shows it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::orchestrator {

struct ToolStyle {
  /// What stands between `begin` and `end`, white space around it.
  enum class Form {
    kObject,  ///< {"name": ..., "arguments": ...}; where `list` is true, a list of them
    kTagged,  ///< a name, and for each argument <arg_key>NAME</arg_key><arg_value>VALUE</arg_value>
  };
  std::string begin, end;
  bool list = false;
  Form form = Form::kObject;

  /// Tokens that the text must have for a call to be seen, even if they are special.
  std::vector<std::string> tokens() const;
};

/// Nothing if the template knows no tools, or writes calls in a way that is not known here.
std::optional<ToolStyle> tool_style_of(std::string_view chat_template);
/// The known ways, for messages.
inline constexpr const char* kKnownToolStyles = "<tool_call> with JSON or <arg_key>, [TOOL_CALLS]";

}  // namespace moestro::orchestrator
