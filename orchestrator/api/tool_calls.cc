#include "orchestrator/api/tool_calls.h"

#include <algorithm>

#include "orchestrator/api/json_calls.h"
#include "orchestrator/api/marker.h"
#include "orchestrator/api/tagged_calls.h"

namespace moestro::orchestrator {

ToolArguments arguments_of_tools(const RequestJson& tools) {
  ToolArguments all;
  for (const RequestJson& tool : tools) {
    const RequestJson& function = tool["function"];
    auto& values = all[function["name"].get<std::string>()];
    const auto parameters = function.find("parameters");
    if (parameters == function.end() || !parameters->is_object() || !parameters->contains("properties") ||
        !(*parameters)["properties"].is_object())
      continue;
    for (const auto& [name, schema] : (*parameters)["properties"].items())
      values[name] = grammar::tagged_value(schema, *parameters);
  }
  return all;
}

std::unique_ptr<ToolCallParser> make_tool_call_parser(const ToolStyle& style, const ToolArguments& arguments) {
  if (style.form == ToolStyle::Form::kTagged) return std::make_unique<TaggedCallParser>(style, arguments);
  return std::make_unique<JsonCallParser>(style);
}

void ToolCallParser::push(std::string_view text) {
  rest_ += text;
  while (step()) {
  }
}

bool ToolCallParser::find_begin() {
  const size_t at = rest_.find(style_.begin);
  const bool found = at != std::string::npos;
  const size_t certain = found ? at : rest_.size() - begun_marker(rest_, style_.begin);
  white_ += rest_.substr(0, certain);
  const auto last = std::find_if_not(white_.rbegin(), white_.rend(), is_json_white).base();
  content_.append(white_.begin(), last);
  white_.erase(white_.begin(), last);
  rest_.erase(0, certain);
  if (!found) return false;
  raw_ = white_ + style_.begin;
  rest_.erase(0, style_.begin.size());
  white_.clear();
  return true;
}

void ToolCallParser::no_call() { content_ += std::exchange(raw_, {}); }

void ToolCallParser::finish_content() {
  if (calls_ == 0 || !rest_.empty()) content_ += white_ + rest_;
  white_.clear();
  rest_.clear();
}

void ToolCallParser::begin_call(std::string name) {
  raw_.clear();
  deltas_.push_back({calls_++, true, std::move(name), ""});
}

void ToolCallParser::say_arguments(std::string text) {
  if (!text.empty()) deltas_.push_back({calls_ - 1, false, "", std::move(text)});
}

}  // namespace moestro::orchestrator
