#pragma once
// JSON schemas as byte grammars. Generated text satisfies the schema. A keyword that cannot be guaranteed is refused by
// name, or ignored if the schema is not strict.
//
// Objects have their properties in the order of the schema, then those that are only required, and others only if
// additionalProperties is true or a schema.

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/status.h"
#include "orchestrator/grammar/json_grammar.h"

namespace moestro::grammar {

class JsonSchemaCompiler {
 public:
  using Json = nlohmann::ordered_json;

  /// `root` is what references ("#/...") are resolved in. `passed_over`: if given, gets the name and place of keywords
  /// that cannot be guaranteed, instead of refusing them. All outlive it.
  JsonSchemaCompiler(ByteGrammar& grammar, const Json& root, std::vector<std::string>* passed_over = nullptr)
      : g_(grammar), json_(grammar), root_(root), passed_over_(passed_over) {}

  /// A value that satisfies the root schema. kUnsupported names a keyword and its place; kInvalidArgument: not a valid
  /// schema.
  Result<NodeId> compile(NodeId from) { return add(from, root_, ""); }
  /// The same of a part of the root schema, which stands at `path`.
  Result<NodeId> compile_at(NodeId from, const Json& part, const std::string& path) { return add(from, part, path); }
  /// Refuses what cannot be guaranteed, or notes it in `passed_over`.
  Status cannot(const std::string& path, const std::string& what);

 private:
  Result<NodeId> add(NodeId from, const Json& schema, const std::string& path);
  Result<NodeId> add_any_of(NodeId from, const Json& list, const std::string& path);
  Result<NodeId> add_literals(NodeId from, const Json& schema, const std::string& path);
  Result<NodeId> add_reference(NodeId from, const Json& reference, const std::string& path);
  Result<NodeId> add_types(NodeId from, const std::vector<std::string>& types, const Json& schema,
                           const std::string& path);
  /// kNoValue: the keywords leave no value of this type.
  Result<NodeId> add_type(NodeId from, const std::string& type, const Json& schema, const std::string& path);
  Result<NodeId> add_string(NodeId from, const Json& schema, const std::string& path);
  Result<std::optional<std::string>> pattern_of(const Json& schema, const std::string& path, bool has_length);
  Result<NodeId> add_integer(NodeId from, const Json& schema, const std::string& path);
  Result<NodeId> add_number(NodeId from, const Json& schema, const std::string& path);
  Result<NodeId> add_array(NodeId from, const Json& schema, const std::string& path);
  Result<NodeId> add_object(NodeId from, const Json& schema, const std::string& path);
  Result<std::pair<NodeId, NodeId>> add_property(const std::string& key, const Json& schema, const std::string& path);

  ByteGrammar& g_;
  JsonGrammar json_;
  const Json& root_;
  std::vector<std::string>* const passed_over_;
  std::map<std::string, NodeId> rules_;  ///< of references
  int depth_ = 0;
};

}  // namespace moestro::grammar
