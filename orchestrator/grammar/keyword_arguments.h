#pragma once
// The arguments of a call in Python's syntax, with values in JSON: a="x", b=1. In the order of the schema.

#include <string>
#include <vector>

#include "orchestrator/grammar/byte_grammar.h"
#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

/// Adds the arguments of a function whose parameters are `schema`. What cannot be guaranteed is refused by name, or
/// noted in `passed_over` if that is given.
Result<NodeId> add_keyword_arguments(ByteGrammar& grammar, NodeId from, const SchemaJson& schema,
                                     std::vector<std::string>* passed_over);

}  // namespace moestro::grammar
