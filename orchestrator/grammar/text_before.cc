#include "orchestrator/grammar/text_before.h"

#include <algorithm>
#include <vector>

namespace moestro::grammar {

namespace {

/// Any character of a text except two of ASCII, which may be the same.
void add_others(ByteGrammar& g, NodeId from, NodeId to, unsigned char one, unsigned char other) {
  const uint32_t first = std::min(one, other), second = std::max(one, other);
  for (const CodePoints& range : {CodePoints{'\t', '\n'}, CodePoints{' ', kCodePointMax}}) {
    uint32_t low = range.first;
    for (const uint32_t skipped : {first, second}) {
      if (skipped < low || skipped > range.second) continue;
      if (low < skipped) g.code_points(from, to, {low, skipped - 1});
      low = skipped + 1;
    }
    if (low <= range.second) g.code_points(from, to, {low, range.second});
  }
}

}  // namespace

NodeId add_text_before(ByteGrammar& g, NodeId from, std::string_view end) {
  std::vector<NodeId> said(end.size() + 1);  // by how many bytes of `end` have been said
  for (NodeId& node : said) node = g.add();
  g.empty(from, said[0]);
  const auto first = static_cast<unsigned char>(end[0]);
  for (size_t i = 0; i < end.size(); ++i) {
    const auto next = static_cast<unsigned char>(end[i]);
    g.byte(said[i], said[i + 1], next, next);
    if (next != first) g.byte(said[i], said[1], first, first);
    add_others(g, said[i], said[0], first, next);
  }
  return said.back();
}

}  // namespace moestro::grammar
