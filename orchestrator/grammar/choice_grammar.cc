#include "orchestrator/grammar/choice_grammar.h"

#include <map>
#include <utility>

namespace moestro::grammar {

NodeId add_choice(ByteGrammar& grammar, NodeId from, std::span<const std::string> texts) {
  const NodeId begin = grammar.add(), to = grammar.add();
  grammar.empty(from, begin);
  std::map<std::pair<NodeId, char>, NodeId> next;
  for (const std::string& text : texts) {
    NodeId at = begin;
    for (const char c : text) {
      const auto [known, fresh] = next.emplace(std::pair(at, c), 0);
      if (fresh) known->second = grammar.literal(at, {&c, 1});
      at = known->second;
    }
    grammar.empty(at, to);
    if (grammar.too_large()) break;
  }
  return to;
}

}  // namespace moestro::grammar
