#include "orchestrator/api/tool_style.h"

#include "orchestrator/grammar/tagged_arguments.h"

namespace moestro::orchestrator {

std::vector<std::string> ToolStyle::tokens() const {
  if (form != Form::kTagged) return {begin};
  const grammar::ArgumentTags tags;
  return {begin, end, tags.key_begin, tags.key_end, tags.value_begin, tags.value_end};
}

std::optional<ToolStyle> tool_style_of(std::string_view source) {
  const auto has = [&](std::string_view word) { return source.find(word) != std::string_view::npos; };
  if (!has("tools")) return std::nullopt;
  if (has("<tool_call>") && has("</tool_call>")) {
    using Form = ToolStyle::Form;
    const bool tagged = has("<arg_key>") && has("<arg_value>");
    return ToolStyle{"<tool_call>", "</tool_call>", false, tagged ? Form::kTagged : Form::kObject};
  }
  if (has("[TOOL_CALLS]")) return ToolStyle{"[TOOL_CALLS]", "", true};
  return std::nullopt;
}

}  // namespace moestro::orchestrator
