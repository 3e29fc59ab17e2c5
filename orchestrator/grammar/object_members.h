#pragma once
// Which members an object of a schema may have, and which it must.

#include <set>
#include <string>
#include <vector>

#include "orchestrator/grammar/json_schema.h"
#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

struct ObjectMember {
  std::string name;
  const SchemaJson* schema;
  std::string path;  ///< of `schema`
};

struct ObjectMembers {
  /// Those of "properties", in the schema's order, and behind them the names of "required" that are not among these,
  /// with the schema of additional properties. Without what may not be there.
  std::vector<ObjectMember> properties;
  std::set<std::string> required;  ///< of these
  std::vector<std::string> names;  ///< no additional property may have: those above, and what may not be there
};

/// Of the schema of an object, which outlives what is returned. What is required and may not be there goes to
/// `compiler.cannot()`.
Result<ObjectMembers> object_members(const SchemaJson& schema, JsonSchemaCompiler& compiler, const std::string& path);

}  // namespace moestro::grammar
