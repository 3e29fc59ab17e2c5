#include "orchestrator/grammar/call_frames.h"

#include <algorithm>

namespace moestro::grammar {

namespace {

/// Dijkstra's algorithm from the ends backward. A call costs the larger of what follows it and one more than what is
/// called (Knuth, "A generalization of Dijkstra's algorithm", 1977). Costs are small, so the queue is a row of lists.
class FramesToEnd {
 public:
  FramesToEnd(const ByteGrammar& grammar, uint8_t frames_max, MayRead may_read)
      : nodes_(grammar.nodes()),
        frames_max_(frames_max),
        frames_(nodes_.size(), static_cast<uint8_t>(frames_max + 1)),
        before_(nodes_.size()),
        calls_of_(nodes_.size()),
        queue_(size_t{frames_max} + 1) {
    for (NodeId from = 0; from < nodes_.size(); ++from) {
      const Node& node = nodes_[from];
      if (node.end) queue_[0].push_back(from);
      if (may_read == MayRead::kBytes)
        for (const ByteEdge& e : node.bytes) before_[e.to].push_back(from);
      for (const NodeId to : node.empty) before_[to].push_back(from);
      for (const CallEdge& call : node.calls) {
        calls_of_[call.callee].push_back({from, call.callee, call.back});
        calls_of_[call.back].push_back({from, call.callee, call.back});
      }
    }
  }

  std::vector<uint8_t> find() {
    for (size_t frames = 0; frames < queue_.size(); ++frames) {
      while (!queue_[frames].empty()) {
        const NodeId node = queue_[frames].back();
        queue_[frames].pop_back();
        if (known(node)) continue;
        frames_[node] = static_cast<uint8_t>(frames);
        for (const NodeId from : before_[node]) queue_[frames].push_back(from);
        for (const Call& call : calls_of_[node]) {
          if (!known(call.callee) || !known(call.back)) continue;
          const size_t cost = std::max<size_t>(frames_[call.back], size_t{frames_[call.callee]} + 1);
          if (cost < queue_.size()) queue_[cost].push_back(call.from);
        }
      }
    }
    return std::move(frames_);
  }

 private:
  struct Call {
    NodeId from, callee, back;
  };
  bool known(NodeId node) const { return frames_[node] <= frames_max_; }

  const std::vector<Node>& nodes_;
  const uint8_t frames_max_;
  std::vector<uint8_t> frames_;
  std::vector<std::vector<NodeId>> before_;
  std::vector<std::vector<Call>> calls_of_;  ///< calls that a node is the begin of, or follows
  std::vector<std::vector<NodeId>> queue_;   ///< by frames
};

}  // namespace

std::vector<uint8_t> frames_to_end(const ByteGrammar& grammar, uint8_t frames_max, MayRead may_read) {
  return FramesToEnd(grammar, frames_max, may_read).find();
}

}  // namespace moestro::grammar
