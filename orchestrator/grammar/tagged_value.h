#pragma once
// What a value may be that is written between tags: strings as they are, all else as JSON (GLM's tool calls).

#include <set>
#include <string>

#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

struct TaggedValue {
  bool text = true;             ///< a string, as it is
  std::set<std::string> json;   ///< the types of JSON, strings aside, that it may have; "number" for integers too
  bool shaped = false;          ///< the schema wants more of it than a type

  /// What `text` stands for, as JSON text: JSON of a type that is allowed, otherwise a string.
  std::string to_json(const std::string& text) const;
};

/// `schema` with its references into `root` followed; null: there is no such place.
const SchemaJson* referenced(const SchemaJson& schema, const SchemaJson& root);
/// A schema that says nothing, or nothing that is understood, allows any value.
TaggedValue tagged_value(const SchemaJson& schema, const SchemaJson& root);

}  // namespace moestro::grammar
