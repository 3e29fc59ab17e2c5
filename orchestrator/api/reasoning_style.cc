#include "orchestrator/api/reasoning_style.h"

namespace moestro::orchestrator {

std::optional<ReasoningStyle> reasoning_style_of(std::string_view chat_template) {
  const ReasoningStyle harmony{"<|channel|>analysis<|message|>", "<|end|>",
                               {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>"}};
  if (chat_template.find(harmony.begin) != std::string_view::npos) return harmony;
  for (const ReasoningStyle& style : {ReasoningStyle{"<think>", "</think>"}, ReasoningStyle{"[THINK]", "[/THINK]"}})
    if (chat_template.find(style.end) != std::string_view::npos) return style;
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
