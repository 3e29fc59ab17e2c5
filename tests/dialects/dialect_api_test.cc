// Anthropic's and llama-server's routes over the API and a worker that answers with given texts.

#include "orchestrator/dialects/dialect_api.h"

#include <gmock/gmock.h>

#include "tests/dialects/dialect_events.h"
#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DialectApiTest : public ApiTest {
 protected:
  explicit DialectApiTest(bool lenient = false)
      : ApiTest(testing::byte_model(), /*queue_max=*/64, /*steps_in_flight=*/1, {.lenient = lenient}),
        dialects_(*service_, lenient) {
    service_->extend(dialects_);
    says_ = {"hey"};
  }
  static json messages(const std::string& text, json more = json::object()) {
    json body{{"max_tokens", 9}, {"messages", json::array({{{"role", "user"}, {"content", text}}})}};
    body.update(more);
    return body;
  }
  json ask(const std::string& path, const json& body, int status = 200) {
    const auto exchange = complete(body, path);
    EXPECT_EQ(exchange->status, status) << exchange->body;
    return exchange->json();
  }

  DialectApi dialects_;
};

class LenientDialectApiTest : public DialectApiTest {
 protected:
  LenientDialectApiTest() : DialectApiTest(/*lenient=*/true) {}
};

TEST_F(LenientDialectApiTest, WhatIsIgnoredIsNamed) {
  join();
  const auto ignored = [&](const std::string& path, const json& body) {
    const auto exchange = complete(body, path);
    EXPECT_TRUE(exchange->streaming || exchange->status == 200) << path << ' ' << exchange->body;
    return exchange->header("X-Moestro-Ignored");
  };
  const json tool{{"name", "f"}, {"input_schema", {{"type", "object"}}}, {"colour", 1}};
  EXPECT_EQ(ignored("/v1/messages", messages("hi", {{"colour", 1}})), "colour");
  EXPECT_EQ(ignored("/v1/messages", messages("hi", {{"colour", 1}, {"stream", true}})), "colour");
  EXPECT_EQ(ignored("/v1/messages", messages("hi", {{"moestro", {{"colour", 1}}}})), "moestro.colour");
  EXPECT_EQ(ignored("/v1/messages/count_tokens", messages("hi", {{"colour", 1}})), "colour");
  EXPECT_EQ(ignored("/v1/messages/count_tokens", messages("hi")), "");
  EXPECT_EQ(ignored("/v1/messages/count_tokens",
                    messages("hi", {{"tools", {tool}}, {"tool_choice", {{"type", "none"}}}})),
            "tools.colour");
  EXPECT_EQ(ignored("/completion", {{"prompt", "a"}, {"n_predict", 2}, {"colour", 1}}), "colour");
}

TEST_F(DialectApiTest, MessagesAreAnswered) {
  join();
  const json answer = ask("/v1/messages", messages("hi"));
  EXPECT_EQ(answer["content"], json::parse(R"([{"type": "text", "text": "hey"}])"));
  EXPECT_EQ(answer["stop_reason"], "end_turn");
  EXPECT_EQ(answer["usage"]["input_tokens"], 7) << "u:hi a:";
  EXPECT_EQ(answer["usage"]["output_tokens"], 4);
  EXPECT_EQ(ask("/v1/messages", messages("hi", {{"max_tokens", 2}}))["stop_reason"], "max_tokens");
}

TEST_F(DialectApiTest, MessagesAreStreamed) {
  join();
  const auto exchange = complete(messages("hi", {{"stream", true}}), "/v1/messages");
  const auto events = events_in(exchange->body);
  std::string text;
  for (const NamedEvent& e : events)
    if (e.name == "content_block_delta") text += e.data["delta"]["text"].get<std::string>();
  EXPECT_EQ(text, "hey");
  EXPECT_EQ(events.front().name, "message_start");
  EXPECT_EQ(events.back().name, "message_stop");
  EXPECT_EQ(events[events.size() - 2].data["usage"]["input_tokens"], 7);
}

/// Both routes pass `moestro` on and say what became of it.
TEST_F(DialectApiTest, LowCopiesAreAskedForAndReported) {
  worker_.join({.model = name_, .mixed = true});
  double share_max = -1;
  const auto answer = [&](const std::string& path, json body, json own) {
    if (!own.is_null()) body["moestro"] = std::move(own);
    const auto exchange = post(path, body);
    while (!exchange->done) {
      run_posted();
      const auto plan = worker_.try_plan(std::chrono::milliseconds(2));
      if (!plan) continue;
      PlanOutcome outcome = compute_texts(*plan);
      share_max = plan->sequences[0].low_share_max;
      for (SequenceOutcome& s : outcome.sequences) s.copies = {8, 2, 1};
      worker_.answer(outcome);
    }
    return exchange;
  };
  const json shares{{"low_share", 0.25}, {"skipped_share", 0.125}}, limit{{"mixed_max_share", 0.5}};
  EXPECT_EQ(answer("/v1/messages", messages("hi"), limit)->json()["usage"]["moestro"], shares);
  EXPECT_EQ(share_max, 0.5);
  EXPECT_EQ(answer("/v1/messages", messages("hi"), nullptr)->json()["usage"]["moestro"], shares);
  EXPECT_EQ(share_max, 1);
  answer("/v1/messages", messages("hi"), {{"mixed", false}});
  EXPECT_EQ(share_max, 0);
  const json text{{"prompt", "hi"}, {"n_predict", 3}};
  EXPECT_EQ(answer("/completion", text, limit)->json()["moestro"], shares);
  EXPECT_EQ(share_max, 0.5);

  const auto events = events_in(answer("/v1/messages", messages("hi", {{"stream", true}}), limit)->body);
  EXPECT_EQ(events[events.size() - 2].data["usage"]["moestro"], shares) << "of message_delta";
  json stream = text;
  stream["stream"] = true;
  const auto pieces = events_in(answer("/completion", stream, limit)->body);
  EXPECT_EQ(pieces.back().data["moestro"], shares);
  EXPECT_FALSE(pieces.front().data.contains("moestro"));
}

TEST_F(DialectApiTest, WhatIsWrongWithMoestroIsSaidInTheDialectsShape) {
  join();
  const json wrong = ask("/v1/messages", messages("hi", {{"moestro", {{"mixed_max_share", 2}}}}), 400);
  EXPECT_EQ(wrong["error"]["type"], "invalid_request_error");
  EXPECT_THAT(wrong["error"]["message"].get<std::string>(), HasSubstr("mixed_max_share"));
  const json off = ask("/completion", {{"prompt", "hi"}, {"moestro", {{"mixed", true}}}}, 400);
  EXPECT_THAT(off["error"]["message"].get<std::string>(), HasSubstr("no worker with --mixed is connected"));
  EXPECT_FALSE(ask("/completion", {{"prompt", "hi"}, {"n_predict", 2}}).contains("moestro"));
}

TEST_F(DialectApiTest, TokensAreCountedWithoutAWorker) {
  EXPECT_EQ(ask("/v1/messages/count_tokens", {{"messages", messages("hi")["messages"]}}),
            json::parse(R"({"input_tokens": 7})"));
  const json too_long = ask("/v1/messages/count_tokens", messages(std::string(200, 'x')));
  EXPECT_GT(too_long["input_tokens"], kContext);
}

TEST_F(DialectApiTest, ErrorsOfAllKindsHaveTheDialectsShape) {
  EXPECT_EQ(ask("/v1/messages", messages("hi"), 503)["error"]["type"], "overloaded_error") << "no worker yet";
  join();
  const auto refused = [&](const json& body, int status = 400) { return ask("/v1/messages", body, status)["error"]; };
  EXPECT_THAT(refused({{"messages", 5}})["message"], HasSubstr("'messages'"));
  EXPECT_THAT(refused(messages("hi", {{"stop_sequences", json::array({5})}}))["message"],
              HasSubstr("'stop_sequences'"));
  EXPECT_THAT(refused(messages(std::string(200, 'x')))["message"], HasSubstr("context"));
  EXPECT_EQ(refused(messages("hi", {{"model", "other"}}), 404)["type"], "not_found_error");
  const auto broken = send("POST", "/v1/messages", "{");
  EXPECT_EQ(broken->json()["type"], "error");
  EXPECT_THAT(broken->json()["error"]["message"], HasSubstr("JSON"));
  const auto method = send("GET", "/v1/messages");
  EXPECT_EQ(method->status, 405);
  EXPECT_EQ(method->json()["type"], "error");
  EXPECT_EQ(ask("/completion", {{"prompt", 5}}, 400)["error"]["code"], 400);
  EXPECT_EQ(send("POST", "/v1/messages/other", "{}")->status, 404);
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("result=\"refused\"} 7")) << "and they are counted";
}

TEST_F(DialectApiTest, ErrorsThatComeBeforeTheRoute) {
  ApiError e = bad_request("no key");
  e.http_status = 401;
  EXPECT_EQ(json::parse(error_body_for("/v1/messages", e, ""))["error"]["type"], "authentication_error");
  EXPECT_EQ(json::parse(error_body_for("/completion", e, ""))["error"]["code"], 401);
  EXPECT_EQ(json::parse(error_body_for("/v1/completions", e, ""))["error"]["code"], nullptr);
}

TEST_F(DialectApiTest, LlamaCompletions) {
  join();
  const json answer = ask("/completion", {{"prompt", json::array({"h", 105})}, {"return_tokens", true}});
  EXPECT_EQ(answer["content"], "hey");
  EXPECT_EQ(answer["prompt"], "hi");
  EXPECT_EQ(answer["tokens_evaluated"], 2);
  EXPECT_EQ(answer["tokens_predicted"], 4);
  EXPECT_EQ(answer["tokens"], json::array({'h', 'e', 'y', kEnd}));
  EXPECT_EQ(answer["stop_type"], "eos");
  EXPECT_EQ(answer["generation_settings"]["top_k"], 40);
  EXPECT_EQ(answer["model"], "m");
}

TEST_F(DialectApiTest, LlamaCompletionsEndWithTheContextIfNothingElseEndsThem) {
  join();
  says_ = {std::string(100, 'x')};
  const json answer = ask("/completion", {{"prompt", "hi"}});
  EXPECT_EQ(answer["tokens_predicted"], kContext - 2);
  EXPECT_EQ(answer["stop_type"], "limit");
}

TEST_F(DialectApiTest, LlamaCompletionsAreStreamed) {
  join();
  const auto exchange = complete({{"prompt", "hi"}, {"stream", true}, {"n_probs", 1}}, "/completion");
  EXPECT_EQ(exchange->body.find("[DONE]"), std::string::npos);
  const auto events = events_in(exchange->body);
  std::string text;
  for (const NamedEvent& e : events) {
    text += e.data["content"].get<std::string>();
    EXPECT_EQ(e.data["stop"], &e == &events.back());
  }
  EXPECT_EQ(text, "hey");
  EXPECT_EQ(events[0].data["completion_probabilities"][0]["token"], "h");
  EXPECT_EQ(events.back().data["timings"]["predicted_n"], 4);
  EXPECT_TRUE(events.back().data["timings"].contains("prompt_ms"));
}

TEST_F(DialectApiTest, LargeBodiesAreReadElsewhere) {
  join();
  json body = messages("hi");
  body["metadata"] = {{"filler", std::string(100 << 10, 'x')}};
  const auto exchange = post("/v1/messages", body);
  EXPECT_FALSE(worker_.try_plan(std::chrono::milliseconds(0))) << "not here and now";
  finish(*exchange);
  EXPECT_EQ(exchange->json()["content"][0]["text"], "hey");
}

TEST_F(DialectApiTest, AClientThatLeavesEndsItsRequest) {
  join();
  const auto exchange = post("/v1/messages", messages("hi", {{"stream", true}}));
  run_until([&] { return exchange->body.find("content_block_delta") != std::string::npos; });
  std::exchange(exchange->gone, nullptr)();
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("result=\"cancelled\"} 1"));
}

TEST_F(DialectApiTest, ASlowReaderGetsTheSameTextInFewerEvents) {
  join();
  const auto exchange = post("/v1/messages", messages("hi", {{"stream", true}}));
  exchange->is_crowded = true;
  run_until([&] { return control_->snapshot().sampled_tokens == 4; });
  EXPECT_EQ(exchange->body.find("content_block_delta"), std::string::npos);
  exchange->is_crowded = false;
  exchange->drained();
  finish(*exchange);
  std::string text;
  for (const NamedEvent& e : events_in(exchange->body))
    if (e.name == "content_block_delta") text += e.data["delta"]["text"].get<std::string>();
  EXPECT_EQ(text, "hey");
}

}  // namespace
}  // namespace moestro::orchestrator
