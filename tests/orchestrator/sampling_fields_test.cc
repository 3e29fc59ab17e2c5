// Fields that say where an answer ends and which tokens it may have, from the body to the answer.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class SamplingFieldsTest : public ApiTest {
 protected:
  SamplingFieldsTest() { join(); }
  json answer(json body) {
    body.emplace("prompt", "ab");
    body.emplace("max_tokens", 20);
    const auto exchange = complete(body);
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    return exchange->json();
  }
  json choice(const json& body) { return answer(body)["choices"].at(0); }
  std::string text(const json& body) { return choice(body)["text"]; }
  void expect_refused(json body, const std::string& param, const std::string& words) {
    body.emplace("prompt", "ab");
    const auto exchange = complete(body);
    EXPECT_EQ(exchange->status, 400) << body;
    EXPECT_EQ(exchange->json()["error"]["param"], param) << exchange->body;
    EXPECT_THAT(exchange->json()["error"]["message"].get<std::string>(), HasSubstr(words));
  }
};

TEST_F(SamplingFieldsTest, AStopTokenEndsTheAnswer) {
  says_ = {"hi you"};
  const json c = choice({{"stop_token_ids", {int{'y'}, 1}}, {"return_token_ids", true}});
  EXPECT_EQ(c["text"], "hi ");
  EXPECT_EQ(c["finish_reason"], "stop");
  EXPECT_EQ(c["stop_reason"], int{'y'});
  EXPECT_EQ(c["token_ids"], (json{'h', 'i', ' ', 'y'}));
  EXPECT_EQ(text({{"stop_token_ids", {int{'y'}}}, {"include_stop_str_in_output", true}}), "hi y");
  expect_refused({{"stop_token_ids", {257}}}, "stop_token_ids", "257");
  expect_refused({{"stop_token_ids", {-1}}}, "stop_token_ids", "-1");
}

TEST_F(SamplingFieldsTest, StopReasonSaysWhatEndedIt) {
  says_ = {"ab END"};
  EXPECT_EQ(choice({{"stop", {"x", "END"}}})["stop_reason"], "END");
  EXPECT_EQ(choice(json::object())["stop_reason"], nullptr) << "the end token";
  EXPECT_EQ(choice({{"max_tokens", 2}})["stop_reason"], nullptr) << "max_tokens";
  EXPECT_EQ(choice({{"stop_token_ids", {kEnd}}})["stop_reason"], nullptr) << "the end token again";
  const json c = choice({{"stop_token_ids", {kEnd}}, {"ignore_eos", true}});
  EXPECT_EQ(c["stop_reason"], kEnd) << "ignored as the end, and asked for as a stop token";
  EXPECT_EQ(c["text"], "ab END");
}

TEST_F(SamplingFieldsTest, StreamsSayItInTheLastChunk) {
  says_ = {"abc"};
  const auto exchange = complete({{"prompt", "x"}, {"stream", true}, {"stop_token_ids", {int{'c'}}}});
  const auto events = exchange->events();
  ASSERT_GE(events.size(), 3u);
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json& c = events[i]["choices"][0];
    EXPECT_EQ(c.contains("stop_reason"), i + 2 == events.size()) << "beside finish_reason";
    text += c["text"].get<std::string>();
  }
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["stop_reason"], int{'c'});
  EXPECT_EQ(text, "ab");
}

TEST_F(SamplingFieldsTest, StopStringsMayStayInTheText) {
  says_ = {"ab END more"};
  EXPECT_EQ(text({{"stop", "END"}, {"include_stop_str_in_output", true}}), "ab END");
}

TEST_F(SamplingFieldsTest, NoEndBeforeMinTokens) {
  says_ = {"a"};
  const json c = choice({{"min_tokens", 3}, {"return_token_ids", true}});
  EXPECT_EQ(c["token_ids"], (json{'a', 0, 0, kEnd})) << "the test's worker says the lowest that is allowed";
  says_ = {".a.b.c"};
  EXPECT_EQ(text({{"min_tokens", 2}, {"stop", "."}}), ".a");
  says_ = {"aaa"};
  EXPECT_EQ(choice({{"min_tokens", 2}, {"stop_token_ids", {int{'a'}}}, {"return_token_ids", true}})["token_ids"],
            (json{0, 0, 'a'}));
  expect_refused({{"min_tokens", 1}, {"allowed_token_ids", {kEnd}}}, "min_tokens", "end the answer");
}

TEST_F(SamplingFieldsTest, OnlyAllowedTokens) {
  says_ = {"abcabc"};
  const json c = choice({{"allowed_token_ids", {int{'b'}, int{'c'}}}, {"max_tokens", 8}});
  EXPECT_EQ(c["text"], "bbcbbcbb") << "the lowest instead of others, and no end token: it is not among them";
  EXPECT_EQ(c["finish_reason"], "length");
  expect_refused({{"allowed_token_ids", {300}}}, "allowed_token_ids", "300");
}

TEST_F(SamplingFieldsTest, BadWordsAreNotSaid) {
  says_ = {"one two"};
  EXPECT_EQ(text({{"bad_words", {"two"}}}), std::string("one tw") + '\0') << "only its last token, behind the others";
  EXPECT_EQ(text({{"bad_words", {"x", "n"}}}), std::string("o") + '\0' + "e two");
  says_ = {"two"};
  EXPECT_EQ(text({{"bad_words", {" two"}}}), std::string("tw") + '\0') << "where a text begins, too";
  expect_refused({{"allowed_token_ids", {int{'a'}}}, {"bad_words", {"a"}}}, "bad_words", "no token");
}

TEST_F(SamplingFieldsTest, RulesJoinWhatASchemaAllows) {
  says_ = {"12345"};
  json body{{"bad_words", {"23"}},
            {"min_tokens", 2},
            {"max_tokens", 8},
            {"response_format",
             {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", {{"type", "integer"}}}}}}}};
  const std::string number = text(body);
  EXPECT_TRUE(json::parse(number).is_number_integer()) << number;
  EXPECT_EQ(number.find("23"), std::string::npos);
  EXPECT_TRUE(number.starts_with("12")) << number;
  body["allowed_token_ids"] = {int{'x'}, kEnd};
  const auto exchange = complete({{"prompt", "a"},
                                  {"allowed_token_ids", body["allowed_token_ids"]},
                                  {"response_format", body["response_format"]}});
  EXPECT_EQ(exchange->status, 400) << exchange->body;
  EXPECT_THAT(exchange->body, HasSubstr("allowed_token_ids"));
}

TEST_F(SamplingFieldsTest, SpecialTokensAreShownOnRequest) {
  says_ = {"hi"};
  const json body{{"ignore_eos", true}, {"max_tokens", 3}};
  EXPECT_EQ(text(body), "hi");
  json shown = body;
  shown["skip_special_tokens"] = false;
  EXPECT_EQ(text(shown), "hi<|end|>");
  EXPECT_EQ(text({{"skip_special_tokens", false}}), "hi") << "what ends an answer is not in its text";
}

TEST_F(SamplingFieldsTest, PromptsAreCutAtTheirBeginning) {
  says_ = {"xy"};
  json body{{"prompt", "abcdef"}, {"truncate_prompt_tokens", 4}, {"echo", true}, {"max_tokens", 2}};
  json got = answer(body);
  EXPECT_EQ(got["choices"][0]["text"], "cdefxy");
  EXPECT_EQ(got["usage"]["prompt_tokens"], 4);
  body["truncate_prompt_tokens"] = 9;
  EXPECT_EQ(answer(body)["choices"][0]["text"], "abcdefxy");
  body["prompt"] = std::string(100, 'a');
  body["truncate_prompt_tokens"] = -1;
  EXPECT_EQ(answer(body)["usage"]["prompt_tokens"], kContext - 2) << "what max_tokens leaves";
  body["truncate_prompt_tokens"] = 90;
  EXPECT_EQ(complete(body)->json()["error"]["type"], "exceed_context_size_error");
  const auto chat = complete({{"messages", {{{"role", "user"}, {"content", std::string(100, 'a')}}}},
                              {"truncate_prompt_tokens", -1}},
                             "/v1/chat/completions");
  EXPECT_EQ(chat->json()["usage"]["prompt_tokens"], kContext - 1);
}

TEST_F(SamplingFieldsTest, ScoresOfThePrompt) {
  says_ = {"x", "y"};
  json got = answer({{"prompt", "abc"}, {"max_tokens", 1}, {"n", 2}, {"prompt_logprobs", 2}});
  const json scores = json::parse(R"([null,
    {"98": {"logprob": -0.5, "rank": 1, "decoded_token": "b"},
     "99": {"logprob": -1.5, "rank": 2, "decoded_token": "c"}},
    {"99": {"logprob": -0.5, "rank": 1, "decoded_token": "c"},
     "100": {"logprob": -1.5, "rank": 2, "decoded_token": "d"}}])");
  for (const json& c : got["choices"]) {
    EXPECT_EQ(c["prompt_logprobs"], scores);
    EXPECT_EQ(c["logprobs"], nullptr) << "nobody asked for those";
  }
  got = answer({{"prompt", "abc"}, {"max_tokens", 0}, {"prompt_logprobs", 0}});
  EXPECT_EQ(got["choices"][0]["text"], "");
  EXPECT_EQ(got["choices"][0]["prompt_logprobs"][1],
            (json{{"98", {{"logprob", -0.5}, {"rank", nullptr}, {"decoded_token", "b"}}}}));
  got = answer({{"prompt", "abc"}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}, {"prompt_logprobs", 2}});
  EXPECT_EQ(got["choices"][0]["prompt_logprobs"], scores);
  EXPECT_EQ(got["choices"][0]["logprobs"]["top_logprobs"][1], (json{{"b", -0.5}})) << "as many as logprobs says";
  const auto chat =
      complete({{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"prompt_logprobs", 1}, {"max_tokens", 1}},
               "/v1/chat/completions");
  EXPECT_EQ(chat->json()["prompt_logprobs"].size(), 7u) << "u:hi a:";
  EXPECT_FALSE(chat->json()["choices"][0].contains("prompt_logprobs"));
}

TEST_F(SamplingFieldsTest, TheBestOfSeveralAreReturned) {
  says_ = {"low", "high", "middle"};
  const auto exchange =
      post("/v1/completions", {{"prompt", {"p", "q"}}, {"n", 2}, {"best_of", 3}, {"max_tokens", 10}});
  const std::vector<float> logprob{-1.2f, -0.5f, -1.0f};  // the sum of "middle" is less than that of "low"
  for (const auto end = std::chrono::steady_clock::now() + kAnswerLimit;
       !exchange->done && std::chrono::steady_clock::now() < end;) {
    (void)run_posted();
    const auto plan = worker_.try_plan(std::chrono::milliseconds(2));
    if (!plan) continue;
    PlanOutcome outcome = compute_texts(*plan);
    for (size_t i = 0; i < outcome.sequences.size(); ++i) {
      const Sampling& sampling = plan->sequences[i].sampling;
      EXPECT_EQ(sampling.logprobs, 0) << "the worker is asked for what they are ranked by";
      for (SampledToken& t : outcome.sequences[i].sampled) t.score.logprob = logprob.at(sampling.choice);
    }
    worker_.answer(outcome);
  }
  const json got = exchange->json();
  ASSERT_EQ(got["choices"].size(), 4u) << exchange->body;
  const std::vector<std::string> texts{"high", "middle", "high", "middle"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got["choices"][i]["index"], i);
    EXPECT_EQ(got["choices"][i]["text"], texts[i]);
    EXPECT_EQ(got["choices"][i]["logprobs"], nullptr);
  }
  EXPECT_EQ(got["usage"]["completion_tokens"], 2 * (4 + 5 + 7)) << "what was not returned was generated, too";
  EXPECT_EQ(got["usage"]["prompt_tokens"], 2);
  expect_refused({{"prompt", {"a", "b"}}, {"best_of", 40}}, "prompt", "'best_of'");
}

class RulesAheadTest : public ApiTest {
 protected:
  RulesAheadTest() : ApiTest(byte_model(), 64, /*steps_in_flight=*/2) { join(); }
};

TEST_F(RulesAheadTest, TheAnswerIsTheSameWithStepsInFlight) {
  says_ = {"abcabc"};
  const auto c = complete({{"prompt", "x"},
                           {"max_tokens", 30},
                           {"min_tokens", 9},
                           {"allowed_token_ids", {0, int{'b'}, int{'c'}, kEnd}},
                           {"return_token_ids", true}})
                     ->json()["choices"][0];
  EXPECT_EQ(c["token_ids"], (json{0, 'b', 'c', 0, 'b', 'c', 0, 0, 0, kEnd}));
}

}  // namespace
}  // namespace moestro::orchestrator
