#include "orchestrator/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "orchestrator/grammar/object_members.h"
#include "orchestrator/grammar/pattern.h"
#include "orchestrator/grammar/schema_keywords.h"

namespace moestro::grammar {

namespace {
constexpr int kNestingMax = 64;
constexpr int64_t kItemsPlain = 1000;  // so many items are not what makes a schema too large
constexpr const char* kTooManyNodes = "the schema as a whole is too large: it has too many properties or alternatives";

std::string kind(const SchemaJson& value) {
  const double number = value.is_number_float() ? value.get<double>() : 0;
  if (value.is_number_integer() || (value.is_number_float() && std::floor(number) == number)) return "integer";
  return value.type_name();
}
bool is_of(const SchemaJson& value, const std::vector<std::string>& types) {
  const std::string k = kind(value);
  return types.empty() || std::any_of(types.begin(), types.end(), [&](const std::string& t) {
           return t == k || (t == "number" && k == "integer");
         });
}
}  // namespace

Status JsonSchemaCompiler::cannot(const std::string& path, const std::string& what) {
  const Status refusal = schema_error(Code::kUnsupported, path, what);
  if (passed_over_ == nullptr) return refusal;
  passed_over_->push_back(refusal.message());
  return Status::ok();
}

Result<NodeId> JsonSchemaCompiler::add(NodeId from, const Json& schema, const std::string& path) {
  if (schema == true || (schema.is_object() && schema.empty())) return json_.value(from);
  if (!schema.is_object()) return schema_error(Code::kInvalidArgument, path, "it must be an object or true");
  for (const std::string& key : unknown_keywords(schema))
    MOESTRO_RETURN_IF_ERROR(cannot(path, "'" + key + "' is not supported"));
  if (g_.too_large()) return schema_error(Code::kUnsupported, path, kTooManyNodes);
  struct Deeper {
    int& depth;
    explicit Deeper(int& d) : depth(++d) {}
    ~Deeper() { --depth; }
  } const deeper(depth_);
  if (depth_ > kNestingMax) {
    MOESTRO_RETURN_IF_ERROR(cannot(path, "it is nested deeper than " + std::to_string(kNestingMax) + " levels"));
    return json_.value(from);
  }

  // A word that chooses the value by itself stands alone, but for types that it may repeat and remarks.
  const std::pair<const char*, Result<NodeId> (JsonSchemaCompiler::*)(NodeId, const Json&, const std::string&)>
      kAlone[]{{"$ref", &JsonSchemaCompiler::add_reference}, {"anyOf", &JsonSchemaCompiler::add_any_of},
               {"oneOf", &JsonSchemaCompiler::add_any_of},   {"allOf", &JsonSchemaCompiler::add_any_of},
               {"enum", &JsonSchemaCompiler::add_literals},  {"const", &JsonSchemaCompiler::add_literals}};
  for (const auto& [key, member] : kAlone) {
    const auto it = schema.find(key);
    if (it == schema.end()) continue;
    if (std::string_view(key) == "allOf" && (!it->is_array() || it->size() != 1)) {
      MOESTRO_RETURN_IF_ERROR(cannot(path, "'allOf' of more than one schema"));
      continue;
    }
    const bool literals = member == &JsonSchemaCompiler::add_literals;
    for (const auto& [other, value] : schema.items())
      if (other != key && (shapes_values(other) || (other == "type" && !literals)))
        MOESTRO_RETURN_IF_ERROR(cannot(path, "'" + std::string(key) + "' together with '" + other + "'"));
    if (std::string_view(key) == "oneOf" && it->is_array())
      if (const std::string why = overlap_of(*it); !why.empty()) MOESTRO_RETURN_IF_ERROR(cannot(path, why));
    return (this->*member)(from, literals ? schema : *it, path + "/" + key);
  }
  MOESTRO_ASSIGN_OR_RETURN(const auto types, types_of(schema, path));
  if (types.empty()) return json_.value(from);
  return add_types(from, types, schema, path);
}

/// A type without a value adds nothing, as long as another one has some.
Result<NodeId> JsonSchemaCompiler::add_types(NodeId from, const std::vector<std::string>& types, const Json& schema,
                                             const std::string& path) {
  const NodeId to = g_.add();
  Status none;
  bool any = false;
  for (const std::string& type : types) {
    const NodeId begin = g_.add();
    const auto end = add_type(begin, type, schema, path);
    if (end.is_ok()) {
      g_.empty(from, begin);
      g_.empty(*end, to);
      any = true;
    } else if (end.status().code() != kNoValue) {
      return end.status();
    } else if (none.is_ok()) {
      none = Status(Code::kInvalidArgument, end.status().message());
    }
  }
  return any ? Result<NodeId>(to) : Result<NodeId>(none);
}

Result<NodeId> JsonSchemaCompiler::add_any_of(NodeId from, const Json& list, const std::string& path) {
  if (!list.is_array() || list.empty())
    return schema_error(Code::kInvalidArgument, path, "it must be a list of schemas");
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
  MOESTRO_ASSIGN_OR_RETURN(const auto types, schema.contains("type")
                                                 ? types_of(schema, path)
                                                 : Result<std::vector<std::string>>(std::vector<std::string>{}));
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
  if (name != "#" && !name.starts_with("#/")) {
    MOESTRO_RETURN_IF_ERROR(cannot(path, "only references into the schema itself (#/...) are supported"));
    return json_.value(from);
  }
  const NodeId to = g_.add();
  if (const auto known = rules_.find(name); known != rules_.end()) {
    g_.call(from, known->second, to);
    return to;
  }
  const Json* target = target_of(name, root_);
  if (target == nullptr) return schema_error(Code::kInvalidArgument, path, "'" + name + "' is not in the schema");
  const NodeId begin = g_.add();
  rules_[name] = begin;
  g_.call(from, begin, to);
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(begin, *target, name));
  g_.end(end);
  return to;
}

Result<NodeId> JsonSchemaCompiler::add_type(NodeId from, const std::string& type, const Json& schema,
                                            const std::string& path) {
  if (type == "string") return add_string(from, schema, path);
  if (type == "integer") return add_integer(from, schema, path);
  if (type == "array") return add_array(from, schema, path);
  if (type == "object") return add_object(from, schema, path);
  if (type == "null") return g_.literal(from, "null");
  if (type == "number") return add_number(from, schema, path);
  const NodeId to = g_.add();
  for (const char* word : {"true", "false"}) g_.empty(g_.literal(from, word), to);
  return to;
}

Result<NodeId> JsonSchemaCompiler::add_string(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto least, whole_number(schema, "minLength", path));
  MOESTRO_ASSIGN_OR_RETURN(const auto most, whole_number(schema, "maxLength", path, least.value_or(0)));
  MOESTRO_ASSIGN_OR_RETURN(const auto pattern, pattern_of(schema, path, least || most));
  if (pattern) {
    const NodeId begin = g_.add();
    const auto end = add_pattern(g_, begin, *pattern);
    if (end.is_ok()) return g_.empty(from, begin), end;
    if (end.status().code() != Code::kUnsupported)
      return schema_error(end.status().code(), path, "'pattern': " + end.status().message());
    MOESTRO_RETURN_IF_ERROR(cannot(path, "'pattern': " + end.status().message()));
  }
  const size_t before = g_.nodes().size();
  const NodeId end = json_.string(from, least.value_or(0), most);
  if (!g_.too_large()) return end;
  const bool its_own = g_.nodes().size() - before > ByteGrammar::kNodesMax / 2;
  return schema_error(Code::kUnsupported, path, its_own ? "'minLength' or 'maxLength' is too large" : kTooManyNodes);
}

/// What "pattern" or "format" wants of a string, as a pattern. One such word at a time is followed.
Result<std::optional<std::string>> JsonSchemaCompiler::pattern_of(const Json& schema, const std::string& path,
                                                                  bool has_length) {
  std::optional<std::string> pattern;
  for (const char* key : {"pattern", "format"}) {
    if (!schema.contains(key)) continue;
    if (!schema[key].is_string())
      return schema_error(Code::kInvalidArgument, path, "'" + std::string(key) + "' must be a string");
    const auto text = schema[key].get<std::string>();
    const auto meant = std::string_view(key) == "format" ? pattern_of_format(text) : std::optional(text);
    if (!meant) {
      MOESTRO_RETURN_IF_ERROR(cannot(path, "the format '" + text + "' is not supported"));
    } else if (pattern || has_length) {
      MOESTRO_RETURN_IF_ERROR(cannot(path, "'" + std::string(key) + "' together with another bound of a string"));
    } else {
      pattern = meant;
    }
  }
  return pattern;
}

Result<NodeId> JsonSchemaCompiler::add_integer(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto bounds, integer_bounds(schema, path));
  if (!bounds) {
    const std::string last = std::to_string(kInteger64Max);
    MOESTRO_RETURN_IF_ERROR(cannot(path, "its bounds leave no integer from -" + last + " to " + last +
                                             "; larger ones are not supported"));
    return json_.integer(from);
  }
  MOESTRO_ASSIGN_OR_RETURN(const double divisor, divisor_of(schema, path));
  if (divisor == 0 || divisor == 1) return json_.integer(from, bounds->first, bounds->second);
  if (divisor != std::floor(divisor) || divisor > static_cast<double>(kDivisorMax)) {
    MOESTRO_RETURN_IF_ERROR(
        cannot(path, "'multipleOf' is supported for whole numbers up to " + std::to_string(kDivisorMax)));
    return json_.integer(from, bounds->first, bounds->second);
  }
  const NumberRange range{.least = NumberBound::of(bounds->first),
                          .most = NumberBound::of(bounds->second),
                          .digits = kIntegerDigits,
                          .fraction_digits = 0,
                          .divisor = static_cast<int64_t>(divisor)};
  if (const auto end = grammar::add_number(g_, from, range)) return *end;
  return schema_error(kNoValue, path, "no multiple of 'multipleOf' is within its bounds");
}

Result<NodeId> JsonSchemaCompiler::add_number(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(NumberRange range, number_bounds(schema, path));
  MOESTRO_ASSIGN_OR_RETURN(const double divisor, divisor_of(schema, path));
  if (divisor == std::floor(divisor) && divisor > 0 && divisor <= static_cast<double>(kDivisorMax)) {
    range.fraction_digits = 0;
    range.divisor = static_cast<int64_t>(divisor);
  } else if (divisor != 0) {
    MOESTRO_RETURN_IF_ERROR(
        cannot(path, "'multipleOf' is supported for whole numbers up to " + std::to_string(kDivisorMax)));
  }
  if (!range.least && !range.most && range.divisor == 1 && range.fraction_digits > 0) return json_.number(from);
  if (const auto end = grammar::add_number(g_, from, range)) return *end;
  return schema_error(kNoValue, path, "no number of " + std::to_string(kExactDigits) + " digits is within its bounds");
}

Result<NodeId> JsonSchemaCompiler::add_array(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const auto least, whole_number(schema, "minItems", path));
  MOESTRO_ASSIGN_OR_RETURN(const auto most, whole_number(schema, "maxItems", path, least.value_or(0)));
  const Json first = schema.value("prefixItems", Json::array()), items = schema.value("items", Json(true));
  if (!first.is_array()) return schema_error(Code::kInvalidArgument, path, "'prefixItems' must be a list of schemas");
  const bool more = items != false;
  const int64_t bound =
      !more ? std::min<int64_t>(static_cast<int64_t>(first.size()), most.value_or(INT64_MAX)) : most.value_or(-1);
  if (bound >= 0 && bound < least.value_or(0))
    return schema_error(kNoValue, path, "'minItems' are more than it can have");
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
    if (g_.too_large())
      return schema_error(Code::kUnsupported, path,
                          unrolled > kItemsPlain ? "'minItems' or 'maxItems' is too large" : kTooManyNodes);
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
Result<std::pair<NodeId, NodeId>> JsonSchemaCompiler::add_property(const std::string& key, const Json& schema,
                                                                   const std::string& path) {
  const NodeId begin = g_.add();
  const NodeId colon = g_.literal(begin, Json(key).dump(-1, ' ', false, Json::error_handler_t::replace) + ":");
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add(json_.white(colon), schema, path));
  return std::pair(begin, end);
}

Result<NodeId> JsonSchemaCompiler::add_object(NodeId from, const Json& schema, const std::string& path) {
  MOESTRO_ASSIGN_OR_RETURN(const ObjectMembers members, object_members(schema, *this, path));
  const NodeId to = g_.add();
  NodeId nothing_yet = json_.white(g_.literal(from, "{")),
         something = g_.add();  // by whether a comma comes before the next
  for (const auto& [name, property, at] : members.properties) {
    MOESTRO_ASSIGN_OR_RETURN(const auto part, add_property(name, *property, at));
    const NodeId next_nothing = g_.add(), next_something = g_.add();
    g_.empty(nothing_yet, part.first);
    g_.empty(json_.white(g_.literal(something, ",")), part.first);
    g_.empty(part.second, next_something);
    if (!members.required.contains(name)) {
      g_.empty(nothing_yet, next_nothing);
      g_.empty(something, next_something);
    }
    nothing_yet = next_nothing;
    something = next_something;
  }
  const Json others = schema.value("additionalProperties", Json(false));
  if (others != false) {
    const NodeId begin = g_.add();
    const NodeId value = json_.white(g_.literal(json_.other_key(begin, members.names), ":"));
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
