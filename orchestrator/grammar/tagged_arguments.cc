#include "orchestrator/grammar/tagged_arguments.h"

#include <nlohmann/json.hpp>

#include "orchestrator/grammar/choice_grammar.h"
#include "orchestrator/grammar/plain_parameters.h"
#include "orchestrator/grammar/tagged_value.h"
#include "orchestrator/grammar/text_before.h"

namespace moestro::grammar {

namespace {

/// Whether a new line behind a key is none of the value.
bool may_part(const ArgumentTags& tags) { return tags.lines || !tags.value_begin.empty(); }

class TaggedArguments {
 public:
  TaggedArguments(ByteGrammar& g, const SchemaJson& root, const ArgumentTags& tags, std::vector<std::string>* passed)
      : g_(g), root_(root), tags_(tags), compiler_(g, root, passed) {}

  Result<NodeId> add(NodeId from) {
    MOESTRO_ASSIGN_OR_RETURN(const ObjectMembers parameters,
                             plain_parameters(root_, compiler_, "for arguments between tags"));
    NodeId at = from;
    for (const auto& [name, schema, path] : parameters.properties) {
      if (const size_t bad = name.find_first_of(std::string("<") + tags_.key_end.front()); bad != std::string::npos)
        return schema_error(Code::kUnsupported, path,
                            std::string("a name with '") + name[bad] + "' cannot be written between tags");
      const NodeId begin = g_.add(), next = g_.add();
      g_.empty(at, begin);
      const NodeId behind_key = g_.literal(begin, tags_.key_begin + name + tags_.key_end);
      const NodeId value = g_.literal(may_part(tags_) ? add_new_line(g_, behind_key) : behind_key, tags_.value_begin);
      MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_value(value, *schema, path));
      g_.empty(add_new_line(g_, end), next);
      if (!parameters.required.contains(name)) g_.empty(at, next);
      at = next;
    }
    return at;
  }

 private:
  /// A value and the tag behind it.
  Result<NodeId> add_value(NodeId from, const SchemaJson& schema, const std::string& path) {
    const TaggedValue value = tagged_value(schema, root_);
    if (!value.text) {
      MOESTRO_ASSIGN_OR_RETURN(const NodeId end, compiler_.compile_at(from, schema, path));
      return add_end(end);
    }
    const SchemaJson* at = referenced(schema, root_);
    if (at == nullptr) MOESTRO_RETURN_IF_ERROR(compiler_.cannot(path, "a reference that cannot be followed"));
    if (at != nullptr && at->is_object()) {
      for (const std::string& key : unknown_keywords(*at))
        MOESTRO_RETURN_IF_ERROR(compiler_.cannot(path, "'" + key + "' is not supported"));
      const bool texts = value.json.empty();
      if (texts && at->contains("enum")) return add_texts(from, (*at)["enum"], path);
      if (texts && at->contains("const")) return add_texts(from, SchemaJson::array({(*at)["const"]}), path);
    }
    if (value.shaped)
      MOESTRO_RETURN_IF_ERROR(compiler_.cannot(path, "a string between tags can only have a type, 'enum' or 'const'"));
    return add_text_before(g_, from, tags_.value_end);
  }

  Result<NodeId> add_texts(NodeId from, const SchemaJson& list, const std::string& path) {
    const auto texts = list.get<std::vector<std::string>>();
    for (const std::string& text : texts)
      if (text.find(tags_.value_end) != std::string::npos)
        return schema_error(Code::kUnsupported, path, "a string with " + tags_.value_end + " ends its own tag");
    return add_end(add_choice(g_, from, texts));
  }

  NodeId add_end(NodeId from) {
    return g_.literal(tags_.lines ? add_new_line(g_, from) : from, tags_.value_end);
  }

  ByteGrammar& g_;
  const SchemaJson& root_;
  const ArgumentTags& tags_;
  JsonSchemaCompiler compiler_;
};

}  // namespace

NodeId add_new_line(ByteGrammar& grammar, NodeId from) {
  const NodeId to = grammar.literal(from, "\n");
  grammar.empty(from, to);
  return to;
}

Result<NodeId> add_tagged_arguments(ByteGrammar& grammar, NodeId from, const SchemaJson& schema,
                                    const ArgumentTags& tags, std::vector<std::string>* passed_over) {
  return TaggedArguments(grammar, schema, tags, passed_over).add(from);
}

}  // namespace moestro::grammar
