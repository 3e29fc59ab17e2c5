#include "orchestrator/forms/pythonic_form.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orchestrator/forms/pythonic_calls.h"
#include "orchestrator/grammar/keyword_arguments.h"

namespace moestro::orchestrator {

using grammar::NodeId;

namespace {
constexpr const char* kPythonStart = "<|python_start|>";  // Llama 4 may write it before the list
}

PythonicForm::PythonicForm(std::string name) : ToolForm(std::move(name), {"[", "", {", "}, "]", true}) {}

std::vector<std::string> PythonicForm::tokens() const { return {kPythonStart}; }

std::unique_ptr<ToolCallParser> PythonicForm::parser(const ToolArguments& tools) const {
  return std::make_unique<PythonicCallParser>(kPythonStart, tools);
}

Result<NodeId> PythonicForm::add_call(grammar::ByteGrammar& g, NodeId from, const grammar::SchemaJson& function,
                                      std::vector<std::string>* passed_over) const {
  NodeId at = g.literal(from, function["name"].get<std::string>() + "(");
  if (const auto* parameters = parameters_of(function)) {
    MOESTRO_ASSIGN_OR_RETURN(at, grammar::add_keyword_arguments(g, at, *parameters, passed_over));
  }
  return g.literal(at, ")");
}

}  // namespace moestro::orchestrator
