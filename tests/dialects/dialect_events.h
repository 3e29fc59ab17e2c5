#pragma once
// What translators are given and say, for tests of them.

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "orchestrator/dialects/dialect.h"
#include "orchestrator/dialects/dialect_text.h"

namespace moestro::orchestrator::testing {

struct NamedEvent {
  std::string name;  ///< empty: only data
  RequestJson data;
};

/// The events of a stream, comments left out.
inline std::vector<NamedEvent> events_in(const std::string& text) {
  std::vector<NamedEvent> all;
  for (size_t at = 0, end; at < text.size(); at = end + 2) {
    end = text.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << text.substr(at);
    if (end == std::string::npos) break;
    std::string event = text.substr(at, end - at);
    if (event.starts_with(':')) continue;
    NamedEvent one;
    if (event.starts_with("event: ")) {
      one.name = event.substr(7, event.find('\n') - 7);
      event.erase(0, event.find('\n') + 1);
    }
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    one.data = RequestJson::parse(event.substr(6), nullptr, false);
    EXPECT_FALSE(one.data.is_discarded()) << event;
    all.push_back(std::move(one));
  }
  return all;
}

inline std::vector<std::string> names_of(const std::vector<NamedEvent>& events) {
  std::vector<std::string> names;
  for (const NamedEvent& e : events) names.push_back(e.name);
  return names;
}

/// What the chunks make, one after another.
inline std::string say(AnswerTranslator& translator, const std::vector<RequestJson>& chunks) {
  std::string text;
  for (const RequestJson& chunk : chunks) text += translator.chunk(chunk);
  return text;
}

/// A chunk of a chat's stream.
inline RequestJson chat_chunk(const RequestJson& delta, const RequestJson& finish = nullptr) {
  return {{"id", "chatcmpl-1f"},
          {"object", "chat.completion.chunk"},
          {"created", 1},
          {"model", "m"},
          {"choices", RequestJson::array({{{"index", 0}, {"delta", delta}, {"finish_reason", finish}}})}};
}

inline RequestJson call_delta(int index, const std::string& arguments, const std::string& id = "",
                              const std::string& name = "") {
  RequestJson call{{"index", index}, {"function", {{"arguments", arguments}}}};
  if (!id.empty()) call["id"] = id, call["type"] = "function", call["function"]["name"] = name;
  return {{"tool_calls", RequestJson::array({call})}};
}

/// The last chunk of a stream.
inline RequestJson usage_chunk(int prompt, int cached, int completion) {
  return {{"id", "chatcmpl-1f"},
          {"model", "m"},
          {"choices", RequestJson::array()},
          {"usage",
           {{"prompt_tokens", prompt},
            {"completion_tokens", completion},
            {"prompt_tokens_details", {{"cached_tokens", cached}}}}}};
}

/// A whole answer to a chat, as translators get it.
inline RequestJson whole_answer(const std::vector<RequestJson>& deltas, const std::string& finish) {
  RequestJson answer = usage_chunk(10, 4, 3);
  const RequestJson message{{"role", "assistant"}, {"deltas", deltas}};
  answer["choices"] = RequestJson::array({{{"index", 0}, {"message", message}, {"finish_reason", finish}}});
  return answer;
}

/// Likewise, of a message that has its text before its calls.
inline RequestJson chat_answer(RequestJson message, const std::string& finish) {
  int index = 0;
  if (message.contains("tool_calls"))
    for (RequestJson& call : message["tool_calls"]) call["index"] = index++;
  return whole_answer({message}, finish);
}

/// Random deltas: reasoning, then texts and calls, which may break off. Pieces of one item follow each other.
std::vector<RequestJson> random_deltas(std::mt19937& random);
/// The same, joined as those of a whole answer are.
std::vector<RequestJson> joined(const std::vector<RequestJson>& deltas);

}  // namespace moestro::orchestrator::testing
