#pragma once
// A language of bytes as a recursive transition network: nodes, edges that read a byte, edges that read nothing, and
// calls of other nodes, which return at their end. So nested JSON needs no copy for each depth.

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro::grammar {

using NodeId = uint32_t;

struct ByteEdge {
  uint8_t low, high;  ///< inclusive
  NodeId to;
};
struct CallEdge {
  NodeId callee, back;
};
struct Node {
  std::vector<ByteEdge> bytes;
  std::vector<NodeId> empty;
  std::vector<CallEdge> calls;
  bool end = false;  ///< end of the called part, or of the text
};

/// A range of code points, inclusive.
using CodePoints = std::pair<uint32_t, uint32_t>;
inline constexpr uint32_t kCodePointMax = 0x10FFFF;

class ByteGrammar {
 public:
  static constexpr size_t kNodesMax = 200'000;

  NodeId add() {
    nodes_.emplace_back();
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  void byte(NodeId from, NodeId to, uint8_t low, uint8_t high) { nodes_[from].bytes.push_back({low, high, to}); }
  void empty(NodeId from, NodeId to) { nodes_[from].empty.push_back(to); }
  void call(NodeId from, NodeId callee, NodeId back) { nodes_[from].calls.push_back({callee, back}); }
  void end(NodeId node) { nodes_[node].end = true; }

  /// Adds `text`; returns the node after it.
  NodeId literal(NodeId from, std::string_view text);
  /// Reads one code point of `low` to `high` as UTF-8; surrogates are none.
  void code_points(NodeId from, NodeId to, CodePoints range);

  NodeId start() const { return start_; }
  void set_start(NodeId node) { start_ = node; }
  const std::vector<Node>& nodes() const { return nodes_; }
  bool too_large() const { return nodes_.size() > kNodesMax; }

 private:
  void encoded(NodeId from, NodeId to, CodePoints range, int bytes);
  std::vector<Node> nodes_;
  NodeId start_ = 0;
};

}  // namespace moestro::grammar
