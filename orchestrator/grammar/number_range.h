#pragma once
// Numbers within bounds as byte grammars.

#include <cstdint>
#include <optional>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// As many digits as every reader of JSON keeps: no text is taken for a number on the other side of a bound.
inline constexpr int kExactDigits = 15;

struct NumberBound {
  double value = 0;
  bool exclusive = false;
};

struct NumberRange {
  std::optional<NumberBound> least, most;
  int fraction_digits = kExactDigits;  ///< at most
  int64_t divisor = 1;                 ///< of whole numbers (fraction_digits is 0): all are multiples of it
};
inline constexpr int64_t kDivisorMax = 100;  ///< each remainder has nodes of its own

/// A number of the range without an exponent, of at most kExactDigits digits; returns the node behind it. Nothing:
/// there is no such number.
std::optional<NodeId> add_number(ByteGrammar& grammar, NodeId from, const NumberRange& range);

}  // namespace moestro::grammar
