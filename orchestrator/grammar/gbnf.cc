#include "orchestrator/grammar/gbnf.h"

#include <algorithm>
#include <string>
#include <vector>

#include "orchestrator/grammar/call_frames.h"
#include "orchestrator/grammar/gbnf_reader.h"

namespace moestro::grammar {

namespace {

using Kind = GbnfPart::Kind;
constexpr uint8_t kEmptyDepthMax = 64;  // calls within calls that read nothing

class GbnfCompiler {
 public:
  GbnfCompiler(ByteGrammar& g, const Gbnf& gbnf) : g_(g), rules_(gbnf.rules) {
    for (size_t i = 0; i < rules_.size(); ++i) begins_.push_back(g_.add());
    for (size_t i = 0; i < rules_.size(); ++i) {
      const NodeId to = g_.add();
      g_.end(to);
      alternatives(begins_[i], rules_[i].alternatives, to, /*tail=*/true);
    }
  }
  NodeId begin_of(size_t rule) const { return begins_[rule]; }

 private:
  // `tail`: what is made is the end of its rule. A rule called there ends its caller, too, so the call needs no frame,
  // and a list that is written as `list ::= item list | item` may have any length.

  void alternatives(NodeId from, const GbnfAlternatives& list, NodeId to, bool tail) {
    for (const GbnfSequence& sequence : list) {
      NodeId at = g_.add();
      g_.empty(from, at);
      for (const GbnfPart& part : sequence) at = repeated(at, part, tail && &part == &sequence.back());
      g_.empty(at, to);
    }
  }

  NodeId repeated(NodeId at, const GbnfPart& part, bool tail) {
    const bool endless = part.most < 0;
    const int64_t fixed = endless ? std::max<int64_t>(part.least - 1, 0) : part.least;
    for (int64_t i = 0; i < fixed && !g_.too_large(); ++i) at = once(at, part, tail && i + 1 == part.most);
    if (endless) {
      const NodeId loop = g_.add();
      g_.empty(at, loop);
      const NodeId end = once(loop, part, false);
      g_.empty(end, loop);
      return part.least > 0 ? end : loop;
    }
    if (part.most == part.least) return at;
    const NodeId to = g_.add();
    for (int64_t i = part.least; i < part.most && !g_.too_large(); ++i) {
      g_.empty(at, to);
      at = once(at, part, tail && i + 1 == part.most);
    }
    g_.empty(at, to);
    return to;
  }

  NodeId once(NodeId from, const GbnfPart& part, bool tail) {
    if (part.kind == Kind::kText) {
      for (const char32_t c : part.text) from = character(from, {{c, c}});
      return from;
    }
    if (part.kind == Kind::kCharacter) return character(from, part.characters);
    const NodeId to = g_.add();
    if (part.kind == Kind::kGroup) alternatives(from, part.group, to, tail);
    else if (tail) g_.empty(from, begins_[part.rule]);
    else g_.call(from, begins_[part.rule], to);
    return to;
  }

  NodeId character(NodeId from, const CharacterSet& set) {
    const NodeId to = g_.add();
    for (const CodePoints& range : set) g_.code_points(from, to, range);
    return to;
  }

  ByteGrammar& g_;
  const std::vector<GbnfRule>& rules_;
  std::vector<NodeId> begins_;  ///< by rule
};

/// Which rules a rule may begin with: an edge for each. Left recursion is a way round in circles.
class LeftEdges {
 public:
  LeftEdges(const Gbnf& gbnf, std::vector<bool> nullable) : nullable_(std::move(nullable)), edges_(gbnf.rules.size()) {
    for (size_t i = 0; i < gbnf.rules.size(); ++i) (void)add(edges_[i], gbnf.rules[i].alternatives);
  }

  /// Rules that begin with each other, in this order; empty if there are none.
  std::vector<size_t> circle() const {
    enum class Seen : uint8_t { kNot, kOpen, kDone };
    std::vector<Seen> seen(edges_.size(), Seen::kNot);
    std::vector<size_t> path, next(edges_.size(), 0);  // next: of a rule's edges
    for (size_t start = 0; start < edges_.size(); ++start) {
      if (seen[start] == Seen::kNot) path.push_back(start);
      while (!path.empty()) {
        const size_t rule = path.back();
        seen[rule] = Seen::kOpen;
        if (next[rule] == edges_[rule].size()) {
          seen[rule] = Seen::kDone;
          path.pop_back();
          continue;
        }
        const size_t to = edges_[rule][next[rule]++];
        if (seen[to] == Seen::kOpen) return {std::find(path.begin(), path.end(), to), path.end()};
        if (seen[to] == Seen::kNot) path.push_back(to);
      }
    }
    return {};
  }

 private:
  /// Collects what the alternatives may begin with; true if one of them may be empty.
  bool add(std::vector<size_t>& into, const GbnfAlternatives& list) const {
    bool any_empty = false;
    for (const GbnfSequence& sequence : list) {
      bool empty = true;
      for (size_t i = 0; i < sequence.size() && empty; ++i) {
        const GbnfPart& part = sequence[i];
        if (part.most == 0) continue;
        empty = false;
        if (part.kind == Kind::kGroup) empty = add(into, part.group);
        if (part.kind == Kind::kRule) {
          into.push_back(part.rule);
          empty = nullable_[part.rule];
        }
        empty = empty || part.least == 0;
      }
      any_empty = any_empty || empty;
    }
    return any_empty;
  }

  const std::vector<bool> nullable_;  ///< by rule: it may be empty
  std::vector<std::vector<size_t>> edges_;
};

std::string in_order(const Gbnf& gbnf, const std::vector<size_t>& circle) {
  constexpr size_t kShownMax = 5;
  std::string text;
  for (size_t i = 0; i < std::min(circle.size(), kShownMax); ++i) text += gbnf.rules[circle[i]].name + " -> ";
  return text + (circle.size() > kShownMax ? "... -> " : "") + gbnf.rules[circle[0]].name;
}

}  // namespace

Result<NodeId> add_gbnf(ByteGrammar& grammar, NodeId from, std::string_view text) {
  MOESTRO_ASSIGN_OR_RETURN(const Gbnf gbnf, read_gbnf(text));
  const GbnfCompiler compiled(grammar, gbnf);
  if (grammar.too_large())
    return unsupported("the grammar is too large: lower the numbers of repetitions, or make what is repeated a rule");
  const auto frames = frames_to_end(grammar, kEmptyDepthMax, MayRead::kNothing);
  std::vector<bool> nullable;
  for (size_t i = 0; i < gbnf.rules.size(); ++i) nullable.push_back(frames[compiled.begin_of(i)] <= kEmptyDepthMax);
  if (const auto circle = LeftEdges(gbnf, std::move(nullable)).circle(); !circle.empty())
    return unsupported("the rule '" + gbnf.rules[circle[0]].name + "' begins with itself (" + in_order(gbnf, circle) +
                       "); let it read something first, or repeat with * or +");
  const NodeId to = grammar.add();
  grammar.call(from, compiled.begin_of(gbnf.root), to);
  return to;
}

}  // namespace moestro::grammar
