#include "orchestrator/dialects/messages_answer.h"

#include <gmock/gmock.h>

#include "tests/dialects/dialect_events.h"

namespace moestro::orchestrator {
namespace {

using testing::call_delta;
using testing::chat_answer;
using testing::chat_chunk;
using ::testing::ElementsAre;
using testing::events_in;
using testing::names_of;
using testing::say;
using testing::usage_chunk;
using testing::whole_answer;
using json = RequestJson;

json entire(const json& answer) {
  MessagesAnswer translator;
  translator.read_whole(answer);
  return json::parse(translator.whole());
}

TEST(MessagesAnswer, AWholeOne) {
  EXPECT_EQ(entire(chat_answer({{"role", "assistant"}, {"content", "hello"}}, "stop")),
            json::parse(R"({"id": "msg_1f", "type": "message", "role": "assistant", "model": "m",
              "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "stop_sequence": null,
              "usage": {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
                        "output_tokens": 3}})"));
}

TEST(MessagesAnswer, CallsAndThinking) {
  const json answer = entire(chat_answer(json::parse(R"({"content": null, "reasoning_content": "hm", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\": [1]}"}},
      {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{\"x\": [1"}}]})"),
                                        "tool_calls"));
  EXPECT_EQ(answer["content"], json::parse(R"([{"type": "thinking", "thinking": "hm", "signature": ""},
      {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1]}},
      {"type": "tool_use", "id": "b", "name": "g", "input": {}}])"));
  EXPECT_EQ(answer["stop_reason"], "tool_use");
}

TEST(MessagesAnswer, WhyItStopped) {
  const auto stopped = [](const char* finish, const json& why) {
    json answer = chat_answer({{"content", "a"}}, finish);
    if (!why.is_discarded()) answer["choices"][0]["stop_reason"] = why;
    const json message = entire(answer);
    return json::array({message["stop_reason"], message["stop_sequence"]});
  };
  const json kUnsaid(json::value_t::discarded);
  EXPECT_EQ(stopped("length", nullptr), json::array({"max_tokens", nullptr}));
  EXPECT_EQ(stopped("stop", "END"), json::array({"stop_sequence", "END"}));
  EXPECT_EQ(stopped("stop", nullptr), json::array({"end_turn", nullptr}));
  EXPECT_EQ(stopped("stop", 7), json::array({"end_turn", nullptr})) << "the id of a token";
  EXPECT_EQ(stopped("stop", kUnsaid), json::array({"end_turn", nullptr}));
}

TEST(MessagesAnswer, AStreamOfTextAndCalls) {
  MessagesAnswer a;
  std::string text = say(a, {chat_chunk({{"role", "assistant"}, {"content", ""}}), chat_chunk({{"content", "he"}}),
                             chat_chunk({{"content", "y"}}), chat_chunk(call_delta(0, "", "id0", "f")),
                             chat_chunk(call_delta(0, "{\"a\"")), chat_chunk(call_delta(0, ":1}")),
                             chat_chunk(call_delta(1, "{}", "id1", "g")), chat_chunk(json::object(), "tool_calls"),
                             usage_chunk(10, 4, 9)});
  text += a.end();
  const auto events = events_in(text);
  EXPECT_THAT(names_of(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop",
                          "message_delta", "message_stop"));
  for (const auto& e : events) EXPECT_EQ(e.data["type"], e.name);
  EXPECT_EQ(events[0].data["message"]["id"], "msg_1f");
  EXPECT_EQ(events[0].data["message"]["content"], json::array());
  EXPECT_EQ(events[2].data["content_block"], json::parse(R"({"type": "text", "text": ""})"));
  EXPECT_EQ(events[4].data["delta"], json::parse(R"({"type": "text_delta", "text": "y"})"));
  EXPECT_EQ(events[6].data["index"], 1);
  EXPECT_EQ(events[6].data["content_block"],
            json::parse(R"({"type": "tool_use", "id": "id0", "name": "f", "input": {}})"));
  EXPECT_EQ(events[7].data["delta"], json::parse(R"({"type": "input_json_delta", "partial_json": "{\"a\""})"));
  EXPECT_EQ(events[10].data["index"], 2);
  EXPECT_EQ(events[10].data["content_block"]["name"], "g");
  EXPECT_EQ(events[13].data["delta"], json::parse(R"({"stop_reason": "tool_use", "stop_sequence": null})"));
  EXPECT_EQ(events[13].data["usage"]["input_tokens"], 6);
  EXPECT_EQ(events[13].data["usage"]["output_tokens"], 9);
}

/// The content that a client puts together from a stream. Input that was cut is no JSON: it counts as none.
json streamed(const std::vector<json>& deltas) {
  MessagesAnswer a;
  std::vector<json> chunks;
  for (const json& delta : deltas) chunks.push_back(chat_chunk(delta));
  json content = json::array();
  std::vector<std::string> inputs;
  std::string text = say(a, chunks);
  text += a.end();
  for (const auto& e : events_in(text)) {
    if (e.name == "content_block_start") {
      content.push_back(e.data["content_block"]);
      inputs.emplace_back();
    } else if (e.name == "content_block_delta") {
      EXPECT_EQ(e.data["index"], content.size() - 1);
      const json& delta = e.data["delta"];
      for (const char* member : {"text", "thinking"})
        if (delta.contains(member)) content.back()[member].get_ref<std::string&>() += delta[member].get<std::string>();
      inputs.back() += delta.value("partial_json", "");
    }
  }
  for (size_t i = 0; i < content.size(); ++i)
    if (content[i]["type"] == "tool_use" && json::accept(inputs[i])) content[i]["input"] = json::parse(inputs[i]);
  return content;
}

TEST(MessagesAnswer, AWholeOneHasTheBlocksOfItsStream) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const std::vector<json> deltas = testing::random_deltas(random);
    const json expected = streamed(deltas);
    ASSERT_EQ(entire(whole_answer(testing::joined(deltas), "length"))["content"], expected) << json(deltas);
    ASSERT_EQ(streamed(testing::joined(deltas)), expected) << json(deltas);
  }
}

TEST(MessagesAnswer, ACallThatWasCut) {
  const std::vector<json> deltas{call_delta(0, "", "a", "f"), call_delta(0, R"({"x": [1)")};
  for (const char* finish : {"length", "tool_calls"}) {
    const bool stopped = finish == std::string_view("tool_calls");
    json answer = whole_answer(deltas, finish);
    if (stopped) answer["choices"][0]["stop_reason"] = "END";
    const json message = entire(answer);
    EXPECT_EQ(message["content"], json::parse(R"([{"type": "tool_use", "id": "a", "name": "f", "input": {}}])"));
    EXPECT_EQ(message["stop_reason"], stopped ? "stop_sequence" : "max_tokens");
    MessagesAnswer a;
    json last = chat_chunk(json::object(), finish);
    if (stopped) last["choices"][0]["stop_reason"] = "END";
    std::string text = say(a, {chat_chunk(deltas[0]), chat_chunk(deltas[1]), last});
    text += a.end();
    const auto events = events_in(text);
    ASSERT_EQ(events.size(), 7u);
    EXPECT_EQ(events[3].data["delta"], json::parse(R"({"type": "input_json_delta", "partial_json": "{\"x\": [1"})"));
    EXPECT_EQ(events[5].data["delta"]["stop_reason"], message["stop_reason"]);
  }
}

TEST(MessagesAnswer, AStreamThatThinksAndFails) {
  MessagesAnswer a;
  std::string text = say(a, {chat_chunk({{"reasoning_content", "so"}}), chat_chunk({{"content", "x"}})});
  text += a.failed(from_status(exhausted("full")));
  const auto events = events_in(text);
  EXPECT_THAT(names_of(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "error"));
  EXPECT_EQ(events[3].data["delta"], json::parse(R"({"type": "thinking_delta", "thinking": "so"})"));
  EXPECT_EQ(events[7].data["error"], json::parse(R"({"type": "rate_limit_error", "message": "full"})"));
}

}  // namespace
}  // namespace moestro::orchestrator
