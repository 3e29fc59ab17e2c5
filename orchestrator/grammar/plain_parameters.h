#pragma once
// Parameters of a function whose arguments are written one by one, not as a JSON object.

#include <string>

#include "orchestrator/grammar/object_members.h"

namespace moestro::grammar {

/// Of the schema `root`, an object with properties and no other keyword that shapes it; others go to
/// `compiler.cannot()`. `where`, for messages: "for arguments between tags".
Result<ObjectMembers> plain_parameters(const SchemaJson& root, JsonSchemaCompiler& compiler, const std::string& where);

}  // namespace moestro::grammar
