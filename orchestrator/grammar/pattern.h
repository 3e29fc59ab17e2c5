#pragma once
// Regular expressions of JSON schemas ("pattern") as byte grammars of JSON strings.

#include <string_view>

#include "common/status.h"
#include "orchestrator/grammar/json_grammar.h"

namespace moestro::grammar {

/// A JSON string, quotes included, whose value `pattern` matches; as in JSON schemas, anywhere in it unless ^ and $ say
/// otherwise. Supported are characters, ., classes, \d \w \s and their complements, groups, | and quantifiers.
/// kUnsupported names anything else; kInvalidArgument: not a valid pattern.
Result<NodeId> add_pattern(ByteGrammar& grammar, NodeId from, std::string_view pattern);

}  // namespace moestro::grammar
