#include "orchestrator/dialects/responses_items.h"

#include <random>

#include "orchestrator/dialects/dialect_text.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

class ItemReader {
 public:
  explicit ItemReader(FieldReader& f) : f_(f) {}

  json read(const json& input) {
    json items = json::array();
    if (input.is_string()) {
      const json part{{"type", "input_text"}, {"text", input}};
      items.push_back(message("user", json::array({part})));
      return items;
    }
    if (!input.is_array() || input.empty()) return fail("must be a text or a list of items"), items;
    for (const json& item : input) {
      if (f_.error()) break;
      items.push_back(read_item(item));
    }
    return items;
  }

 private:
  void fail(const std::string& why) { f_.fail(bad_request("'input' " + why, "input")); }

  static json message(const std::string& role, json content) {
    return {{"type", "message"},
            {"id", new_item_id("msg_")},
            {"status", "completed"},
            {"role", role},
            {"content", std::move(content)}};
  }

  void check_members(const json& item, const std::vector<std::string_view>& known) {
    settle_members(f_, "input", item, known);
  }

  json read_item(const json& item) {
    if (!item.is_object()) return fail("has an item that is no object"), json();
    const std::string type = item.contains("type") ? string_at(item, "type") : "message";
    if (type == "message") return read_message(item);
    if (type == "function_call") return read_call(item);
    if (type == "function_call_output") return read_output(item);
    if (type == "reasoning") return kept_id(item, item, "rs_");
    f_.fail(not_supported("input", "items of the type '" + type + "' are not supported"));
    return {};
  }

  /// `made` with the client's id of `item`, or one of its own.
  static json kept_id(const json& item, json made, const char* prefix) {
    const std::string id = string_at(item, "id");
    made["id"] = id.empty() ? new_item_id(prefix) : id;
    return made;
  }

  json read_message(const json& item) {
    check_members(item, {"type", "id", "status", "role", "content", "phase"});
    const std::string role = string_at(item, "role");
    const bool known = role == "user" || role == "assistant" || role == "system" || role == "developer";
    if (!known)
      return fail("has a message whose 'role' is not \"user\", \"assistant\", \"system\" or \"developer\""), json();
    const auto content = item.find("content");
    if (content == item.end() || content->is_null()) return fail("has a message without 'content'"), json();
    return kept_id(item, message(role, parts_of(*content, role == "assistant" ? "output_text" : "input_text")), "msg_");
  }

  /// A text, or parts that are texts.
  json parts_of(const json& content, const char* text_type) {
    json parts = json::array();
    if (content.is_string())
      parts.push_back({{"type", text_type}, {"text", content}});
    else if (!content.is_array())
      fail("has an item whose content is neither a text nor a list of parts");
    else
      for (const json& part : content) parts.push_back(part_of(part));
    if (text_type == std::string_view("output_text"))
      for (json& part : parts)
        if (part.is_object()) part["annotations"] = json::array();
    return parts;
  }

  json part_of(const json& part) {
    const std::string type = part.is_object() ? string_at(part, "type") : "";
    if (type.empty()) return fail("has a part that is not {\"type\": ..., ...}"), json();
    if (type != "input_text" && type != "output_text")
      return f_.fail(not_supported("input", "parts of the type '" + type + "' are not supported; only text is")),
             json();
    if (!part.contains("text") || !part["text"].is_string()) return fail("has a part without 'text'"), json();
    check_members(part, {"type", "text", "annotations", "logprobs"});
    return {{"type", type}, {"text", part["text"]}};
  }

  json read_call(const json& item) {
    check_members(item, {"type", "id", "status", "call_id", "name", "arguments"});
    const std::string call = string_at(item, "call_id"), name = string_at(item, "name");
    if (call.empty() || name.empty() || !item.contains("arguments") || !item["arguments"].is_string())
      return fail("has a function_call without 'call_id', 'name' or 'arguments'"), json();
    return kept_id(item,
                   {{"type", "function_call"},
                    {"id", ""},
                    {"status", "completed"},
                    {"call_id", call},
                    {"name", name},
                    {"arguments", item["arguments"]}},
                   "fc_");
  }

  json read_output(const json& item) {
    check_members(item, {"type", "id", "status", "call_id", "output"});
    const std::string call = string_at(item, "call_id");
    const auto output = item.find("output");
    if (call.empty() || output == item.end())
      return fail("has a function_call_output without 'call_id' or 'output'"), json();
    json said = output->is_string() ? *output : parts_of(*output, "input_text");
    return kept_id(item,
                   {{"type", "function_call_output"},
                    {"id", ""},
                    {"status", "completed"},
                    {"call_id", call},
                    {"output", std::move(said)}},
                   "fco_");
  }

  FieldReader& f_;
};

json chat_parts(const json& parts) {
  if (parts.is_string()) return parts;
  json made = json::array();
  for (const json& part : parts) made.push_back({{"type", "text"}, {"text", string_at(part, "text")}});
  return made;
}

/// The assistant's message that a call belongs to.
json& calling_message(json& messages) {
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", nullptr}});
  return messages.back();
}

}  // namespace

json read_input_items(FieldReader& f) {
  const json* input = f.field("input");
  if (input == nullptr) {
    f.fail(bad_request("'input' is missing: a text or a list of items", "input"));
    return json::array();
  }
  return ItemReader(f).read(*input);
}

void add_messages(json& messages, const json& items) {
  for (const json& item : items) {
    const std::string type = string_at(item, "type");
    if (type == "message") {
      const std::string role = string_at(item, "role");
      messages.push_back(
          {{"role", role == "developer" ? "system" : role}, {"content", chat_parts(item.at("content"))}});
    } else if (type == "function_call") {
      json& calls = calling_message(messages)["tool_calls"];
      calls.push_back({{"id", item.at("call_id")},
                       {"type", "function"},
                       {"function", {{"name", item.at("name")}, {"arguments", item.at("arguments")}}}});
    } else if (type == "function_call_output") {
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", item.at("call_id")}, {"content", chat_parts(item.at("output"))}});
    }  // reasoning is not given to the model again
  }
}

bool is_whole_call(const json& item) {
  return string_at(item, "type") == "function_call" &&
         std::holds_alternative<json>(parse_body(string_at(item, "arguments")));
}

void add_said(ResponseContext& context, const json& output) {
  for (const json& item : output) {
    const bool is_call = string_at(item, "type") == "function_call";
    if (is_call && !is_whole_call(item))
      context.broken_calls.insert(string_at(item, "call_id"));
    else
      context.items.push_back(item);
  }
}

std::optional<ApiError> check_outputs(const json& items, const ResponseContext& context,
                                      const std::string& previous) {
  std::set<std::string> broken = context.broken_calls, whole;
  for (const json& item : context.items)
    if (string_at(item, "type") == "function_call") whole.insert(string_at(item, "call_id"));
  for (const json& item : items) {
    const std::string call = string_at(item, "call_id");
    if (string_at(item, "type") == "function_call") broken.erase(call), whole.insert(call);  // perhaps said again
    if (string_at(item, "type") != "function_call_output") continue;
    if (!broken.contains(call) && !whole.contains(call))
      return bad_request("'input' has a function_call_output for '" + call.substr(0, 80) +
                             "', which is no call before it; send the function_call too, or 'previous_response_id'",
                         "input");
    if (!broken.contains(call)) continue;
    return bad_request("'previous_response_id': the call '" + call.substr(0, 80) + "' of the response '" + previous +
                           "' broke off before its arguments were whole, so it has no output; leave its "
                           "function_call_output out of 'input'",
                       "previous_response_id");
  }
  return std::nullopt;
}

std::string new_item_id(const std::string& prefix) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  char digits[25];
  std::snprintf(digits, sizeof digits, "%016llx%08llx", static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random() & 0xffffffff));
  return prefix + digits;
}

}  // namespace moestro::orchestrator
