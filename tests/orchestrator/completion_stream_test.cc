// Answers as streams, and answers that break off.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class CompletionStreamTest : public ApiTest {
 protected:
  CompletionStreamTest() { join(); }
  /// The events of a stream that ends as it should, without the last one.
  std::vector<json> stream(json body, const std::string& path = "/v1/completions") {
    body["stream"] = true;
    const auto exchange = complete(body, path);
    EXPECT_TRUE(exchange->streaming) << exchange->body;
    return without_done(*exchange);
  }
  static std::vector<json> without_done(const FakeExchange& exchange) {
    auto events = exchange.events();
    MOESTRO_CHECK(!events.empty() && events.back() == "[DONE]", exchange.body);
    events.pop_back();
    return events;
  }
  /// The tokens in the log-probabilities of each of `n` choices, of a whole answer or of chunks.
  static std::vector<std::vector<std::string>> scored(const std::vector<json>& answers, size_t n) {
    std::vector<std::vector<std::string>> all(n);
    for (const json& answer : answers)
      for (const json& c : answer["choices"]) {
        auto& tokens = all.at(c["index"].get<size_t>());
        const json& said = c["logprobs"];
        if (!said.is_object()) continue;
        if (said.contains("content"))
          for (const json& t : said["content"]) tokens.push_back(t["token"]);
        else
          for (const json& t : said["tokens"]) tokens.push_back(t);
      }
    return all;
  }
  /// What the chunks of one choice say together.
  static std::string text(const std::vector<json>& events, int index = 0) {
    std::string all;
    for (const json& e : events)
      for (const json& c : e["choices"])
        if (c["index"] == index)
          all += c.contains("text") ? c["text"].get<std::string>() : c["delta"].value("content", "");
    return all;
  }
};

TEST_F(CompletionStreamTest, ChunksJoinToTheAnswer) {
  says_ = {"hello"};
  const auto events = stream({{"prompt", "ab"}, {"max_tokens", 5}});
  EXPECT_EQ(text(events), "hello");
  for (const json& e : events) {
    EXPECT_EQ(e["object"], "text_completion");
    EXPECT_EQ(e["choices"][0]["finish_reason"], &e == &events.back() ? json("length") : json());
    EXPECT_FALSE(e.contains("usage"));
  }
}

TEST_F(CompletionStreamTest, UsageComesLastIfAskedFor) {
  says_ = {"hello"};
  const auto events = stream({{"prompt", "ab"}, {"max_tokens", 5}, {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(events.back()["choices"], json::array());
  EXPECT_EQ(events.back()["usage"], (json{{"prompt_tokens", 2},
                                          {"completion_tokens", 5},
                                          {"total_tokens", 7},
                                          {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
}

TEST_F(CompletionStreamTest, ChoicesHaveTheirOwnTexts) {
  says_ = {"one", "longer", ""};
  const auto events = stream({{"prompt", "ab"}, {"max_tokens", 10}, {"n", 3}});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(text(events, i), says_[static_cast<size_t>(i)]);
  std::map<int, int> ends;
  for (const json& e : events)
    if (e["choices"][0]["finish_reason"] == "stop") ++ends[e["choices"][0]["index"].get<int>()];
  EXPECT_EQ(ends, (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}}));
}

TEST_F(CompletionStreamTest, NothingOfAStopStringGetsOut) {
  says_ = {"ab EN ENDcd"};
  const auto events = stream({{"prompt", "x"}, {"max_tokens", 30}, {"stop", "END"}});
  EXPECT_EQ(text(events), "ab EN ");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
}

TEST_F(CompletionStreamTest, TokensOfAStopStringAreInNoLogprobs) {
  const std::vector<std::string> cut{"a", "b", " ", "E", "N", " "}, kept{"a", "b", " ", "E", "N", " ", "E", "N", "D"};
  for (const bool include : {false, true})
    for (const bool chat : {false, true}) {
      says_ = {"ab EN ENDcd", "END", "abEN"};
      json body{{"max_tokens", 20}, {"n", 3}, {"stop", "END"}, {"include_stop_str_in_output", include}};
      body.update(chat ? json{{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"logprobs", true}}
                       : json{{"prompt", "x"}, {"logprobs", 0}});
      const std::string path = chat ? "/v1/chat/completions" : "/v1/completions";
      const auto whole = scored({complete(body, path)->json()}, 3);
      EXPECT_EQ(whole[0], include ? kept : cut);
      EXPECT_EQ(whole[1].size(), include ? 3u : 0u);
      EXPECT_EQ(whole[2], (std::vector<std::string>{"a", "b", "E", "N", "<|end|>"})) << "no stop string came of it";
      EXPECT_EQ(scored(stream(body, path), 3), whole) << path << (include ? ", with the stop string" : "");
    }
}

TEST_F(CompletionStreamTest, CharactersComeWhole) {
  says_ = {"aé€"};
  for (const json& e : stream({{"prompt", "x"}, {"max_tokens", 6}}))
    EXPECT_EQ(e["choices"][0]["text"].get<std::string>().find("\uFFFD"), std::string::npos);
}

TEST_F(CompletionStreamTest, ScoresOfThePromptComeWithTheEcho) {
  says_ = {"d"};
  const auto events = stream({{"prompt", "abc"}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}});
  EXPECT_EQ(text(events), "abcd");
  json tokens = json::array(), offsets = json::array();
  for (const json& e : events)
    if (const json& l = e["choices"][0]["logprobs"]; !l.is_null()) {
      for (const json& t : l["tokens"]) tokens.push_back(t);
      for (const json& o : l["text_offset"]) offsets.push_back(o);
    }
  EXPECT_EQ(tokens, (json{"a", "b", "c", "d"}));
  EXPECT_EQ(offsets, (json{0, 1, 2, 3}));
}

TEST_F(CompletionStreamTest, AChatBeginsWithItsRole) {
  says_ = {"yes"};
  const auto events = stream({{"messages", {{{"role", "user"}, {"content", "hi"}}}}}, "/v1/chat/completions");
  EXPECT_EQ(events.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(events.front()["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_EQ(text(events), "yes");
  EXPECT_EQ(events.back()["choices"][0]["delta"], json::object());
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
}

/// Answers the next plan with an error of its only sequence.
class FailingTest : public CompletionStreamTest {
 protected:
  void fail_next(const Status& error) {
    PlanOutcome outcome = compute_texts(worker_.hear_plan());
    outcome.sequences.at(0) = SequenceOutcome{outcome.sequences[0].id, {}, {}, error};
    worker_.answer(outcome);
  }
};

TEST_F(FailingTest, AnErrorAmidAStreamIsItsLastEventButOne) {
  says_ = {"hello"};
  const auto exchange = post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 5}, {"stream", true}});
  worker_.answer(compute_texts(worker_.hear_plan()));
  fail_next(corrupt("expert 3 of layer 1 is bad"));
  finish(*exchange);
  const auto events = without_done(*exchange);
  EXPECT_EQ(events.front()["choices"][0]["text"], "h");
  EXPECT_EQ(
      events.back()["error"],
      (json{
          {"message", "expert 3 of layer 1 is bad"}, {"type", "server_error"}, {"param", nullptr}, {"code", nullptr}}));
}

TEST_F(FailingTest, AnErrorBeforeAnyTextIsAnAnswer) {
  const auto exchange = post("/v1/completions", {{"prompt", "ab"}});
  fail_next(corrupt("expert 3 of layer 1 is bad"));
  finish(*exchange);
  EXPECT_EQ(exchange->status, 500);
  EXPECT_EQ(exchange->json()["error"]["message"], "expert 3 of layer 1 is bad");
}

TEST_F(FailingTest, OneChoiceThatFailsEndsTheOthers) {
  says_ = {"one", "two"};
  const auto exchange = post("/v1/completions", {{"prompt", "ab"}, {"n", 2}});
  const Plan plan = worker_.hear_plan();
  PlanOutcome outcome = compute_texts(plan);
  outcome.sequences.at(0) = SequenceOutcome{outcome.sequences[0].id, {}, {}, unavailable("the store is gone")};
  worker_.answer(outcome);
  run_until([&] { return exchange->done; });
  EXPECT_EQ(exchange->status, 503);
  EXPECT_EQ(exchange->header("Retry-After"), "1");
  // Nothing of it is left: the next request starts alone.
  EXPECT_EQ(complete({{"prompt", "c"}, {"max_tokens", 3}})->json()["choices"][0]["text"], "one");
  run_until([&] { return control_->snapshot().kv_blocks_used == 0; });
}

TEST_F(FailingTest, AClientThatLeavesFreesItsSequences) {
  says_ = {std::string(50, 'x')};
  const auto exchange = post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 50}, {"stream", true}});
  const Plan plan = worker_.hear_plan();
  exchange->gone();
  worker_.answer(compute_texts(plan));
  run_until([&] {
    const ControlSnapshot s = control_->snapshot();
    return s.plans > 0 && s.running + s.waiting == 0;
  });
  EXPECT_LE(control_->snapshot().plans, 2u) << "it was computed on for nobody";
  EXPECT_EQ(control_->snapshot().kv_blocks_used, 0u);
  EXPECT_FALSE(exchange->done) << "there is nobody to answer";
}

TEST_F(FailingTest, ShuttingDownIsSaid) {
  const auto whole = post("/v1/completions", {{"prompt", "ab"}});
  const auto streamed = post("/v1/completions", {{"prompt", "ab"}, {"stream", true}});
  control_->drain(std::chrono::milliseconds(0));
  run_posted();
  EXPECT_EQ(whole->status, 503);
  EXPECT_THAT(whole->json()["error"]["message"].get<std::string>(), HasSubstr("shutting down"));
  EXPECT_TRUE(without_done(*streamed).back().contains("error"));
  const auto late = post("/v1/completions", {{"prompt", "ab"}});
  EXPECT_EQ(late->status, 503);
  EXPECT_THAT(send("GET", "/health")->body, HasSubstr("shutting down"));
}

TEST_F(CompletionStreamTest, AReaderThatIsBehindGetsTheRestInOneChunk) {
  says_ = {"hello there", "hi"};
  const auto exchange = post(
      "/v1/completions",
      {{"prompt", "ab"}, {"max_tokens", 11}, {"n", 2}, {"stream", true}, {"logprobs", 1}, {"return_token_ids", true}});
  run_until([&] { return !exchange->events().empty(); });
  const size_t before = exchange->events().size();
  exchange->is_crowded = true;
  run_until([&] {
    const ControlSnapshot s = control_->snapshot();
    return s.plans > 0 && s.running + s.waiting == 0;
  });
  while (run_posted()) {
  }
  EXPECT_EQ(exchange->events().size(), before) << "its sequences have ended, and it has not been told";
  EXPECT_FALSE(exchange->done);
  exchange->is_crowded = false;
  exchange->drained();
  EXPECT_TRUE(exchange->done);
  const auto events = without_done(*exchange);
  EXPECT_GT(events.size(), before);
  EXPECT_LE(events.size(), before + 2) << "one chunk for each choice: " << exchange->body;
  EXPECT_EQ(text(events, 0), "hello there");
  EXPECT_EQ(text(events, 1), "hi");
  size_t ids = 0, scores = 0, ends = 0;
  for (const json& e : events)
    for (const json& c : e["choices"]) {
      ids += c["token_ids"].size();
      if (c["logprobs"].is_object()) scores += c["logprobs"]["tokens"].size();
      if (!c["finish_reason"].is_null()) ++ends;
    }
  EXPECT_EQ(ids, 14u) << "11 tokens; 2 and the end";
  EXPECT_EQ(scores, ids);
  EXPECT_EQ(ends, 2u);
}

TEST_F(FailingTest, AReaderThatIsBehindHearsWhatCameBeforeAnError) {
  says_ = {"hello"};
  const auto exchange = post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 5}, {"stream", true}});
  worker_.answer(compute_texts(worker_.hear_plan()));
  run_until([&] { return exchange->body.find("data:") != std::string::npos; });
  exchange->is_crowded = true;
  const size_t shown = exchange->events().size();
  worker_.answer(compute_texts(worker_.hear_plan()));
  fail_next(corrupt("expert 3 of layer 1 is bad"));
  finish(*exchange);
  const auto events = without_done(*exchange);
  const std::string heard = text({events.begin(), events.end() - 1});
  EXPECT_GT(heard.size(), shown) << "what was kept back is told before the error";
  EXPECT_TRUE(says_[0].starts_with(heard)) << heard;
  EXPECT_TRUE(events.back().contains("error"));
}

}  // namespace
}  // namespace moestro::orchestrator
