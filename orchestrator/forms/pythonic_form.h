#pragma once
// Calls in Python's syntax, as one list that is the whole answer: [f(a="x", b=1), g()] (Llama 4).

#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator {

class PythonicForm final : public ToolForm {
 public:
  explicit PythonicForm(std::string name);
  std::vector<std::string> tokens() const override;
  /// None: an answer that begins with '[' may be any text.
  std::vector<grammar::Marker> begins() const override { return {}; }
  std::unique_ptr<ToolCallParser> parser(const ToolArguments& tools) const override;
  Result<grammar::NodeId> add_call(grammar::ByteGrammar& g, grammar::NodeId from, const grammar::SchemaJson& function,
                                   std::vector<std::string>* passed_over) const override;
};

}  // namespace moestro::orchestrator
