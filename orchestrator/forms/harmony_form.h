#pragma once
// gpt-oss: an answer is messages, and one to a function is a call, which ends the answer (harmony).

#include "orchestrator/forms/marked_form.h"

namespace moestro::orchestrator {

/// Reads what ReasoningParser makes of heads that name a function: harmony::kCallHead, NAME and kMessage.
class HarmonyForm final : public MarkedForm {
 public:
  explicit HarmonyForm(std::string name);
  std::vector<std::string> tokens() const override;
  std::vector<grammar::Marker> begins() const override;
  const char* reasoning_field() const override { return "thinking"; }
  Result<grammar::NodeId> add_call(grammar::ByteGrammar& g, grammar::NodeId from, const grammar::SchemaJson& function,
                                   std::vector<std::string>* passed_over) const override;
};

}  // namespace moestro::orchestrator
