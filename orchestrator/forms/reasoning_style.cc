#include "orchestrator/forms/reasoning_style.h"

#include <algorithm>

#include "orchestrator/forms/harmony.h"

namespace moestro::orchestrator {

namespace {

ReasoningStyle harmony_style() {
  using namespace harmony;
  return {"<|channel|>analysis<|message|>", kEnd, {kStart, kChannel, kMessage, kEnd, kCall, kConstrain}};
}

/// Markers of texts without channels, in the order in which a template is searched for their ends.
const std::vector<ReasoningStyle>& pairs() {
  static const std::vector<ReasoningStyle> all{
      {"<think>", "</think>"},            // DeepSeek, Qwen, GLM, Kimi, MiniMax, ERNIE, Granite 3.3
      {"[THINK]", "[/THINK]"},            // Mistral
      {"<seed:think>", "</seed:think>"},  // Seed-OSS
      {"◁think▷", "◁/think▷"},            // Kimi-VL
      {"Here is my thought process:", "Here is my response:"},  // Granite 3.2
  };
  return all;
}

constexpr const char *kResponse = "<response>", *kResponseEnd = "</response>";

}  // namespace

std::vector<std::string> ReasoningStyle::shown() const {
  if (!channel_tokens.empty()) return channel_tokens;
  std::vector<std::string> all{begin, end, answer_begin, answer_end};
  std::erase(all, "");
  return all;
}

std::optional<ReasoningStyle> reasoning_style_of(std::string_view chat_template) {
  const auto has = [&](std::string_view word) { return chat_template.find(word) != std::string_view::npos; };
  if (const ReasoningStyle style = harmony_style(); has(style.begin)) return style;
  for (ReasoningStyle style : pairs()) {
    if (!has(style.end)) continue;
    // MiniMax-M2 has these tags around tools' results.
    const bool response = has(kResponse) && has(kResponseEnd) && !has("<minimax:tool_call>");
    if (response) style.answer_begin = kResponse, style.answer_end = kResponseEnd;
    return style;
  }
  return std::nullopt;
}

bool opens_reasoning(const ReasoningStyle& style, std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  return last != std::string_view::npos && text.substr(0, last + 1).ends_with(style.begin);
}

bool leaves_reasoning_open(const ReasoningStyle& style, std::string_view text) {
  const size_t begun = text.rfind(style.begin), ended = text.rfind(style.end);
  return begun != std::string_view::npos && (ended == std::string_view::npos || ended < begun);
}

}  // namespace moestro::orchestrator
