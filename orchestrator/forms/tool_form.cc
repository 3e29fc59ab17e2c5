#include "orchestrator/forms/tool_form.h"

#include <nlohmann/json.hpp>

#include "orchestrator/grammar/choice_grammar.h"
#include "orchestrator/grammar/json_schema.h"

namespace moestro::orchestrator {

using grammar::ByteGrammar;
using grammar::NodeId;
using grammar::SchemaJson;

Result<NodeId> ToolForm::add_calls(ByteGrammar& g, NodeId from, bool begun, bool many,
                                   const AddFunction& add_function) const {
  const NodeId call = g.add();
  g.empty(g.literal(begun ? from : g.literal(from, frame_.begin), frame_.lead), call);
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_function(g, call));
  const bool goes_on = many && !frame_.next.empty() && (frame_.section || !begun);
  if (goes_on) g.empty(grammar::add_choice(g, end, frame_.next), call);
  return g.literal(end, frame_.tail);
}

const SchemaJson* parameters_of(const SchemaJson& function) {
  const auto found = function.find("parameters");
  return found == function.end() || found->is_null() ? nullptr : &*found;
}

Result<NodeId> add_json_arguments(ByteGrammar& g, NodeId from, const SchemaJson& function,
                                  std::vector<std::string>* passed_over) {
  const SchemaJson* parameters = parameters_of(function);
  if (parameters == nullptr) return grammar::JsonGrammar(g).object(from);
  return grammar::JsonSchemaCompiler(g, *parameters, passed_over).compile(from);
}

}  // namespace moestro::orchestrator
