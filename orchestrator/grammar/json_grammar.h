#pragma once
// The parts of JSON as byte grammars. Every function adds its part after `from` and returns the node after it.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

/// Of integers without bounds: 18 digits, which every integer of 64 bits has room for.
inline constexpr int64_t kIntegerMax = 999'999'999'999'999'999;
/// Of all integers: 19 digits. The other sign has the same limit.
inline constexpr int64_t kInteger64Max = std::numeric_limits<int64_t>::max();

class JsonGrammar {
 public:
  explicit JsonGrammar(ByteGrammar& grammar) : g_(grammar) {}

  /// White space between two parts: nothing, a space, or a new line with up to 20 spaces or tabs. It is bounded, so
  /// that a model cannot generate white space forever.
  NodeId white(NodeId from);
  /// A string of `least` to `most` code points, with its quotes; nullopt: no bound.
  NodeId string(NodeId from, int64_t least = 0, std::optional<int64_t> most = std::nullopt);
  /// One code point of `ranges` in a JSON string, escaped if necessary.
  void character(NodeId from, NodeId to, std::span<const CodePoints> ranges);
  /// A string without escapes that is none of `names`.
  NodeId other_key(NodeId from, const std::vector<std::string>& names);
  /// `least` to `most`, within +-kInteger64Max.
  NodeId integer(NodeId from, int64_t least = -kIntegerMax, int64_t most = kIntegerMax);
  NodeId number(NodeId from);
  /// Any value; any object. Depth is bounded by GrammarStates::kDepthMax.
  NodeId value(NodeId from);
  NodeId object(NodeId from);

 private:
  NodeId digits(NodeId from, int least, int most);
  void between(NodeId from, NodeId to, const std::string& low, const std::string& high);
  void not_negative(NodeId from, NodeId to, int64_t least, int64_t most);
  NodeId make_value();
  NodeId object_of(NodeId from, NodeId value);

  ByteGrammar& g_;
  std::optional<NodeId> value_;  ///< the rule that value() calls
};

}  // namespace moestro::grammar
