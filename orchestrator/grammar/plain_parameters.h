#pragma once
// Parameters of a function whose arguments are written one by one, not as a JSON object.

#include <set>
#include <string>

#include "orchestrator/grammar/json_schema.h"

namespace moestro::grammar {

struct PlainParameters {
  SchemaJson properties = SchemaJson::object();  ///< in the schema's order
  std::set<std::string> required;
};

/// Of the schema `root`, an object with properties and no other keyword that shapes it; others go to
/// `compiler.cannot()`. `where`, for messages: "for arguments between tags".
Result<PlainParameters> plain_parameters(const SchemaJson& root, JsonSchemaCompiler& compiler,
                                         const std::string& where);

}  // namespace moestro::grammar
