#include "orchestrator/grammar/keyword_arguments.h"

#include <algorithm>

#include "orchestrator/grammar/plain_parameters.h"

namespace moestro::grammar {

namespace {

bool is_keyword(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

Result<NodeId> add_keyword_arguments(ByteGrammar& g, NodeId from, const SchemaJson& schema,
                                     std::vector<std::string>* passed_over) {
  JsonSchemaCompiler compiler(g, schema, passed_over);
  MOESTRO_ASSIGN_OR_RETURN(const ObjectMembers parameters,
                           plain_parameters(schema, compiler, "for arguments in Python's syntax"));
  NodeId none = from, some = g.add();  // by what has been said: no argument yet, or some
  bool may_be_none = true, may_be_some = false;
  for (const auto& [name, value, path] : parameters.properties) {
    if (!is_keyword(name)) return schema_error(Code::kUnsupported, path, "it is no name of an argument in Python");
    const NodeId begin = g.add(), said = g.add();
    if (may_be_none) g.empty(g.literal(none, name + "="), begin);
    if (may_be_some) g.empty(g.literal(some, ", " + name + "="), begin);
    MOESTRO_ASSIGN_OR_RETURN(const NodeId end, compiler.compile_at(begin, *value, path));
    g.empty(end, said);
    const bool required = parameters.required.contains(name);
    if (may_be_some && !required) g.empty(some, said);
    may_be_none = may_be_none && !required;
    may_be_some = true;
    some = said;
  }
  const NodeId to = g.add();
  if (may_be_none) g.empty(none, to);
  if (may_be_some) g.empty(some, to);
  return to;
}

}  // namespace moestro::grammar
