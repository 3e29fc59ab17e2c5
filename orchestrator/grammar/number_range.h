#pragma once
// Numbers within bounds as byte grammars.

#include <cstdint>
#include <optional>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// The number of digits that every JSON reader keeps, so that no text is read as a number on the other side of a bound.
inline constexpr int kExactDigits = 15;

struct NumberBound {
  double value = 0;
  bool exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> least, most;
  int fraction_digits = kExactDigits;  ///< at most
  int64_t divisor = 1;                 ///< for whole numbers (fraction_digits is 0): all are multiples of it
};
inline constexpr int64_t kDivisorMax = 100;  ///< each remainder has its own nodes

/// Adds numbers of the range without an exponent, of at most kExactDigits digits; returns the node after them. nullopt:
/// there is no such number.
std::optional<NodeId> add_number(ByteGrammar& grammar, NodeId from, const NumberRange& range);

}  // namespace moestro::grammar
