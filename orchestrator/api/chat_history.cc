#include "orchestrator/api/chat_history.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace moestro::orchestrator {

namespace {

constexpr const char *kCalls = "tool_calls", *kCallId = "tool_call_id", *kContent = "content",
                     *kReasoning = "reasoning_content";

bool has_calls(const RequestJson& message) {
  const auto calls = message.find(kCalls);
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool is_result(const RequestJson& message) { return message["role"] == "tool"; }

std::string text_at(const RequestJson& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Some templates refuse a message that has calls, reasoning and content: there the content is part of the reasoning.
void move_reasoning(RequestJson& message, const char* field) {
  std::string reasoning = text_at(message, kReasoning);
  if (reasoning.empty() || message.contains(field)) return;
  if (const std::string content = text_at(message, kContent); has_calls(message) && !content.empty()) {
    reasoning += "\n\n" + content;
    message[kContent] = "";
  }
  message[field] = std::move(reasoning);
}

/// Each call in a message of its own, followed by its result: the one with its id, else the next one that has the id of
/// no other call.
RequestJson apart(const RequestJson& messages) {
  RequestJson all = RequestJson::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!has_calls(messages[i]) || messages[i][kCalls].size() == 1) {
      all.push_back(messages[i]);
      continue;
    }
    std::vector<const RequestJson*> results;
    size_t next = i + 1;
    for (; next < messages.size() && is_result(messages[next]); ++next) results.push_back(&messages[next]);
    RequestJson message = messages[i];
    std::set<std::string> ids;
    for (const RequestJson& call : messages[i][kCalls]) ids.insert(text_at(call, "id"));
    ids.erase("");
    for (const RequestJson& call : messages[i][kCalls]) {
      message[kCalls] = RequestJson::array({call});
      all.push_back(message);
      message = {{"role", message["role"]}, {kContent, ""}};  // what else it says, it says once
      const std::string id = text_at(call, "id");
      auto result = std::ranges::find_if(results, [&](const RequestJson* r) { return text_at(*r, kCallId) == id; });
      const auto is_of_none = [&](const RequestJson* r) { return !ids.contains(text_at(*r, kCallId)); };
      if (result == results.end()) result = std::ranges::find_if(results, is_of_none);
      if (result == results.end()) continue;
      all.push_back(**result);
      results.erase(result);
    }
    for (const RequestJson* left : results) all.push_back(*left);
    i = next - 1;
  }
  return all;
}

/// Ids as the model would have written them, where they are not.
void name_ids(RequestJson& messages) {
  std::map<std::string, std::string> names;  // by the ids that there were
  const std::set<std::string> given = call_ids(messages);
  size_t number = 0;
  for (RequestJson& message : messages) {
    if (has_calls(message)) {
      for (RequestJson& call : message[kCalls]) {
        const std::string before = text_at(call, "id"),
                          prefix = "functions." + call["function"]["name"].get<std::string>() + ":";
        std::string id = before;
        if (!before.starts_with(prefix))
          while (given.contains(id = prefix + std::to_string(number))) ++number;
        ++number;
        names[before] = id;
        call["id"] = std::move(id);
      }
    } else if (is_result(message)) {
      if (const auto named = names.find(text_at(message, kCallId)); named != names.end())
        message[kCallId] = named->second;
    }
  }
}

struct Form {
  bool empty_content = false, text_arguments = false;
};

RequestJson changed(RequestJson messages, const Form& form) {
  static const ChatTemplate as_json = *ChatTemplate::parse("{{ messages | tojson }}");
  for (RequestJson& message : messages) {
    if (!has_calls(message)) continue;
    if (form.empty_content && (!message.contains(kContent) || message[kContent].is_null())) message[kContent] = "";
    if (!form.text_arguments) continue;
    for (RequestJson& call : message[kCalls]) {
      const auto arguments = call["function"].find("arguments");
      if (arguments == call["function"].end() || arguments->is_string()) continue;
      if (auto text = as_json.render(*arguments, RequestJson::object()); text.is_ok()) *arguments = std::move(*text);
    }
  }
  return messages;
}

}  // namespace

std::set<std::string> call_ids(const RequestJson& messages) {
  std::set<std::string> ids;
  for (const RequestJson& message : messages)
    if (has_calls(message))
      for (const RequestJson& call : message[kCalls]) ids.insert(text_at(call, "id"));
  return ids;
}

bool has_own_history(const ToolForm& form) {
  return form.reasoning_field() != std::string_view(kReasoning) || form.frame().next.empty() || form.ids_have_names();
}

RequestJson history_in_form(RequestJson messages, const ToolForm& form) {
  if (form.reasoning_field() != std::string_view(kReasoning))
    for (RequestJson& message : messages) move_reasoning(message, form.reasoning_field());
  if (form.frame().next.empty()) messages = apart(messages);
  if (form.ids_have_names()) name_ids(messages);
  return messages;
}

Result<std::string> render_history(const ChatTemplate& chat_template, const RequestJson& messages,
                                   const RequestJson& variables, const std::stop_token& stop) {
  const auto now = std::chrono::system_clock::now();
  auto text = chat_template.render(messages, variables, now, stop);
  if (text.is_ok() || text.status().code() == Code::kCancelled || !std::ranges::any_of(messages, has_calls))
    return text;
  for (const Form& form : {Form{true, false}, Form{false, true}, Form{true, true}})
    if (auto other = chat_template.render(changed(messages, form), variables, now, stop); other.is_ok()) return other;
  return text;
}

}  // namespace moestro::orchestrator
