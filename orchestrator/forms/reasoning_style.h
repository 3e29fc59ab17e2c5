#pragma once
// How a model marks its reasoning, as its chat template shows it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::orchestrator {

/// Reasoning stands between `begin` and `end`, before the answer.
struct ReasoningStyle {
  std::string begin, end;
  /// Not empty: an answer is messages in channels, and these are the special tokens of their heads (gpt-oss' harmony).
  std::vector<std::string> channel_tokens = {};
  /// Not empty: the answer behind the reasoning may stand between these (ERNIE, Granite).
  std::string answer_begin = "", answer_end = "";

  /// Special tokens that the text must have for the markers to be seen.
  std::vector<std::string> shown() const;
};

/// Nothing if the template marks no reasoning in a way that is known here (the table is in the .cc).
std::optional<ReasoningStyle> reasoning_style_of(std::string_view chat_template);

/// Whether `text` ends with the beginning of reasoning, white space aside.
bool opens_reasoning(const ReasoningStyle& style, std::string_view text);
/// Whether `text` has begun reasoning and not ended it.
bool leaves_reasoning_open(const ReasoningStyle& style, std::string_view text);

}  // namespace moestro::orchestrator
