#include "orchestrator/grammar/plain_parameters.h"

#include <nlohmann/json.hpp>

#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

namespace {

/// A keyword of the root beyond those of a plain object.
Status check_root(const SchemaJson& root, JsonSchemaCompiler& compiler, const std::string& where) {
  if (!root.is_object()) return schema_error(Code::kInvalidArgument, "", "it must be an object");
  MOESTRO_ASSIGN_OR_RETURN(const auto types, types_of(root, ""));
  if (!types.empty() && types != std::vector<std::string>{"object"})
    return schema_error(Code::kInvalidArgument, "", "the arguments of a call are an object");
  for (const std::string& key : unknown_keywords(root))
    MOESTRO_RETURN_IF_ERROR(compiler.cannot("", "'" + key + "' is not supported"));
  for (const auto& [key, value] : root.items()) {
    const bool plain = key == "properties" || key == "required" || (key == "additionalProperties" && value == false);
    if (shapes_values(key) && !plain)
      MOESTRO_RETURN_IF_ERROR(compiler.cannot("", "'" + key + "' is not supported " + where));
  }
  return Status::ok();
}

}  // namespace

Result<ObjectMembers> plain_parameters(const SchemaJson& root, JsonSchemaCompiler& compiler, const std::string& where) {
  MOESTRO_RETURN_IF_ERROR(check_root(root, compiler, where));
  return object_members(root, compiler, "");
}

}  // namespace moestro::grammar
