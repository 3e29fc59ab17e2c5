#pragma once
// One of some texts, as a byte grammar.

#include <span>
#include <string>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// Texts that begin alike share nodes, so that any number of them is read in one place at a time.
NodeId add_choice(ByteGrammar& grammar, NodeId from, std::span<const std::string> texts);

}  // namespace moestro::grammar
