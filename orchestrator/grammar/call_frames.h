#pragma once
// How deeply calls must nest until a rule ends.

#include <cstdint>
#include <vector>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

enum class MayRead : uint8_t { kNothing, kBytes };

/// Of each node: the least number of calls within calls that is open at once on some way to the end of its rule;
/// `frames_max + 1` if each way needs more, or none ends. kNothing: only ways that read no byte count.
std::vector<uint8_t> frames_to_end(const ByteGrammar& grammar, uint8_t frames_max, MayRead may_read);

}  // namespace moestro::grammar
