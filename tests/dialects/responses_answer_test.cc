#include "orchestrator/dialects/responses_answer.h"

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

ResponsesFrame frame() {
  return {"resp_1", 5, {{"temperature", 0.5}, {"tools", json::array()}}, json::array({{{"id", "msg_in"}}}), nullptr};
}

/// What a frame keeps.
struct Shelf {
  json record;
  std::function<void(bool)> then;
  ResponsesFrame frame() {
    ResponsesFrame made = orchestrator::frame();
    made.keep = [this](json kept, std::function<void(bool)> after) {
      record = std::move(kept), then = std::move(after);
    };
    return made;
  }
};

json whole(const json& answer) {
  ResponsesAnswer translator(frame());
  translator.read_whole(answer);
  bool settled = false;
  translator.settle([&] { settled = true; });
  EXPECT_TRUE(settled);
  return json::parse(translator.whole());
}

TEST(ResponsesAnswer, AWholeOne) {
  json r = whole(chat_answer({{"content", "hello"}}, "stop"));
  EXPECT_TRUE(r["output"][0]["id"].get<std::string>().starts_with("msg_"));
  r["output"][0].erase("id");
  EXPECT_EQ(nlohmann::json(r),
            nlohmann::json::parse(R"({"id": "resp_1", "object": "response", "created_at": 5, "status": "completed",
      "error": null, "incomplete_details": null, "model": "m", "output": [{"type": "message", "status": "completed",
      "role": "assistant", "content": [{"type": "output_text", "text": "hello", "annotations": [], "logprobs": []}]}],
      "store": false, "background": false, "truncation": "disabled", "reasoning": {"effort": null, "summary": null},
      "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3,
      "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 13}, "temperature": 0.5, "tools": []})"));
}

TEST(ResponsesAnswer, SharesOfLowCopies) {
  json answer = chat_answer({{"content", "hello"}}, "stop");
  EXPECT_FALSE(whole(answer)["usage"].contains("moestro"));
  const json shares{{"low_share", 0.25}, {"skipped_share", 0.5}};
  answer["usage"]["moestro"] = shares;
  EXPECT_EQ(whole(answer)["usage"]["moestro"], shares);
}

TEST(ResponsesAnswer, CallsReasoningAndACutAnswer) {
  const json r = whole(chat_answer(json::parse(R"({"content": null, "reasoning_content": "hm", "tool_calls": [
      {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]})"),
                                   "tool_calls"));
  ASSERT_EQ(r["output"].size(), 2u);
  EXPECT_EQ(r["output"][0]["content"][0], json::parse(R"({"type": "reasoning_text", "text": "hm"})"));
  EXPECT_EQ(r["output"][1]["type"], "function_call");
  EXPECT_EQ(r["output"][1]["call_id"], "a");
  EXPECT_EQ(r["output"][1]["arguments"], "{}");
  const json cut = whole(chat_answer({{"content", "hel"}}, "length"));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"], json::parse(R"({"reason": "max_output_tokens"})"));
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
}

/// "TYPE STATUS" of each item.
std::vector<std::string> statuses(const json& response) {
  std::vector<std::string> all;
  for (const json& item : response["output"])
    all.push_back(item["type"].get<std::string>() + " " + item["status"].get<std::string>());
  return all;
}

json streamed(std::vector<json> deltas, const char* finish) {
  ResponsesAnswer a(frame());
  std::vector<json> chunks;
  for (const json& delta : deltas) chunks.push_back(chat_chunk(delta));
  chunks.push_back(chat_chunk(json::object(), finish));
  say(a, chunks);
  a.settle([] {});
  return events_in(a.end()).back().data["response"];
}

TEST(ResponsesAnswer, OnlyTheItemThatWasCutIsIncomplete) {
  const auto call = [](const char* id, const char* name, const char* arguments) {
    return json{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  };
  const json thinks{{"reasoning_content", "hm"}}, speaks{{"content", "so"}};
  const json f = call_delta(0, R"({"a":1})", "0", "f"), cut = call_delta(1, R"({"a":)", "1", "g"),
             unsaid = call_delta(1, "", "1", "g");
  const json f_said = call("0", "f", R"({"a":1})"), cut_said = call("1", "g", R"({"a":)"),
             unsaid_said = call("1", "g", "");
  struct Case {
    json message;
    std::vector<json> deltas;
    const char* finish;
    std::vector<std::string> expected;
  };
  const std::vector<Case> cases{
      {{{"content", "so"}}, {speaks}, "length", {"message incomplete"}},
      {{{"content", ""}}, {}, "length", {"message incomplete"}},
      {{{"content", ""}, {"reasoning_content", "hm"}}, {thinks}, "length", {"reasoning incomplete"}},
      {{{"content", ""}, {"reasoning_content", "hm"}}, {thinks}, "stop", {"reasoning completed"}},
      {{{"content", "so"}, {"reasoning_content", "hm"}},
       {thinks, speaks},
       "length",
       {"reasoning completed", "message incomplete"}},
      {{{"content", "so"}, {"reasoning_content", "hm"}, {"tool_calls", {f_said, cut_said}}},
       {thinks, speaks, f, cut},
       "length",
       {"reasoning completed", "message completed", "function_call completed", "function_call incomplete"}},
      {{{"content", nullptr}, {"tool_calls", {f_said, unsaid_said}}},
       {f, unsaid},
       "length",
       {"function_call completed", "function_call incomplete"}},
      {{{"content", nullptr}, {"tool_calls", {f_said}}}, {f}, "length", {"function_call completed"}},
      {{{"content", "so"}, {"tool_calls", {f_said}}},
       {speaks, f},
       "tool_calls",
       {"message completed", "function_call completed"}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(statuses(whole(chat_answer(c.message, c.finish))), c.expected) << c.message;
    EXPECT_EQ(statuses(streamed(c.deltas, c.finish)), c.expected) << c.message;
  }
  const auto behind = ElementsAre("function_call completed", "message incomplete");
  EXPECT_THAT(statuses(whole(whole_answer({f, speaks}, "length"))), behind);
  EXPECT_THAT(statuses(streamed({f, speaks}, "length")), behind);
}

/// The output without its ids, which are random.
json output_of(json response) {
  for (json& item : response["output"]) item.erase("id");
  return response["output"];
}

TEST(ResponsesAnswer, AWholeOneHasTheItemsOfItsStream) {
  std::mt19937 random(3);
  for (int round = 0; round < 100; ++round) {
    const std::vector<json> deltas = testing::random_deltas(random);
    const char* finish = random() % 2 == 0 ? "length" : "tool_calls";
    const json expected = output_of(streamed(deltas, finish));
    ASSERT_EQ(output_of(whole(whole_answer(testing::joined(deltas), finish))), expected) << json(deltas);
    ASSERT_EQ(output_of(streamed(testing::joined(deltas), finish)), expected) << json(deltas);
  }
}

TEST(ResponsesAnswer, AStreamIsWhatTheWholeResponseSays) {
  Shelf shelf;
  ResponsesAnswer a(shelf.frame());
  std::string text = say(a, {chat_chunk({{"role", "assistant"}, {"content", ""}}), chat_chunk({{"content", "he"}}),
                             chat_chunk({{"content", "y"}}), chat_chunk(call_delta(0, "", "id0", "f")),
                             chat_chunk(call_delta(0, "{\"a\"")), chat_chunk(call_delta(0, ":1}")),
                             chat_chunk(call_delta(1, "{}", "id1", "g")), chat_chunk(json::object(), "tool_calls"),
                             usage_chunk(10, 4, 9)});
  bool settled = false;
  a.settle([&] { settled = true; });
  EXPECT_FALSE(settled) << "it waits until it is kept";
  shelf.then(true);
  ASSERT_TRUE(settled);
  text += a.end();
  const auto events = events_in(text);
  EXPECT_THAT(
      names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                  "response.output_text.done", "response.content_part.done", "response.output_item.done",
                  "response.output_item.added", "response.function_call_arguments.delta",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.output_item.added", "response.function_call_arguments.delta",
                  "response.function_call_arguments.done", "response.output_item.done", "response.completed"));
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].data["type"], events[i].name);
    EXPECT_EQ(events[i].data["sequence_number"], i);
  }
  EXPECT_EQ(events[0].data["response"]["status"], "in_progress");
  EXPECT_EQ(events[0].data["response"]["usage"], nullptr);
  EXPECT_EQ(events[5].data["delta"], "y");
  EXPECT_EQ(events[5].data["item_id"], events[2].data["item"]["id"]);
  EXPECT_EQ(events[6].data["text"], "hey");
  EXPECT_EQ(events[7].data["part"]["text"], "hey");
  EXPECT_EQ(events[12].data["arguments"], "{\"a\":1}");
  EXPECT_EQ(events[12].data["output_index"], 1);
  const json& response = events.back().data["response"];
  EXPECT_EQ(response["output"], json({events[8].data["item"], events[13].data["item"], events[17].data["item"]}));
  EXPECT_EQ(response["output"][2]["name"], "g");
  EXPECT_EQ(response["usage"]["total_tokens"], 19);
  EXPECT_EQ(response["store"], true);
  EXPECT_EQ(shelf.record["response"], response) << "what is kept is what was said";
  EXPECT_EQ(shelf.record["input"][0]["id"], "msg_in");
}

TEST(ResponsesAnswer, OneThatCouldNotBeKeptSaysSo) {
  Shelf shelf;
  ResponsesAnswer a(shelf.frame());
  a.read_whole(chat_answer({{"content", "x"}}, "stop"));
  a.settle([] {});
  shelf.then(false);
  EXPECT_EQ(json::parse(a.whole())["store"], false);
}

TEST(ResponsesAnswer, AnEmptyStreamHasAnEmptyMessage) {
  ResponsesAnswer a(frame());
  std::string text =
      say(a, {chat_chunk({{"role", "assistant"}, {"content", ""}}), chat_chunk(json::object(), "length")});
  a.settle([] {});
  text += a.end();
  const auto events = events_in(text);
  EXPECT_EQ(events.back().name, "response.incomplete");
  EXPECT_EQ(events.back().data["response"]["output"][0]["content"][0]["text"], "");
}

TEST(ResponsesAnswer, AStreamThatThinksAndFails) {
  ResponsesAnswer a(frame());
  std::string text = say(a, {chat_chunk({{"reasoning_content", "so"}}), chat_chunk({{"content", "x"}})});
  text += a.failed(from_status(exhausted("full")));
  const auto events = events_in(text);
  EXPECT_THAT(
      names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta", "response.reasoning_text.done",
                  "response.content_part.done", "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta", "response.failed"));
  const json& response = events.back().data["response"];
  EXPECT_EQ(response["status"], "failed");
  EXPECT_EQ(response["error"], json::parse(R"({"code": "rate_limit_error", "message": "full"})"));
}

}  // namespace
}  // namespace moestro::orchestrator
