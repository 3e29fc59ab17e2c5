#pragma once
// Free text up to a marker, as a byte grammar.

#include <string_view>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// Any text up to the first `end`, which is ASCII and begins with a byte that is not in it again; `end` is read too.
NodeId add_text_before(ByteGrammar& grammar, NodeId from, std::string_view end);

}  // namespace moestro::grammar
