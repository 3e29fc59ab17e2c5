#pragma once
// How a model marks its reasoning, as its chat template shows it.

#include <optional>
#include <string>
#include <string_view>

namespace moestro::orchestrator {

/// Reasoning stands between `begin` and `end`, before the answer.
struct ReasoningStyle {
  std::string begin, end;
};

/// Nothing if the template marks no reasoning in a way that is known here. Known are <think>...</think> (DeepSeek,
/// Qwen) and [THINK]...[/THINK] (Mistral).
std::optional<ReasoningStyle> reasoning_style_of(std::string_view chat_template);

/// Whether `text` ends with the beginning of reasoning, white space aside.
bool opens_reasoning(const ReasoningStyle& style, std::string_view text);
/// Whether `text` has begun reasoning and not ended it.
bool leaves_reasoning_open(const ReasoningStyle& style, std::string_view text);

}  // namespace moestro::orchestrator
