#pragma once
// The arguments of a call between tags: <arg_key>NAME</arg_key><arg_value>VALUE</arg_value>, in the order of the
// schema.

#include <string>
#include <vector>

#include "orchestrator/grammar/byte_grammar.h"
#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

struct ArgumentTags {
  std::string key_begin = "<arg_key>", key_end = "</arg_key>", value_begin = "<arg_value>", value_end = "</arg_value>";
  bool lines = false;  ///< one new line before `value_end` is no part of a value
};

/// Adds the arguments of a function whose parameters are `schema`; one new line may stand before and behind each tag
/// pair, and between its two tags where it is no part of the value. What cannot be guaranteed is refused by name, or
/// noted in `passed_over` if that is given.
Result<NodeId> add_tagged_arguments(ByteGrammar& grammar, NodeId from, const SchemaJson& schema,
                                    const ArgumentTags& tags, std::vector<std::string>* passed_over);
/// Zero or one new line.
NodeId add_new_line(ByteGrammar& grammar, NodeId from);

}  // namespace moestro::grammar
