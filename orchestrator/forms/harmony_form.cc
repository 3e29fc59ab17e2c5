#include "orchestrator/forms/harmony_form.h"

#include <nlohmann/json.hpp>

#include "orchestrator/forms/harmony.h"
#include "orchestrator/grammar/choice_grammar.h"

namespace moestro::orchestrator {

using grammar::NodeId;

HarmonyForm::HarmonyForm(std::string name)
    : MarkedForm(std::move(name), CallFrame{harmony::kToFunction, "", {}, "", false},
                 CallMarks{.section_begin = "",
                           .section_end = "",
                           .call_begin = harmony::kCallHead,
                           .name_begin = "",
                           .arguments_begin = harmony::kMessage,
                           .arguments_end = "",
                           .call_end = harmony::kCall,
                           .between = "",
                           .id_begin = ""}) {}

std::vector<std::string> HarmonyForm::tokens() const {
  using namespace harmony;
  return {kStart, kChannel, kMessage, kEnd, kCall, kConstrain};
}

/// The prompt has begun the first head of an answer. A message's text may say where calls go, so a head's own tokens
/// are part of the marker.
std::vector<grammar::Marker> HarmonyForm::begins() const {
  using namespace harmony;
  const std::string to = kToFunction, channel = kChannel;
  return {{to, /*at_start=*/true},
          {kAssistant + to},
          {channel + "commentary" + to},
          {channel + "analysis" + to}};
}

Result<NodeId> HarmonyForm::add_call(grammar::ByteGrammar& g, NodeId from, const grammar::SchemaJson& function,
                                     std::vector<std::string>* passed_over) const {
  // The channel stands before or behind the function, and what the arguments are may be left out.
  std::vector<std::string> heads;
  for (const char* channel : {"", "<|channel|>commentary"})
    for (const char* kind : {"", " <|constrain|>json", " json"})
      heads.push_back(std::string(channel) + kind + harmony::kMessage);
  const NodeId name = g.literal(from, function["name"].get<std::string>());
  return add_json_arguments(g, grammar::add_choice(g, name, heads), function, passed_over);
}

}  // namespace moestro::orchestrator
