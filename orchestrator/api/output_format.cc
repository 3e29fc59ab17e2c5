#include "orchestrator/api/output_format.h"

#include <algorithm>

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

using Kind = OutputFormat::Kind;

struct FormatField {
  const char* name;
  Kind kind;
};
/// Of the request: vLLM's and llama.cpp's.
constexpr FormatField kFormatFields[]{{"guided_json", Kind::kJsonSchema}, {"guided_regex", Kind::kRegex},
                                      {"guided_choice", Kind::kChoice},   {"guided_grammar", Kind::kGrammar},
                                      {"json_schema", Kind::kJsonSchema}, {"grammar", Kind::kGrammar}};
/// Of vLLM's structured_outputs.
constexpr FormatField kStructuredFields[]{
    {"json", Kind::kJsonSchema}, {"regex", Kind::kRegex}, {"choice", Kind::kChoice}, {"grammar", Kind::kGrammar}};

/// The value of a field; nothing if it is absent or, with an error of `f`, wrong.
std::optional<json> format_value(FieldReader& f, const FormatField& of) {
  const std::string name = of.name;
  const auto refuse = [&](const std::string& why) {
    f.fail(bad_request("'" + name + "' " + why, name));
    return std::nullopt;
  };
  const json* value = f.field(name);
  if (value == nullptr) return std::nullopt;
  if (of.kind == Kind::kJsonSchema) {
    if (value->is_object()) return *value;
    if (!value->is_string()) return refuse("must be a schema: an object, or its text");
    auto parsed = parse_body(value->get_ref<const std::string&>());
    if (auto* schema = std::get_if<json>(&parsed)) return std::move(*schema);
    return refuse("is a text that is not a JSON object");
  }
  if (of.kind == Kind::kChoice) {
    const bool texts = value->is_array() && !value->empty() &&
                       std::all_of(value->begin(), value->end(), [](const json& one) { return one.is_string(); });
    return texts ? std::optional(*value) : refuse("must be a list of strings, at least one");
  }
  const auto text = f.string(name);
  // llama.cpp's server takes an empty grammar for none.
  if (!text || (of.kind == Kind::kGrammar && text->empty())) return std::nullopt;
  return json(*text);
}

void ask_for(FieldReader& f, CompletionRequest& r, OutputFormat format) {
  if (r.output_format.kind != Kind::kText)
    return f.fail(bad_request("'" + r.output_format.field + "' and '" + format.field +
                                  "' both say what the answer must be; give one of them",
                              format.field));
  r.output_format = std::move(format);
}

/// The schema of {"type": "json_schema"}: OpenAI's object, or in its place llama.cpp's bare "schema".
std::optional<json> schema_of_format(FieldReader& format) {
  const auto refuse = [&](const std::string& why) {
    format.fail(bad_request(why, "json_schema"));
    return std::nullopt;
  };
  const json *schema = format.field("json_schema"), *bare = format.field("schema");
  if (schema != nullptr && bare != nullptr) return refuse("'json_schema' and 'schema' are both given; give one");
  if (bare != nullptr) return *bare;
  if (schema == nullptr || !schema->is_object())
    return refuse("'json_schema' must be an object with 'name' and 'schema'");
  FieldReader s(*schema, format, "json_schema");
  const auto name = s.string("name");
  s.ignore("description");
  (void)s.boolean("strict");  // what is generated follows the schema either way
  const json* body = s.field("schema");
  // Where there is no schema, what is not known may be one: without it, any JSON would do.
  body == nullptr ? s.refuse_unknown() : s.settle_unknown();
  if (s.error()) return format.fail(*s.error()), std::nullopt;
  if (!name) return refuse("'json_schema' has no 'name'");
  return body == nullptr ? json(true) : *body;
}

/// An error within an object is one of the field that holds it.
void fail_within(FieldReader& f, const char* field, const ApiError& error) {
  ApiError e = error;
  e.message = "'" + std::string(field) + "': " + e.message;
  e.param = field;
  f.fail(e);
}

void read_response_format(FieldReader& f, CompletionRequest& r) {
  constexpr const char* kField = "response_format";
  const json* format = f.field(kField);
  if (format == nullptr) return;
  if (!format->is_object()) return f.fail(bad_request("'response_format' must be an object with a 'type'", kField));
  FieldReader o(*format, f, kField);
  const auto type = o.string("type");
  std::optional<json> schema;
  if (type == "json_schema") {
    schema = schema_of_format(o);
  } else if (type == "json_object") {
    if (const json* more = o.field("schema")) schema = *more;  // as llama.cpp's server has it
  } else if (type != "text") {
    o.fail(bad_request("the 'type' is none of \"text\", \"json_object\" and \"json_schema\""));
  }
  for (const char* of_schemas : {"schema", "json_schema"})
    if (!schema) o.only(of_schemas, nullptr, "not with this 'type'; leave it out");
  o.settle_unknown();
  if (o.error()) return fail_within(f, kField, *o.error());
  if (schema) return ask_for(f, r, {Kind::kJsonSchema, std::move(*schema), kField});
  if (type == "json_object") ask_for(f, r, {Kind::kJsonObject, nullptr, kField});
}

void read_structured_outputs(FieldReader& f, CompletionRequest& r) {
  constexpr const char* kField = "structured_outputs";
  const json* object = f.field(kField);
  if (object == nullptr) return;
  if (!object->is_object()) return f.fail(bad_request("'structured_outputs' must be an object", kField));
  FieldReader s(*object);
  std::vector<OutputFormat> asked;
  for (const FormatField& field : kStructuredFields)
    if (auto value = format_value(s, field)) asked.push_back({field.kind, std::move(*value), kField});
  if (s.boolean("json_object").value_or(false)) asked.push_back({Kind::kJsonObject, nullptr, kField});
  s.only("structural_tag", "", "not supported; use 'tools', or 'grammar'");
  s.only("whitespace_pattern", "", "not supported; leave it out");
  s.only("disable_any_whitespace", false, "only false is supported");
  s.only("disable_additional_properties", false, "only false is supported; say so in the schema");
  s.ignore("disable_fallback");
  s.refuse_unknown();
  if (!s.error() && asked.size() != 1)
    s.fail(bad_request("it must have one of json, regex, choice, grammar and json_object"));
  if (s.error()) return fail_within(f, kField, *s.error());
  ask_for(f, r, std::move(asked[0]));
}

}  // namespace

void read_output_format(FieldReader& f, CompletionRequest& r) {
  read_response_format(f, r);
  for (const FormatField& field : kFormatFields)
    if (auto value = format_value(f, field)) ask_for(f, r, {field.kind, std::move(*value), field.name});
  read_structured_outputs(f, r);
  f.ignore("guided_decoding_backend");
  f.only("guided_whitespace_pattern", "", "not supported; leave it out");
}

}  // namespace moestro::orchestrator
