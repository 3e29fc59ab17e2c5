#include "orchestrator/grammar/object_members.h"

#include <nlohmann/json.hpp>

namespace moestro::grammar {

namespace {

/// The keyword's value, or `absent`.
const SchemaJson& value_at(const SchemaJson& schema, const char* keyword, const SchemaJson& absent) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? absent : *found;
}

}  // namespace

Result<ObjectMembers> object_members(const SchemaJson& schema, JsonSchemaCompiler& compiler, const std::string& path) {
  static const SchemaJson kNone = SchemaJson::object(), kNoNames = SchemaJson::array(), kAny = true;
  const SchemaJson& listed = value_at(schema, "properties", kNone);
  const SchemaJson& required = value_at(schema, "required", kNoNames);
  const SchemaJson& others = value_at(schema, "additionalProperties", kAny);
  if (!listed.is_object())
    return schema_error(Code::kInvalidArgument, path, "'properties' must be an object of schemas");
  if (!required.is_array()) return schema_error(Code::kInvalidArgument, path, "'required' must be a list of names");
  ObjectMembers members;
  for (const auto& [name, property] : listed.items()) {
    members.names.push_back(name);
    if (property != false) members.properties.push_back({name, &property, path + "/properties/" + name});
  }
  for (const SchemaJson& each : required) {
    if (!each.is_string()) return schema_error(Code::kInvalidArgument, path, "'required' must be a list of names");
    const auto name = each.get<std::string>();
    const auto own = listed.find(name);
    const bool is_listed = own != listed.end();
    if ((is_listed ? *own : others) == false) {
      const std::string why = is_listed ? "whose schema is false"
                                        : "which is not in 'properties', and 'additionalProperties' is false";
      MOESTRO_RETURN_IF_ERROR(compiler.cannot(path, "'required' names '" + name + "', " + why));
      continue;
    }
    if (!members.required.insert(name).second || is_listed) continue;
    members.names.push_back(name);
    members.properties.push_back({name, &others, path + "/additionalProperties"});
  }
  return members;
}

}  // namespace moestro::grammar
