#pragma once
// Regular expressions as byte grammars: of JSON strings (a schema's "pattern"), or of whole texts.

#include <string_view>

#include "common/status.h"
#include "orchestrator/grammar/json_grammar.h"

namespace moestro::grammar {

/// A JSON string, quotes included, whose value `pattern` matches; as in JSON schemas, anywhere in it unless ^ and $ say
/// otherwise. Supported are characters, ., classes, \d \w \s and their complements, groups, | and quantifiers.
/// kUnsupported names anything else; kInvalidArgument: not a valid pattern.
Result<NodeId> add_pattern(ByteGrammar& grammar, NodeId from, std::string_view pattern);

/// A text that `pattern` matches from its first character to its last; ^ and $ may be there, and change nothing.
/// Otherwise as add_pattern.
Result<NodeId> add_regex(ByteGrammar& grammar, NodeId from, std::string_view pattern);

}  // namespace moestro::grammar
