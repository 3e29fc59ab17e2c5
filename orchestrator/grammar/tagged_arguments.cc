#include "orchestrator/grammar/tagged_arguments.h"

#include <algorithm>
#include <set>

#include "orchestrator/grammar/choice_grammar.h"
#include "orchestrator/grammar/json_schema.h"
#include "orchestrator/grammar/tagged_value.h"

namespace moestro::grammar {

namespace {

/// Any text up to the first `end`, which begins with a byte that is not in it again; `end` is read too.
NodeId add_text_before(ByteGrammar& g, NodeId from, const std::string& end) {
  std::vector<NodeId> said(end.size() + 1);  // by how many bytes of `end` have been said
  for (NodeId& node : said) node = g.add();
  g.empty(from, said[0]);
  const auto first = static_cast<uint32_t>(static_cast<unsigned char>(end[0]));
  for (size_t i = 0; i < end.size(); ++i) {
    const auto next = static_cast<uint32_t>(static_cast<unsigned char>(end[i]));
    g.byte(said[i], said[i + 1], static_cast<uint8_t>(next), static_cast<uint8_t>(next));
    if (next != first) g.byte(said[i], said[1], static_cast<uint8_t>(first), static_cast<uint8_t>(first));
    g.code_points(said[i], said[0], {'\t', '\n'});
    uint32_t low = ' ';
    for (const uint32_t other : {std::min(first, next), std::max(first, next)}) {
      if (low < other) g.code_points(said[i], said[0], {low, other - 1});
      low = std::max(low, other + 1);
    }
    g.code_points(said[i], said[0], {low, kCodePointMax});
  }
  return said.back();
}

class TaggedArguments {
 public:
  TaggedArguments(ByteGrammar& g, const SchemaJson& root, const ArgumentTags& tags, std::vector<std::string>* passed)
      : g_(g), root_(root), tags_(tags), compiler_(g, root, passed) {}

  Result<NodeId> add(NodeId from) {
    MOESTRO_RETURN_IF_ERROR(check_root());
    const SchemaJson properties = root_.value("properties", SchemaJson::object());
    MOESTRO_ASSIGN_OR_RETURN(const auto required, required_of(properties));
    NodeId at = from;
    for (const auto& [name, schema] : properties.items()) {
      const std::string path = "/properties/" + name;
      if (name.find('<') != std::string::npos)
        return schema_error(Code::kUnsupported, path, "a name with '<' cannot be written between tags");
      const NodeId begin = g_.add(), next = g_.add();
      g_.empty(at, begin);
      const NodeId behind_key = g_.literal(begin, tags_.key_begin + name + tags_.key_end);
      const NodeId value = g_.literal(add_new_line(g_, behind_key), tags_.value_begin);
      MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_value(value, schema, path));
      g_.empty(add_new_line(g_, end), next);
      if (!required.contains(name)) g_.empty(at, next);
      at = next;
    }
    return at;
  }

 private:
  /// A keyword of the root beyond those of a plain object.
  Status check_root() {
    if (!root_.is_object()) return schema_error(Code::kInvalidArgument, "", "it must be an object");
    MOESTRO_ASSIGN_OR_RETURN(const auto types, types_of(root_, ""));
    if (!types.empty() && types != std::vector<std::string>{"object"})
      return schema_error(Code::kInvalidArgument, "", "the arguments of a call are an object");
    for (const std::string& key : unknown_keywords(root_))
      MOESTRO_RETURN_IF_ERROR(compiler_.cannot("", "'" + key + "' is not supported"));
    for (const auto& [key, value] : root_.items()) {
      const bool plain = key == "properties" || key == "required" || (key == "additionalProperties" && value == false);
      if (shapes_values(key) && !plain)
        MOESTRO_RETURN_IF_ERROR(compiler_.cannot("", "'" + key + "' is not supported for arguments between tags"));
    }
    return Status::ok();
  }

  Result<std::set<std::string>> required_of(const SchemaJson& properties) {
    if (!properties.is_object())
      return schema_error(Code::kInvalidArgument, "", "'properties' must be an object of schemas");
    const SchemaJson list = root_.value("required", SchemaJson::array());
    std::set<std::string> names;
    for (const SchemaJson& name : list.is_array() ? list : SchemaJson::array({list})) {
      if (!name.is_string()) return schema_error(Code::kInvalidArgument, "", "'required' must be a list of names");
      if (!properties.contains(name.get<std::string>()))
        MOESTRO_RETURN_IF_ERROR(compiler_.cannot(
            "", "'required' names '" + name.get<std::string>() + "', which is not in 'properties'"));
      names.insert(name.get<std::string>());
    }
    return names;
  }

  /// A value and the tag behind it.
  Result<NodeId> add_value(NodeId from, const SchemaJson& schema, const std::string& path) {
    const TaggedValue value = tagged_value(schema, root_);
    if (!value.text) {
      MOESTRO_ASSIGN_OR_RETURN(const NodeId end, compiler_.compile_at(from, schema, path));
      return g_.literal(end, tags_.value_end);
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
    return g_.literal(add_choice(g_, from, texts), tags_.value_end);
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
