#pragma once
// Numbers within bounds as byte grammars.

#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// The number of digits that every JSON reader keeps, so that no text is read as a number on the other side of a bound.
inline constexpr int kExactDigits = 15;
/// Of integers of 64 bits.
inline constexpr int kIntegerDigits = 19;

/// Digit by digit, because not every integer of 64 bits is a double.
struct NumberBound {
  bool negative = false;
  std::string whole = "0", fraction = {};  ///< without zeros before the first and behind the last
  bool exclusive = false;

  static NumberBound of(double value, bool exclusive = false);
  static NumberBound of(int64_t value);
};

struct NumberRange {
  std::optional<NumberBound> least, most;
  int digits = kExactDigits;           ///< in all, at most
  int fraction_digits = kExactDigits;  ///< of them, at most
  int64_t divisor = 1;                 ///< for whole numbers (fraction_digits is 0): all are multiples of it
};
inline constexpr int64_t kDivisorMax = 100;  ///< each remainder has its own nodes

/// Adds numbers of the range without an exponent; returns the node after them. nullopt: there is no such number.
std::optional<NodeId> add_number(ByteGrammar& grammar, NodeId from, const NumberRange& range);

}  // namespace moestro::grammar
