#include "orchestrator/api/output_request.h"

#include <algorithm>

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

constexpr size_t kToolsMax = 128;

bool good_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

/// A tool that was refused ends in an error of `f`.
void read_tool(FieldReader& f, const json& tool, CompletionRequest& r) {
  const auto refuse = [&](const std::string& why) { f.fail(bad_request("'tools' " + why, "tools")); };
  if (!tool.is_object() || tool.value("type", json()) != "function")
    return refuse("has an entry that is not {\"type\": \"function\", \"function\": {...}}");
  const auto function = tool.find("function");
  if (function == tool.end() || !function->is_object()) return refuse("has an entry without a 'function'");
  FieldReader t(*function, f, "tools");
  const auto name = t.string("name");
  (void)t.string("description");
  (void)t.boolean("strict");  // constraints.cc looks at it
  const json* parameters = t.field("parameters");
  // Where there are no parameters, what is not known may be some: without them, calls would have none.
  parameters == nullptr ? t.refuse_unknown() : t.settle_unknown();
  if (t.error()) return f.fail(*t.error());
  if (!name || !good_name(*name))
    return refuse("has a function without a 'name' of 1 to 64 letters, digits, '_', '-' and '.'");
  if (parameters != nullptr && !parameters->is_object())
    return refuse("has a function whose 'parameters' are no schema");
  for (const json& other : r.tools)
    if (other["function"]["name"] == *name) return refuse("has two functions named '" + *name + "'");
  r.tools.push_back(tool);
  for (const std::string& ignored : t.unknown()) r.tools.back()["function"].erase(ignored);
}

void read_tool_choice(FieldReader& f, CompletionRequest& r) {
  const auto refuse = [&](const std::string& why) { f.fail(bad_request("'tool_choice' " + why, "tool_choice")); };
  r.tool_choice = r.tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const json* choice = f.field("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    const auto word = choice->get<std::string>();
    if (word == "none") r.tool_choice = ToolChoice::kNone;
    else if (word == "required") r.tool_choice = ToolChoice::kRequired;
    else if (word != "auto") return refuse("must be \"none\", \"auto\", \"required\" or a function");
  } else {
    const bool named = choice->is_object() && choice->value("type", json()) == "function" &&
                       choice->contains("function") && (*choice)["function"].is_object() &&
                       (*choice)["function"].contains("name") && (*choice)["function"]["name"].is_string();
    if (!named)
      return refuse(
          "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    r.tool_choice = ToolChoice::kRequired;
    r.tool_name = (*choice)["function"]["name"].get<std::string>();
    const bool known = std::any_of(r.tools.begin(), r.tools.end(),
                                   [&](const json& t) { return t["function"]["name"] == r.tool_name; });
    if (!known) return refuse("names '" + r.tool_name + "', which is not among the tools");
  }
  if (r.tools.empty() && r.tool_choice == ToolChoice::kRequired) refuse("wants a call, but there are no tools");
}

}  // namespace

void read_tools(FieldReader& f, CompletionRequest& r) {
  r.tools = json::array();
  if (const json* tools = f.field("tools")) {
    if (!tools->is_array()) return f.fail(bad_request("'tools' must be a list", "tools"));
    if (tools->size() > kToolsMax)
      return f.fail(bad_request("'tools' has more than " + std::to_string(kToolsMax) + " entries", "tools"));
    for (const json& tool : *tools) {
      read_tool(f, tool, r);
      if (f.error()) return;
    }
  }
  read_tool_choice(f, r);
  r.parallel_tool_calls = f.boolean("parallel_tool_calls").value_or(true);
}

std::string plain_tool_calls(json& calls) {
  for (json& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
        !call["function"].contains("name") || !call["function"]["name"].is_string())
      return "has a tool call without a 'function' with a 'name'";
    json& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    const auto& text = function["arguments"].get_ref<const std::string&>();
    const auto parsed = parse_body(text.empty() ? "{}" : text);  // some clients send "" of a call without arguments
    if (std::holds_alternative<ApiError>(parsed))
      return "has a tool call whose 'arguments' are not the text of a JSON object";
    function["arguments"] = std::get<json>(parsed);
  }
  return "";
}

}  // namespace moestro::orchestrator
