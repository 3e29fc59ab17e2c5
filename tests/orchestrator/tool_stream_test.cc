// Streams of answers with tool calls.

#include <gmock/gmock.h>

#include "tests/orchestrator/tools_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;

using ToolStreamTest = ToolsTest;

TEST_F(ToolStreamTest, CallsAreStreamed) {
  says_ = {"Hm. <tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": true}}\n</tool_call>"};
  json body = request();
  body["stream"] = true;
  const auto exchange = complete(body, "/v1/chat/completions");
  std::string content, arguments, name, reason;
  size_t pieces = 0;
  for (const json& e : exchange->events()) {
    if (!e.is_object()) continue;
    const json& c = e["choices"][0];
    if (c["delta"].contains("content") && c["delta"]["content"].is_string())
      content += c["delta"]["content"].get<std::string>();
    for (const json& call : c["delta"].value("tool_calls", json::array())) {
      EXPECT_EQ(call["index"], 0);
      EXPECT_EQ(call.contains("id"), name.empty()) << "the first piece has id and name, and no other";
      name += call["function"].value("name", "");
      arguments += call["function"]["arguments"].get<std::string>();
      ++pieces;
    }
    if (c["finish_reason"].is_string()) reason = c["finish_reason"];
  }
  EXPECT_EQ(content, "Hm.");
  EXPECT_EQ(name, "g");
  EXPECT_EQ(arguments, "{\"a\": true}");
  EXPECT_GT(pieces, 3u) << "arguments come as they are said";
  EXPECT_EQ(reason, "tool_calls");
}

/// A reader that is behind gets it all at once: then too the model's order stands.
TEST_F(ToolStreamTest, AStreamHasTextAndCallsInTheModelsOrder) {
  const std::string call = "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": true}}\n</tool_call>";
  says_ = {"Hm. " + call + "then" + call + "end"};
  json body = request();
  body["stream"] = body["logprobs"] = true;
  for (const bool behind : {false, true}) {
    const auto plans = control_->snapshot().plans;
    const auto exchange = post("/v1/chat/completions", body);
    exchange->is_crowded = behind;
    run_until([&] {
      const ControlSnapshot s = control_->snapshot();
      return exchange->done || (s.plans > plans && s.running + s.waiting == 0);
    });
    while (run_posted()) {
    }
    if (std::exchange(exchange->is_crowded, false)) exchange->drained();
    ASSERT_TRUE(exchange->done);
    std::vector<std::string> order;
    const auto note = [&](const std::string& item) {
      if (order.empty() || order.back() != item) order.push_back(item);
    };
    std::string content;
    size_t ends = 0, scored = 0;
    for (const json& e : exchange->events()) {
      if (!e.is_object()) continue;
      const json& c = e["choices"][0];
      if (const std::string text = c["delta"].value("content", ""); !text.empty()) content += text, note("text");
      for (const json& said : c["delta"].value("tool_calls", json::array())) note("call " + said["index"].dump());
      ends += c["finish_reason"].is_string();
      if (c["logprobs"].is_object()) scored += c["logprobs"]["content"].size();
    }
    EXPECT_THAT(order, ::testing::ElementsAre("text", "call 0", "text", "call 1", "text")) << behind;
    EXPECT_EQ(content, "Hm.thenend");
    EXPECT_EQ(ends, 1u);
    EXPECT_EQ(scored, says_[0].size() + 1) << "and the end token";
  }
}

}  // namespace
}  // namespace moestro::orchestrator
