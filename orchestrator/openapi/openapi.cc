#include "orchestrator/openapi/openapi.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace moestro {
std::string_view openapi_parts();  // generated
}

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

/// The path item, for another path: names of operations are unique, so this one's have none.
json aliased(json item) {
  for (json& operation : item)
    if (operation.is_object()) operation.erase("operationId");
  return item;
}

}  // namespace

std::string openapi_document(const std::string& version) {
  json document = json::object();
  for (const json& part : json::parse(openapi_parts())) document.update(part, /*merge_objects=*/true);
  document["info"]["version"] = version;
  json aliases = json::object();
  for (auto& [path, item] : document["paths"].items()) {
    const auto others = item.find("x-moestro-aliases");
    if (others == item.end()) continue;
    const json paths = *others;
    item.erase(others);
    for (const json& other : paths) aliases[other.get<std::string>()] = aliased(item);
  }
  document["paths"].update(aliases);
  return document.dump();
}

}  // namespace moestro::orchestrator
