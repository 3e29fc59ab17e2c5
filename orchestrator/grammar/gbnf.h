#pragma once
// GBNF, llama.cpp's language for grammars, as byte grammars.

#include <string_view>

#include "common/status.h"
#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// A text of the rule 'root'. kInvalidArgument and kUnsupported say why there is none, with line and column where there
/// is one: a wrong line, a rule that is not defined or begins with itself, tokens (<...>), a grammar that is too large.
/// A rule that ends with a call of itself or of another rule may do so any number of times; other calls nest up to
/// GrammarStates::kDepthMax.
Result<NodeId> add_gbnf(ByteGrammar& grammar, NodeId from, std::string_view text);

}  // namespace moestro::grammar
