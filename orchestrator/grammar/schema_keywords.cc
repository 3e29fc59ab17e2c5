#include "orchestrator/grammar/schema_keywords.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "common/percent_decode.h"
#include "orchestrator/grammar/json_grammar.h"

namespace moestro::grammar {

Status schema_error(Code code, const std::string& path, const std::string& what) {
  return Status(code, "the schema" + (path.empty() ? std::string() : " at " + path) + ": " + what);
}

bool shapes_values(const std::string& word) {
  // clang-format off
  static const std::set<std::string> kShaping{
      "anyOf", "oneOf", "allOf", "$ref", "enum", "const", "properties", "required", "additionalProperties", "items",
      "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "minimum", "maximum",
      "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
  // clang-format on
  return kShaping.contains(word);
}

std::vector<std::string> unknown_keywords(const SchemaJson& schema) {
  static const std::set<std::string> kBeside{"type", "$defs", "definitions"};
  static const std::set<std::string> kRemarks{"title",      "description", "default",      "example", "examples",
                                              "deprecated", "readOnly",    "writeOnly",    "$schema", "$id",
                                              "$comment",   "$anchor",     "discriminator"};
  std::vector<std::string> unknown;
  for (const auto& [key, value] : schema.items())
    if (!shapes_values(key) && !kBeside.contains(key) && !kRemarks.contains(key) &&
        !(key == "uniqueItems" && value == false))
      unknown.push_back(key);
  return unknown;
}

namespace {
const SchemaJson* at_pointer(const std::string& pointer, const SchemaJson& root) {
  try {  // the library's own words for a bad pointer are exceptions
    return &root.at(SchemaJson::json_pointer(pointer));
  } catch (const SchemaJson::exception&) {
    return nullptr;
  }
}
}  // namespace

const SchemaJson* target_of(const std::string& reference, const SchemaJson& root) {
  if (!reference.starts_with('#')) return nullptr;
  const std::string pointer = reference.substr(1);
  if (const SchemaJson* target = at_pointer(pointer, root)) return target;  // a key may itself have a '%'
  const auto decoded = percent_decoded(pointer);
  return decoded ? at_pointer(*decoded, root) : nullptr;
}

Result<std::vector<std::string>> types_of(const SchemaJson& schema, const std::string& path) {
  static const std::set<std::string> kTypes{"string", "number", "integer", "boolean", "null", "object", "array"};
  std::vector<std::string> types;
  const auto type = schema.find("type");
  if (type == schema.end()) {
    static const std::pair<const char*, std::vector<const char*>> kImplied[]{
        {"object", {"properties", "required", "additionalProperties"}},
        {"array", {"items", "prefixItems", "minItems", "maxItems"}},
        {"string", {"minLength", "maxLength", "pattern", "format"}},
        {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}}};
    for (const auto& [name, words] : kImplied)
      if (std::any_of(words.begin(), words.end(), [&](const char* w) { return schema.contains(w); }))
        return std::vector<std::string>{name};
    return types;
  }
  for (const SchemaJson& one : type->is_array() ? *type : SchemaJson::array({*type})) {
    if (!one.is_string() || !kTypes.contains(one.get<std::string>()))
      return schema_error(Code::kInvalidArgument, path, "'type' names no type of JSON");
    types.push_back(one.get<std::string>());
  }
  if (types.empty()) return schema_error(Code::kInvalidArgument, path, "'type' is an empty list");
  return types;
}

Result<std::optional<int64_t>> whole_number(const SchemaJson& schema, const char* key, const std::string& path,
                                            int64_t least) {
  const auto it = schema.find(key);
  if (it == schema.end()) return std::optional<int64_t>();
  if (!it->is_number() || it->get<double>() != std::floor(it->get<double>()) ||
      it->get<double>() < static_cast<double>(least) || it->get<double>() > 1e9)
    return schema_error(Code::kInvalidArgument, path,
                        "'" + std::string(key) + "' must be a whole number, " + std::to_string(least) + " to 1e9");
  return std::optional(it->get<int64_t>());
}

namespace {
/// The integer nearest to a bound that satisfies it; the largest of 64 bits if that one is larger, which bounds less.
/// nullopt: all that satisfy it are beyond 64 bits. Doubles have too few digits to compare integers with.
std::optional<int64_t> nearest_integer(const SchemaJson& bound, bool lower, bool exclusive) {
  const int64_t outermost = lower ? -kInteger64Max : kInteger64Max;
  int64_t n = 0;
  int beyond = 0;  // the side on which it leaves 64 bits
  if (bound.is_number_float()) {
    const double value = bound.get<double>(), whole = lower ? std::ceil(value) : std::floor(value);
    exclusive = exclusive && whole == value;
    if (std::fabs(whole) >= 0x1p63) beyond = whole > 0 ? 1 : -1;
    else n = static_cast<int64_t>(whole);
  } else if (bound.is_number_unsigned() && bound.get<uint64_t>() > static_cast<uint64_t>(kInteger64Max)) {
    beyond = 1;
  } else {
    n = bound.get<int64_t>();
    if (n < -kInteger64Max) beyond = -1;
  }
  if (beyond != 0) return (beyond > 0) == lower ? std::nullopt : std::optional(outermost);
  if (!exclusive) return n;
  return n == -outermost ? std::nullopt : std::optional(lower ? n + 1 : n - 1);
}
}  // namespace

Result<std::optional<std::pair<int64_t, int64_t>>> integer_bounds(const SchemaJson& schema, const std::string& path) {
  using Bounds = std::pair<int64_t, int64_t>;
  std::optional<int64_t> least, most;
  for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const auto it = schema.find(key);
    if (it == schema.end()) continue;
    if (!it->is_number())
      return schema_error(Code::kInvalidArgument, path, "'" + std::string(key) + "' must be a number");
    const bool lower = std::string_view(key).ends_with("inimum");
    const auto n = nearest_integer(*it, lower, std::string_view(key).starts_with("exclusive"));
    if (!n) return std::optional<Bounds>();
    if (lower) least = std::max(least.value_or(*n), *n);
    else most = std::min(most.value_or(*n), *n);
  }
  const bool high = least && *least > kIntegerMax, low = most && *most < -kIntegerMax;
  const Bounds bounds(least.value_or(low ? -kInteger64Max : -kIntegerMax),
                      most.value_or(high ? kInteger64Max : kIntegerMax));
  if (bounds.first > bounds.second)
    return schema_error(kNoValue, path, "no integer is within its bounds");
  return std::optional(bounds);
}

Result<NumberRange> number_bounds(const SchemaJson& schema, const std::string& path) {
  struct Bound {
    double value = 0;
    bool exclusive = false;
  };
  std::optional<Bound> least, most;
  for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
    const auto it = schema.find(key);
    if (it == schema.end()) continue;
    if (!it->is_number())
      return schema_error(Code::kInvalidArgument, path, "'" + std::string(key) + "' must be a number");
    const bool lower = std::string_view(key).ends_with("inimum");
    const Bound bound{it->get<double>(), std::string_view(key).starts_with("exclusive")};
    std::optional<Bound>& kept = lower ? least : most;
    const bool tighter = !kept || (lower ? bound.value > kept->value : bound.value < kept->value) ||
                         (bound.value == kept->value && bound.exclusive);
    if (tighter) kept = bound;
  }
  NumberRange range;
  if (least) range.least = NumberBound::of(least->value, least->exclusive);
  if (most) range.most = NumberBound::of(most->value, most->exclusive);
  return range;
}

Result<double> divisor_of(const SchemaJson& schema, const std::string& path) {
  const auto it = schema.find("multipleOf");
  if (it == schema.end()) return 0.0;
  if (!it->is_number() || it->get<double>() <= 0)
    return schema_error(Code::kInvalidArgument, path, "'multipleOf' must be a number above 0");
  return it->get<double>();
}

namespace {
/// The kinds of values that an alternative allows; integers are numbers.
std::set<std::string> kinds_of(const SchemaJson& schema) {
  const auto types = types_of(schema, "");
  if (!types.is_ok() || types->empty()) return {"string", "number", "boolean", "null", "object", "array"};
  std::set<std::string> kinds;
  for (const std::string& t : *types) kinds.insert(t == "integer" ? "number" : t);
  return kinds;
}

/// Compared by value: 1 is 1.0, and an object's members have no order.
std::set<nlohmann::json> values_of(const SchemaJson& schema) {
  if (schema.contains("const")) return {nlohmann::json(schema["const"])};
  if (!schema.contains("enum") || !schema["enum"].is_array()) return {};
  return {schema["enum"].begin(), schema["enum"].end()};
}

template <class T>
bool apart(const std::set<T>& a, const std::set<T>& b) {
  return std::none_of(a.begin(), a.end(), [&](const T& x) { return b.contains(x); });
}

bool required(const SchemaJson& schema, const std::string& name) {
  return schema.contains("required") && schema["required"].is_array() &&
         std::find(schema["required"].begin(), schema["required"].end(), name) != schema["required"].end();
}

/// No value satisfies both: other types, other constants, or a required property that tells them apart.
bool disjoint(const SchemaJson& a, const SchemaJson& b) {
  if (!a.is_object() || !b.is_object()) return false;
  if (const auto x = values_of(a), y = values_of(b); !x.empty() && !y.empty()) return apart(x, y);
  if (a.contains("$ref") || b.contains("$ref")) return false;
  if (apart(kinds_of(a), kinds_of(b))) return true;
  if (!a.contains("properties") || !b.contains("properties") || !a["properties"].is_object() ||
      !b["properties"].is_object())
    return false;
  for (const auto& [name, schema] : a["properties"].items()) {
    if (!b["properties"].contains(name) || !required(a, name) || !required(b, name)) continue;
    if (!schema.is_object() || !b["properties"][name].is_object()) continue;
    const auto x = values_of(schema), y = values_of(b["properties"][name]);
    if (!x.empty() && !y.empty() && apart(x, y)) return true;
  }
  return false;
}
}  // namespace

std::string overlap_of(const SchemaJson& list) {
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (!disjoint(list[i], list[j]))
        return "'oneOf' is supported only where its alternatives cannot be told to overlap: of other types, or with a "
               "required property of other constants; use 'anyOf'";
  return {};
}

namespace {
/// Eight groups, or less with one "::" for the others.
std::string ipv6_pattern(const std::string& group) {
  const auto times = [](const std::string& what, int least, int most) {
    return "(?:" + what + "){" + std::to_string(least) + "," + std::to_string(most) + "}";
  };
  const std::string before = group + ":", behind = ":" + group;
  std::string all =
      "(?:" + times(before, 7, 7) + group + "|" + times(before, 1, 7) + ":|:" + times(behind, 1, 7) + "|::";
  for (int groups = 1; groups <= 6; ++groups) all += "|" + times(before, 1, 7 - groups) + times(behind, groups, groups);
  return all + ")";
}
}  // namespace

std::optional<std::string> pattern_of_format(const std::string& format) {
  static const std::string kLeap = "(?:0[48]|[2468][048]|[13579][26])";  // two digits of a year, or of a century
  static const std::string kDate =
      "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|"
      "02-(?:0[1-9]|1\\d|2[0-8]))|(?:\\d\\d" +
      kLeap + "|" + kLeap + "00)-02-29)";
  static const std::string kTime =
      "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)";
  static const std::string kByte = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
  static const std::string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  static const std::string kHost = kLabel + "(?:\\." + kLabel + "){0,7}";
  static const std::string kUriCharacter = "(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})";
  static const std::string kGroup = "[0-9a-fA-F]{1,4}";
  static const std::map<std::string, std::string> kPatterns{
      {"date", "^" + kDate + "$"},
      {"time", "^" + kTime + "$"},
      {"date-time", "^" + kDate + "T" + kTime + "$"},
      {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
      {"ipv4", "^" + kByte + "(?:\\." + kByte + "){3}$"},
      {"ipv6", "^" + ipv6_pattern(kGroup) + "$"},
      {"hostname", "^" + kHost + "$"},
      {"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,15}://" + kHost + "(?::\\d{1,5})?(?:/" + kUriCharacter + "*)?(?:\\?" +
                  kUriCharacter + "*)?(?:#" + kUriCharacter + "*)?$"},
      {"email", "^[A-Za-z0-9_+-]{1,32}(?:\\.[A-Za-z0-9_+-]{1,32}){0,3}@" + kLabel + "(?:\\." + kLabel + "){1,3}$"}};
  const auto found = kPatterns.find(format);
  return found == kPatterns.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace moestro::grammar
