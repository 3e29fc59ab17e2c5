#include "orchestrator/dialects/responses_request.h"

#include "orchestrator/dialects/dialect_text.h"
#include "orchestrator/dialects/responses_items.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

constexpr FieldName kResponsesNames[]{
    {"messages", "input"}, {"max_tokens", "max_output_tokens"}, {"response_format", "text.format"}};

class ResponsesReader {
 public:
  ResponsesReader(const json& body, bool lenient) : f_(body, lenient ? &r_.chat.ignored : nullptr) {
    r_.chat.in_order = true;
  }
  std::variant<ResponsesRequest, ApiError> read();

 private:
  void fail(const std::string& field, const std::string& why) { f_.fail(bad_request("'" + field + "' " + why, field)); }
  json& chat() { return r_.chat.body; }
  void read_text();
  json known_of_format(const std::string& type, json format);
  void read_format(const json& format);
  void read_tools();
  void read_tool_choice();
  void read_numbers();
  void read_reasoning();
  void read_off();

  ResponsesRequest r_{{json::object(), true, false, {}}, json::array(), json::object(), "", "", true, 0};
  FieldReader f_;  ///< names in it what it ignores
};

/// Names members of a format that are ignored as this API calls them. What may hold a schema is left for the chat's
/// reader, as all is that is to be refused.
json ResponsesReader::known_of_format(const std::string& type, json format) {
  const bool schema = type == "json_schema";
  if (f_.ignored() == nullptr || (schema && !format.contains("schema"))) return format;
  const std::vector<std::string_view> known =
      schema ? std::vector<std::string_view>{"type", "name", "schema", "strict", "description"}
             : std::vector<std::string_view>{"type", "schema", "json_schema"};
  settle_members(f_, "text.format", format, known);
  json kept = json::object();
  for (const std::string_view name : known)
    if (const auto member = format.find(name); member != format.end()) kept[std::string(name)] = std::move(*member);
  return kept;
}

void ResponsesReader::read_format(const json& format) {
  const std::string type = format.is_object() ? string_at(format, "type") : "";
  if (type != "text" && type != "json_object" && type != "json_schema")
    return fail("text.format", "must have a 'type' \"text\", \"json_object\" or \"json_schema\"");
  json known = known_of_format(type, format);
  if (type == "json_schema") {
    known.erase("type");
    chat()["response_format"] = {{"type", type}, {"json_schema", std::move(known)}};
  } else if (type == "json_object" || known.size() > 1) {
    chat()["response_format"] = std::move(known);
  }
}

void ResponsesReader::read_text() {
  r_.shown["text"] = {{"format", {{"type", "text"}}}};
  const json* text = f_.field("text");
  if (text == nullptr) return;
  if (!text->is_object()) return fail("text", "must be an object");
  FieldReader t(*text, f_, "text");
  if (const json* format = t.field("format")) {
    read_format(*format);
    r_.shown["text"]["format"] = *format;
  }
  t.only("verbosity", "medium", "only \"medium\" is supported");
  t.settle_unknown();
  if (t.error()) f_.fail(*t.error());
}

void ResponsesReader::read_tools() {
  const json* tools = f_.field("tools");
  r_.shown["tools"] = tools != nullptr ? *tools : json::array();
  if (tools == nullptr || tools->empty()) return;
  if (!tools->is_array()) return fail("tools", "must be a list");
  json made = json::array();
  for (const json& tool : *tools) {
    const std::string type = tool.is_object() ? string_at(tool, "type") : "";
    if (type.empty()) return fail("tools", "has an entry that is not {\"type\": \"function\", ...}");
    if (type != "function")
      return f_.fail(not_supported("tools", "tools of the type '" + type + "' are not supported; functions are"));
    json function = tool;
    function.erase("type");
    made.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  chat()["tools"] = std::move(made);
}

void ResponsesReader::read_tool_choice() {
  const json* choice = f_.field("tool_choice");
  r_.shown["tool_choice"] = choice != nullptr ? *choice : json("auto");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    chat()["tool_choice"] = *choice;
    return;
  }
  const std::string type = choice->is_object() ? string_at(*choice, "type") : "";
  if (type != "function" || string_at(*choice, "name").empty())
    return fail("tool_choice", "must be \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"name\": ...}");
  chat()["tool_choice"] = {{"type", "function"}, {"function", {{"name", string_at(*choice, "name")}}}};
}

void ResponsesReader::read_numbers() {
  if (const auto model = f_.string("model")) chat()["model"] = *model;
  const auto tokens = f_.integer("max_output_tokens", 1, int64_t{1} << 40);
  if (tokens) chat()["max_tokens"] = *tokens;
  r_.shown["max_output_tokens"] = tokens ? json(*tokens) : json();
  for (const char* same : {"temperature", "top_p"}) {
    const json* value = f_.field(same);
    if (value != nullptr) chat()[same] = *value;
    r_.shown[same] = value != nullptr ? *value : json(1.0);
  }
  const bool parallel = f_.boolean("parallel_tool_calls").value_or(true);
  if (!parallel) chat()["parallel_tool_calls"] = false;
  r_.shown["parallel_tool_calls"] = parallel;
  if (f_.boolean("stream").value_or(false))
    chat()["stream"] = true, chat()["stream_options"] = {{"include_usage", true}};
  take_own_fields(f_, chat());
  const json* metadata = f_.field("metadata");
  if (metadata != nullptr && !metadata->is_object()) fail("metadata", "must be an object");
  r_.shown["metadata"] = metadata != nullptr ? *metadata : json::object();
}

void ResponsesReader::read_reasoning() {
  const json* reasoning = f_.field("reasoning");
  if (reasoning == nullptr) return;
  if (!reasoning->is_object()) return fail("reasoning", "must be an object");
  FieldReader r(*reasoning, f_, "reasoning");
  for (const char* member : {"effort", "summary", "generate_summary"})
    if (r.field(member) != nullptr)
      f_.fail(not_supported("reasoning." + std::string(member), "not supported; leave it out"));
  if (f_.ignored() != nullptr) return r.settle_unknown();
  for (const std::string& member : r.unknown())
    f_.fail(not_supported("reasoning." + member, "not supported; leave it out"));
}

/// What asks for nothing, and what is not here.
void ResponsesReader::read_off() {
  f_.only("background", false, "not supported: responses are made while you wait");
  f_.only("conversation", nullptr, "not supported; use 'previous_response_id'");
  f_.only("include", json::array(), "not supported; leave it out");
  f_.only("truncation", "disabled", "only \"disabled\" is supported");
  f_.only("prompt", nullptr, "prompt templates are not supported; leave it out");
  f_.only("max_tool_calls", nullptr, "not supported; leave it out");
  f_.only("top_logprobs", 0, "not supported; leave it out");
  for (const char* harmless :
       {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier", "stream_options"})
    f_.ignore(harmless);
}

std::variant<ResponsesRequest, ApiError> ResponsesReader::read() {
  r_.items = read_input_items(f_);
  r_.instructions = f_.string("instructions").value_or("");
  r_.shown["instructions"] = r_.instructions.empty() ? json() : json(r_.instructions);
  read_numbers();
  r_.previous = f_.string("previous_response_id").value_or("");
  r_.shown["previous_response_id"] = r_.previous.empty() ? json() : json(r_.previous);
  r_.store = f_.boolean("store").value_or(true);
  read_text();
  read_tools();
  read_tool_choice();
  read_reasoning();
  read_off();
  f_.settle_unknown();
  if (f_.error()) return *f_.error();
  return std::move(r_);
}

}  // namespace

std::variant<ResponsesRequest, ApiError> read_responses_request(const json& body, bool lenient) {
  return ResponsesReader(body, lenient).read();
}

/// Instructions are this request's own: those of the response before are not carried over.
json responses_messages(const ResponsesRequest& request, const json& context) {
  json messages = json::array();
  if (!request.instructions.empty()) messages.push_back({{"role", "system"}, {"content", request.instructions}});
  add_messages(messages, context);
  add_messages(messages, request.items);
  return messages;
}

std::string responses_error_body(const ApiError& error, const std::string&) {
  return renamed(error, kResponsesNames).body();
}

}  // namespace moestro::orchestrator
