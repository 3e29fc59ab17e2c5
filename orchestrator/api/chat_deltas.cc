#include "orchestrator/api/chat_deltas.h"

#include <utility>

namespace moestro::orchestrator {

using nlohmann::json;

json& ChatDeltas::member(Member m) {
  constexpr const char* kNames[] = {"reasoning_content", "content", "tool_calls"};
  if (deltas_.empty() || m < last_) deltas_.push_back(json::object());
  last_ = m;
  return deltas_.back()[kNames[m]];
}

void ChatDeltas::add_text(Member m, const std::string& text) {
  if (text.empty()) return;
  json& said = member(m);
  if (said.is_null()) said = "";
  said.get_ref<std::string&>() += text;
}

void ChatDeltas::add_call(json call) { member(kCalls).push_back(std::move(call)); }

json joined_message(const std::vector<json>& deltas, bool reasons) {
  std::string reasoning, content;
  json calls = json::array();
  for (const json& delta : deltas) {
    reasoning += delta.value("reasoning_content", "");
    content += delta.value("content", "");
    for (const json& call : delta.value("tool_calls", json::array())) {
      if (call.contains("id"))
        calls.push_back({{"id", call["id"]}, {"type", "function"}, {"function", call["function"]}});
      else
        calls.back()["function"]["arguments"].get_ref<std::string&>() +=
            call["function"]["arguments"].get_ref<const std::string&>();
    }
  }
  const bool only_calls = content.empty() && !calls.empty();
  json message{{"role", "assistant"}, {"content", only_calls ? json() : json(std::move(content))}};
  if (reasons) message["reasoning_content"] = reasoning.empty() ? json() : json(std::move(reasoning));
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace moestro::orchestrator
