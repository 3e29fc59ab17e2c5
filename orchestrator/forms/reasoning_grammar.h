#pragma once
// Reasoning before an answer that must follow a grammar.

#include "orchestrator/forms/reasoning_style.h"
#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::orchestrator {

/// Adds free text up to the end of the reasoning. `open`: the prompt has begun it; otherwise there may be none. For
/// markers that no grammar can look for, nothing.
grammar::NodeId add_reasoning(grammar::ByteGrammar& g, grammar::NodeId from, const ReasoningStyle& style, bool open);

}  // namespace moestro::orchestrator
