#include "orchestrator/grammar/json_schema.h"

#include <algorithm>
#include <set>

#include "orchestrator/grammar/pattern.h"
#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

namespace {
constexpr int kNestingMax = 64;

std::string kind(const SchemaJson& value) {
  if (value.is_number_integer() || (value.is_number_float() && value.get<double>() == static_cast<double>(static_cast<int64_t>(value.get<double>()))))
    return "integer";
  return value.type_name();
}
bool is_of(const SchemaJson& value, const std::vector<std::string>& types) {
  const std::string k = kind(value);
  return types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& t) { return t == k || (t == "number" && k == "integer"); });
}
}  // namespace

Result<NodeId> JsonSchemaCompiler::add(NodeId from, const Json& schema, const std::string& path) {
  if (schema == true || (schema.is_object() && schema.empty())) return json_.value(from);
  MOESTRO_RETURN_IF_ERROR(check_keywords(schema, path));
  if (g_.too_large()) return schema_error(Code::kUnsupported, path, "it is too large");
  struct Deeper {
    int& depth;
    explicit Deeper(int& d) : depth(++d) {}
    ~Deeper() { --depth; }
  } const deeper(depth_);
  if (depth_ > kNestingMax) return schema_error(Code::kUnsupported, path, "it is nested deeper than " + std::to_string(kNestingMax) + " levels");

  // A word that chooses the value by itself stands alone, but for types that it may repeat and remarks.
  const std::pair<const char*, Result<NodeId> (JsonSchemaCompiler::*)(NodeId, const Json&, const std::string&)> kAlone[]{
      {"$ref", &JsonSchemaCompiler::add_reference}, {"anyOf", &JsonSchemaCompiler::add_any_of}, {"oneOf", &JsonSchemaCompiler::add_any_of},
      {"allOf", &JsonSchemaCompiler::add_any_of},   {"enum", &JsonSchemaCompiler::add_literals}, {"const", &JsonSchemaCompiler::add_literals}};
  static const std::set<std::string> kShaping{"anyOf", "oneOf", "allOf", "$ref", "enum", "const", "properties", "required", "additionalProperties",
                                              "items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format",
                                              "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
  for (const auto& [key, member] : kAlone) {
    const auto it = schema.find(key);
    if (it == schema.end()) continue;
    const bool literals = member == &JsonSchemaCompiler::add_literals;
    for (const auto& [other, value] : schema.items())
      if (other != key && (kShaping.contains(other) || (other == "type" && !literals)))
        return schema_error(Code::kUnsupported, path, "'" + std::string(key) + "' beside '" + other + "'");
    if (std::string_view(key) == "allOf" && (!it->is_array() || it->size() != 1))
      return schema_error(Code::kUnsupported, path, "'allOf' of more than one schema");
    if (std::string_view(key) == "oneOf" && it->is_array()) MOESTRO_RETURN_IF_ERROR(check_one_of(*it, path));
    return (this->*member)(from, literals ? schema : *it, path + "/" + key);
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto types, types_of(schema, path));
  if (types.empty()) return json_.value(from);
  const NodeId to = g_.add();
  for (const std::string& type : types) {
    const NodeId begin = g_.add();
    g_.empty(from, begin);
    MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_type(begin, type, schema, path));
    g_.empty(end, to);
  }
  return to;
}

Result<NodeId> JsonSchemaCompiler::add_any_of(NodeId from, const Json& list, const std::string& path) {
  if (!list.is_array() || list.empty()) return schema_error(Code::kInvalidArgument, path, "it must be a list of schemas");
  const NodeId to = g_.add();
  for (size_t i = 0; i < list.size(); ++i) {
    const NodeId begin = g_.add();
    g_.empty(from, begin);
    MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(begin, list[i], path + "/" + std::to_string(i)));
    g_.empty(end, to);
  }
  return to;
}

Result<NodeId> JsonSchemaCompiler::add_literals(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto types, schema.contains("type") ? types_of(schema, path) : Result<std::vector<std::string>>(std::vector<std::string>{}));
  const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  if (!values.is_array()) return schema_error(Code::kInvalidArgument, path, "it must be a list");
  const NodeId to = g_.add();
  bool any = false;
  for (const Json& value : values) {
    if (!is_of(value, types)) continue;
    any = true;
    g_.empty(g_.literal(from, value.dump(-1, ' ', false, Json::error_handler_t::replace)), to);
  }
  if (!any) return schema_error(Code::kInvalidArgument, path, "it has no value of the schema's type");
  return to;
}

/// Each referenced schema is made once and called: so it may speak of itself.
Result<NodeId> JsonSchemaCompiler::add_reference(NodeId from, const Json& reference, const std::string& path) {
  if (!reference.is_string()) return schema_error(Code::kInvalidArgument, path, "it must be a string");
  const auto name = reference.get<std::string>();
  if (name != "#" && !name.starts_with("#/")) return schema_error(Code::kUnsupported, path, "only references into the schema itself (#/...) are");
  const NodeId to = g_.add();
  if (const auto known = rules_.find(name); known != rules_.end()) {
    g_.call(from, known->second, to);
    return to;
  }
  const Json* target = nullptr;
  try {  // the library's own words for a bad pointer are exceptions
    target = &root_.at(Json::json_pointer(name.substr(1)));
  } catch (const nlohmann::json::exception&) {
    return schema_error(Code::kInvalidArgument, path, "'" + name + "' is not in the schema");
  }
  const NodeId begin = g_.add();
  rules_[name] = begin;
  g_.call(from, begin, to);
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(begin, *target, name));
  g_.end(end);
  return to;
}

Result<NodeId> JsonSchemaCompiler::add_type(NodeId from, const std::string& type, const Json& schema, const std::string& path) {
  if (type == "string") return add_string(from, schema, path);
  if (type == "integer") return add_integer(from, schema, path);
  if (type == "array") return add_array(from, schema, path);
  if (type == "object") return add_object(from, schema, path);
  if (type == "null") return g_.literal(from, "null");
  if (type == "number") {
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
      if (schema.contains(key)) return schema_error(Code::kUnsupported, path, "'" + std::string(key) + "' of a number is not supported, of an integer it is");
    return json_.number(from);
  }
  const NodeId to = g_.add();
  for (const char* word : {"true", "false"}) g_.empty(g_.literal(from, word), to);
  return to;
}

Result<NodeId> JsonSchemaCompiler::add_string(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto least, whole_number(schema, "minLength", path));
  MOESTRO_ASSIGN_OR_RETURN(const auto most, whole_number(schema, "maxLength", path, least.value_or(0)));
  std::optional<std::string> pattern;
  for (const char* key : {"pattern", "format"}) {
    if (!schema.contains(key)) continue;
    if (!schema[key].is_string()) return schema_error(Code::kInvalidArgument, path, "'" + std::string(key) + "' must be a string");
    if (pattern || least || most) return schema_error(Code::kUnsupported, path, "'" + std::string(key) + "' beside another bound of a string");
    pattern = schema[key].get<std::string>();
    if (std::string_view(key) == "pattern") continue;
    const auto known = pattern_of_format(*pattern);
    if (!known) return schema_error(Code::kUnsupported, path, "the format '" + *pattern + "' is not supported");
    pattern = known;
  }
  if (!pattern) {
    const NodeId end = json_.string(from, least.value_or(0), most);
    if (g_.too_large()) return schema_error(Code::kUnsupported, path, "'minLength' or 'maxLength' is too large");
    return end;
  }
  auto end = add_pattern(g_, from, *pattern);
  if (!end.is_ok()) return schema_error(end.status().code(), path, "'pattern': " + end.status().message());
  return end;
}

Result<NodeId> JsonSchemaCompiler::add_integer(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto bounds, integer_bounds(schema, path));
  return json_.integer(from, bounds.first, bounds.second);
}

Result<NodeId> JsonSchemaCompiler::add_array(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto least, whole_number(schema, "minItems", path));
  MOESTRO_ASSIGN_OR_RETURN(const auto most, whole_number(schema, "maxItems", path, least.value_or(0)));
  const Json first = schema.value("prefixItems", Json::array()), items = schema.value("items", Json(true));
  if (!first.is_array()) return schema_error(Code::kInvalidArgument, path, "'prefixItems' must be a list of schemas");
  const bool more = items != false;
  const int64_t bound = !more ? std::min<int64_t>(static_cast<int64_t>(first.size()), most.value_or(INT64_MAX)) : most.value_or(-1);
  if (bound >= 0 && bound < least.value_or(0)) return schema_error(Code::kInvalidArgument, path, "'minItems' are more than it can have");
  // Items that are all alike are one rule, called from each place.
  NodeId rule = 0;
  if (more) {
    rule = g_.add();
    MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(rule, items, path + "/items"));
    g_.end(end);
  }
  NodeId at = json_.white(g_.literal(from, "["));
  const NodeId to = g_.add(), closing = g_.add();
  g_.byte(json_.white(closing), to, ']', ']');
  const auto fixed = static_cast<int64_t>(first.size());
  const int64_t unrolled = bound >= 0 ? bound : std::max(least.value_or(0), fixed);
  for (int64_t i = 0; i < unrolled; ++i) {
    if (g_.too_large()) return schema_error(Code::kUnsupported, path, "'minItems' or 'maxItems' is too large");
    if (i >= least.value_or(0)) g_.empty(at, closing);
    if (i > 0) at = json_.white(g_.literal(at, ","));
    if (i < fixed) {
      MOESTRO_ASSIGN_OR_RETURN(at, add(at, first[static_cast<size_t>(i)], path + "/prefixItems/" + std::to_string(i)));
    } else {
      const NodeId behind = g_.add();
      g_.call(at, rule, behind);
      at = behind;
    }
  }
  g_.empty(at, closing);
  if (bound >= 0) return to;
  const NodeId item = g_.add(), behind = g_.add();  // any number more
  if (unrolled == 0) g_.empty(at, item);
  else g_.empty(json_.white(g_.literal(at, ",")), item);
  g_.call(item, rule, behind);
  g_.empty(json_.white(g_.literal(behind, ",")), item);
  g_.empty(behind, closing);
  return to;
}

/// `"key": value`, from its first node to its last.
Result<std::pair<NodeId, NodeId>> JsonSchemaCompiler::add_property(const std::string& key, const Json& schema, const std::string& path) {
  const NodeId begin = g_.add();
  const NodeId colon = g_.literal(begin, Json(key).dump(-1, ' ', false, Json::error_handler_t::replace) + ":");
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(json_.white(colon), schema, path));
  return std::pair(begin, end);
}

Result<NodeId> JsonSchemaCompiler::add_object(NodeId from, const Json& schema, const std::string& path) {
  const Json properties = schema.value("properties", Json::object()), required = schema.value("required", Json::array());
  if (!properties.is_object()) return schema_error(Code::kInvalidArgument, path, "'properties' must be an object of schemas");
  if (!required.is_array()) return schema_error(Code::kInvalidArgument, path, "'required' must be a list of names");
  std::set<std::string> wanted;
  for (const Json& name : required) {
    if (!name.is_string()) return schema_error(Code::kInvalidArgument, path, "'required' must be a list of names");
    if (!properties.contains(name.get<std::string>()))
      return schema_error(Code::kUnsupported, path, "'required' names '" + name.get<std::string>() + "', which is not in 'properties'");
    wanted.insert(name.get<std::string>());
  }
  const NodeId to = g_.add();
  NodeId nothing_yet = json_.white(g_.literal(from, "{")), something = g_.add();  // by whether a comma comes before the next
  for (const auto& [name, property] : properties.items()) {
    MOESTRO_ASSIGN_OR_RETURN(const auto part, add_property(name, property, path + "/properties/" + name));
    const NodeId next_nothing = g_.add(), next_something = g_.add();
    g_.empty(nothing_yet, part.first);
    g_.empty(json_.white(g_.literal(something, ",")), part.first);
    g_.empty(part.second, next_something);
    if (!wanted.contains(name)) {
      g_.empty(nothing_yet, next_nothing);
      g_.empty(something, next_something);
    }
    nothing_yet = next_nothing;
    something = next_something;
  }
  const Json others = schema.value("additionalProperties", Json(false));
  if (others != false) {
    std::vector<std::string> names;
    for (const auto& [name, property] : properties.items()) names.push_back(name);
    const NodeId begin = g_.add();
    const NodeId value = json_.white(g_.literal(json_.other_key(begin, names), ":"));
    MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(value, others, path + "/additionalProperties"));
    g_.empty(nothing_yet, begin);
    g_.empty(json_.white(g_.literal(something, ",")), begin);
    g_.empty(end, something);
  }
  const NodeId closing = g_.add();
  g_.byte(nothing_yet, to, '}', '}');
  g_.empty(something, closing);
  g_.byte(json_.white(closing), to, '}', '}');
  return to;
}

}  // namespace moestro::grammar
