#include "orchestrator/dialects/messages_request.h"

#include "orchestrator/dialects/dialect_text.h"
#include "orchestrator/dialects/messages_answer.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

constexpr FieldName kMessagesNames[]{{"stop", "stop_sequences"}, {"parallel_tool_calls", "tool_choice"}};

class MessagesReader {
 public:
  MessagesReader(const json& body, bool lenient) : f_(body, lenient ? &out_.ignored : nullptr) {}

  std::variant<Translated, ApiError> read(bool counts);

 private:
  void fail(const std::string& field, const std::string& why) { f_.fail(bad_request("'" + field + "' " + why, field)); }
  bool failed() const { return f_.error().has_value(); }
  json part_of(const std::string& field, const json& block);
  void check_members(const std::string& field, const json& block, std::vector<std::string_view> known);
  json text_content(const std::string& field, const json& content);
  void read_system();
  void read_turns();
  void read_turn(const json& turn);
  void read_user(const json& blocks);
  void read_assistant(const json& blocks);
  void say_user(json& parts);
  json call_of(const json& block);
  void read_tools();
  void read_tool(const json& tool);
  void read_tool_choice();
  void read_thinking();
  void read_sampling(bool counts);

  OpenAiRequest out_{.body = json::object(), .in_order = true};
  FieldReader f_;  ///< names in it what it ignores
  json turns_ = json::array();
};

/// Besides `known` every block may have its type and hints for a cache.
void MessagesReader::check_members(const std::string& field, const json& block, std::vector<std::string_view> known) {
  known.insert(known.end(), {"type", "cache_control"});
  settle_members(f_, field, block, known);
}

/// A text block as a part of a chat's message.
json MessagesReader::part_of(const std::string& field, const json& block) {
  const std::string type = block.is_object() ? string_at(block, "type") : "";
  if (type.empty()) return fail(field, "has a block that is not {\"type\": ..., ...}"), json();
  if (type != "text") {
    f_.fail(not_supported(field, "blocks of the type '" + type + "' are not supported here; text is"));
    return json();
  }
  check_members(field, block, {"text", "citations"});
  if (!block.contains("text") || !block["text"].is_string())
    return fail(field, "has a text block without 'text'"), json();
  return {{"type", "text"}, {"text", block["text"]}};
}

/// A string, or text blocks as parts.
json MessagesReader::text_content(const std::string& field, const json& content) {
  if (content.is_string()) return content;
  if (!content.is_array()) return fail(field, "must be a string or a list of text blocks"), json();
  json parts = json::array();
  for (const json& block : content) parts.push_back(part_of(field, block));
  return parts;
}

void MessagesReader::read_system() {
  const json* system = f_.field("system");
  if (system == nullptr) return;
  json content = text_content("system", *system);
  if (!content.empty() && content != "") turns_.push_back({{"role", "system"}, {"content", std::move(content)}});
}

void MessagesReader::read_turns() {
  const json* turns = f_.field("messages");
  if (turns == nullptr || !turns->is_array() || turns->empty())
    return fail("messages", "must be a list with at least one {role, content}");
  for (const json& turn : *turns) {
    read_turn(turn);
    if (failed()) return;
  }
  if (turns->back()["role"] == "assistant")
    f_.fail(not_supported("messages", "the last turn is the assistant's; to continue it is not supported"));
}

void MessagesReader::read_turn(const json& turn) {
  if (!turn.is_object()) return fail("messages", "has an entry that is no object");
  const std::string role = string_at(turn, "role");
  if (role != "user" && role != "assistant")
    return fail("messages", "has an entry whose 'role' is neither \"user\" nor \"assistant\"");
  check_members("messages", turn, {"role", "content"});
  const auto content = turn.find("content");
  if (content == turn.end() || content->empty()) return fail("messages", "has an entry without 'content'");
  if (content->is_string()) return turns_.push_back({{"role", role}, {"content", *content}});
  if (!content->is_array()) return fail("messages", "has an entry whose 'content' is neither a string nor a list");
  role == "user" ? read_user(*content) : read_assistant(*content);
}

void MessagesReader::say_user(json& parts) {
  if (!parts.empty()) turns_.push_back({{"role", "user"}, {"content", std::exchange(parts, json::array())}});
}

/// Results of tools are messages of their own in a chat.
void MessagesReader::read_user(const json& blocks) {
  json parts = json::array();
  for (const json& block : blocks) {
    if (!block.is_object() || string_at(block, "type") != "tool_result") {
      parts.push_back(part_of("messages", block));
      continue;
    }
    say_user(parts);
    check_members("messages", block, {"tool_use_id", "content", "is_error"});
    const std::string id = string_at(block, "tool_use_id");
    if (id.empty()) return fail("messages", "has a tool_result without 'tool_use_id'");
    const auto content = block.find("content");
    const bool is_empty = content == block.end() || content->is_null();
    turns_.push_back({{"role", "tool"},
                      {"tool_call_id", id},
                      {"content", is_empty ? json("") : text_content("messages", *content)}});
  }
  say_user(parts);
}

json MessagesReader::call_of(const json& block) {
  check_members("messages", block, {"id", "name", "input"});
  const std::string id = string_at(block, "id"), name = string_at(block, "name");
  const auto input = block.find("input");
  if (id.empty() || name.empty() || input == block.end() || !input->is_object())
    return fail("messages", "has a tool_use without 'id', 'name' or an object 'input'"), json();
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", *input}}}};
}

void MessagesReader::read_assistant(const json& blocks) {
  json parts = json::array(), calls = json::array();
  std::string thinking;
  for (const json& block : blocks) {
    const std::string type = block.is_object() ? string_at(block, "type") : "";
    if (type == "tool_use") {
      calls.push_back(call_of(block));
    } else if (type == "thinking") {
      check_members("messages", block, {"thinking", "signature"});
      thinking += string_at(block, "thinking");
    } else if (type != "redacted_thinking") {  // which nobody here could read
      parts.push_back(part_of("messages", block));
    }
  }
  json turn{{"role", "assistant"}, {"content", nullptr}};
  if (!parts.empty())
    turn["content"] = std::move(parts);
  else if (calls.empty())
    turn["content"] = "";
  if (!thinking.empty()) turn["reasoning_content"] = std::move(thinking);
  if (!calls.empty()) turn["tool_calls"] = std::move(calls);
  turns_.push_back(std::move(turn));
}

void MessagesReader::read_tool(const json& tool) {
  if (!tool.is_object()) return fail("tools", "has an entry that is no object");
  const std::string type = tool.contains("type") ? string_at(tool, "type") : "custom";
  if (type != "custom")
    return f_.fail(not_supported("tools", "tools of the type '" + type + "' are not supported; only your own are"));
  check_members("tools", tool, {"name", "description", "input_schema", "strict"});
  json function = json::object();
  for (const char* same : {"name", "description", "strict"})
    if (tool.contains(same)) function[same] = tool[same];
  const auto schema = tool.find("input_schema");
  if (schema == tool.end() || !schema->is_object()) return fail("tools", "has a tool without an 'input_schema'");
  function["parameters"] = *schema;
  out_.body["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
}

void MessagesReader::read_tools() {
  const json* tools = f_.field("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return fail("tools", "must be a list");
  if (tools->empty()) return;
  out_.body["tools"] = json::array();
  for (const json& tool : *tools) {
    read_tool(tool);
    if (failed()) return;
  }
}

void MessagesReader::read_tool_choice() {
  const json* choice = f_.field("tool_choice");
  if (choice == nullptr) return;
  const std::string type = choice->is_object() ? string_at(*choice, "type") : "";
  const std::string name = choice->is_object() ? string_at(*choice, "name") : "";
  if (type == "auto" || type == "none")
    out_.body["tool_choice"] = type;
  else if (type == "any")
    out_.body["tool_choice"] = "required";
  else if (type == "tool" && !name.empty())
    out_.body["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  else
    return fail("tool_choice",
                "must be an object whose 'type' is \"auto\", \"any\", \"none\", or \"tool\" with a 'name'");
  const auto one = choice->find("disable_parallel_tool_use");
  if (one != choice->end() && !one->is_boolean())
    return fail("tool_choice", "has a 'disable_parallel_tool_use' that is not true or false");
  if (one != choice->end()) out_.body["parallel_tool_calls"] = !one->get<bool>();
  check_members("tool_choice", *choice, {"name", "disable_parallel_tool_use"});
}

void MessagesReader::read_thinking() {
  const json* thinking = f_.field("thinking");
  if (thinking == nullptr) return;
  if (!thinking->is_object() || string_at(*thinking, "type") != "disabled")
    f_.fail(not_supported("thinking", "only {\"type\": \"disabled\"} is supported"));
}

void MessagesReader::read_sampling(bool counts) {
  json& body = out_.body;
  if (const auto model = f_.string("model")) body["model"] = *model;
  const auto tokens = f_.integer("max_tokens", 1, int64_t{1} << 40);
  if (tokens)
    body["max_tokens"] = *tokens;
  else if (!counts && !failed())
    fail("max_tokens", "is missing: the most tokens of the answer");
  for (const char* same : {"temperature", "top_p", "top_k"})
    if (const json* value = f_.field(same)) body[same] = *value;
  if (const json* stops = f_.field("stop_sequences")) {
    if (!stops->is_array()) fail("stop_sequences", "must be a list of strings");
    body["stop"] = *stops;
  }
  if (f_.boolean("stream").value_or(false)) body["stream"] = true, body["stream_options"] = {{"include_usage", true}};
  take_own_fields(f_, body);
  for (const char* harmless : {"metadata", "service_tier"}) f_.ignore(harmless);
}

std::variant<Translated, ApiError> MessagesReader::read(bool counts) {
  read_system();
  read_turns();
  read_tools();
  read_tool_choice();
  read_thinking();
  read_sampling(counts);
  f_.settle_unknown();
  if (failed()) return *f_.error();
  out_.body["messages"] = std::move(turns_);
  if (counts) return Translated{std::move(out_), std::make_unique<TokenCountAnswer>()};
  return Translated{std::move(out_), std::make_unique<MessagesAnswer>()};
}

/// Anthropic's word for an error.
const char* messages_error_type(const ApiError& error) {
  switch (error.http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.http_status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::variant<Translated, ApiError> read_messages_request(const json& body, bool lenient, bool counts) {
  return MessagesReader(body, lenient).read(counts);
}

std::string messages_error_body(const ApiError& error, const std::string& request_id) {
  const ApiError own = renamed(error, kMessagesNames);
  json body{{"type", "error"}, {"error", {{"type", messages_error_type(own)}, {"message", own.message}}}};
  if (!request_id.empty()) body["request_id"] = request_id;
  return text_of(body);
}

}  // namespace moestro::orchestrator
