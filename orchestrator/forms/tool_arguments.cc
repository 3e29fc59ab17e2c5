#include "orchestrator/forms/tool_arguments.h"

#include <nlohmann/json.hpp>

namespace moestro::orchestrator {

using grammar::SchemaJson;

ToolArguments arguments_of_tools(const SchemaJson& tools) {
  ToolArguments all;
  for (const SchemaJson& tool : tools) {
    const SchemaJson& function = tool["function"];
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

}  // namespace moestro::orchestrator
