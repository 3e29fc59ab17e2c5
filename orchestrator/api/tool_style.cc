#include "orchestrator/api/tool_style.h"

namespace moestro::orchestrator {

std::optional<ToolStyle> tool_style_of(std::string_view source) {
  const auto has = [&](std::string_view word) { return source.find(word) != std::string_view::npos; };
  if (!has("tools")) return std::nullopt;
  if (has("<tool_call>") && has("</tool_call>")) return ToolStyle{"<tool_call>", "</tool_call>", false};
  if (has("[TOOL_CALLS]")) return ToolStyle{"[TOOL_CALLS]", "", true};
  return std::nullopt;
}

}  // namespace moestro::orchestrator
