#include "orchestrator/forms/reasoning_grammar.h"

#include <algorithm>

#include "orchestrator/forms/harmony.h"
#include "orchestrator/grammar/tagged_arguments.h"
#include "orchestrator/grammar/text_before.h"

namespace moestro::orchestrator {

using grammar::NodeId;

NodeId add_reasoning(grammar::ByteGrammar& g, NodeId from, const ReasoningStyle& style, bool open) {
  const bool ascii = std::ranges::all_of(style.end, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (!ascii || style.end.find(style.end.front(), 1) != std::string::npos) return from;
  const bool channels = !style.channel_tokens.empty();
  NodeId begun = open || channels ? from : grammar::add_new_line(g, from);
  if (!open) begun = g.literal(begun, style.begin);
  NodeId end = grammar::add_text_before(g, begun, style.end);
  if (!channels) end = grammar::add_new_line(g, grammar::add_new_line(g, end));
  else end = g.literal(end, harmony::kAssistant);  // the next message's head
  const NodeId to = g.add();
  g.empty(end, to);
  if (!open) g.empty(from, to);
  return to;
}

}  // namespace moestro::orchestrator
