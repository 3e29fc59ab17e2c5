#include "orchestrator/grammar/tagged_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace moestro::grammar {

namespace {

constexpr int kHopsMax = 16;         // of references and of alternatives within alternatives
constexpr int kSchemasMax = 10'000;  // looked at for one value: alternatives may refer to themselves

std::string kind_of(const SchemaJson& value) {
  return value.is_number() ? "number" : value.type_name();
}

TaggedValue any_value() { return {true, {"number", "boolean", "null", "object", "array"}, false}; }

void add_kind(TaggedValue& value, const std::string& kind) {
  if (kind == "string") value.text = true;
  else value.json.insert(kind == "integer" ? "number" : kind);
}

TaggedValue value_of(const SchemaJson& schema, const SchemaJson& root, int depth, int& left) {
  const SchemaJson* at = referenced(schema, root);
  if (depth > kHopsMax || --left < 0 || at == nullptr || !at->is_object()) return any_value();
  TaggedValue value{false, {}, false};
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    if (!at->contains(key) || !(*at)[key].is_array()) continue;
    for (const SchemaJson& one : (*at)[key]) {
      const TaggedValue also = value_of(one, root, depth + 1, left);
      value.text = value.text || also.text;
      value.shaped = value.shaped || also.shaped;
      value.json.insert(also.json.begin(), also.json.end());
    }
    return value;
  }
  if (at->contains("const") || (at->contains("enum") && (*at)["enum"].is_array())) {
    for (const SchemaJson& one : at->contains("const") ? SchemaJson::array({(*at)["const"]}) : (*at)["enum"])
      add_kind(value, kind_of(one));
    value.shaped = true;
    return value;
  }
  const auto types = types_of(*at, "");
  if (!types.is_ok() || types->empty()) return any_value();
  for (const std::string& type : *types) add_kind(value, type);
  for (const auto& [key, what] : at->items()) value.shaped = value.shaped || shapes_values(key);
  return value;
}

}  // namespace

const SchemaJson* referenced(const SchemaJson& schema, const SchemaJson& root) {
  const SchemaJson* at = &schema;
  for (int hops = 0; at->is_object() && at->contains("$ref"); ++hops) {
    const SchemaJson& reference = (*at)["$ref"];
    if (hops == kHopsMax || !reference.is_string()) return nullptr;
    const auto& name = reference.get_ref<const std::string&>();
    at = target_of(name, root);
    if (at == nullptr) return nullptr;
  }
  return at;
}

TaggedValue tagged_value(const SchemaJson& schema, const SchemaJson& root) {
  int left = kSchemasMax;
  return value_of(schema, root, 0, left);
}

std::string TaggedValue::to_json(const std::string& said) const {
  const SchemaJson parsed = json.empty() ? SchemaJson() : SchemaJson::parse(said, nullptr, false);
  if (!parsed.is_discarded() && !parsed.is_string() && json.contains(kind_of(parsed))) {
    const size_t first = said.find_first_not_of(" \t\r\n"), last = said.find_last_not_of(" \t\r\n");
    return said.substr(first, last - first + 1);
  }
  return SchemaJson(said).dump(-1, ' ', false, SchemaJson::error_handler_t::replace);
}

}  // namespace moestro::grammar
