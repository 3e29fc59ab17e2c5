// /v1/completions and /v1/chat/completions, from the body to the answer.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CompletionTest : public ApiTest {
 protected:
  explicit CompletionTest(ServiceOptions service = {})
      : ApiTest(byte_model(), /*queue_max=*/64, /*steps_in_flight=*/1, service) {
    join();
  }
  /// The first choice of an answer that must be good.
  json choice(const json& body, const std::string& path = "/v1/completions") {
    const auto exchange = complete(body, path);
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    answer_ = exchange->json();
    return answer_["choices"].at(0);
  }
  /// Of a prompt of ten tokens, in blocks of 4.
  int64_t cached(const std::string& project, const json& more = json::object()) {
    json body{{"prompt", "abcdefghij"}, {"max_tokens", 1}};
    body.update(more);
    return cached_tokens(project, body, "/v1/completions");
  }
  json answer_;
};

TEST_F(CompletionTest, AnAnswerHasItsTextAndItsUsage) {
  says_ = {"xyz and more"};
  const json c = choice({{"model", "m"}, {"prompt", "ab"}, {"max_tokens", 3}});
  EXPECT_EQ(c, (json{{"index", 0}, {"text", "xyz"}, {"finish_reason", "length"}, {"stop_reason", nullptr},
                     {"logprobs", nullptr}}));
  EXPECT_EQ(answer_["object"], "text_completion");
  EXPECT_EQ(answer_["model"], "m");
  EXPECT_THAT(answer_["id"].get<std::string>(), StartsWith("cmpl-"));
  EXPECT_EQ(answer_["usage"], (json{{"prompt_tokens", 2},
                                    {"completion_tokens", 3},
                                    {"total_tokens", 5},
                                    {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
}

TEST_F(CompletionTest, ARequestThatWorkersDieOfIsNotToBeSentAgain) {
  const auto bad = post("/v1/completions", {{"prompt", "ab"}, {"max_tokens", 3}});
  for (const uint64_t epoch : {2, 3}) {
    worker_.hear_plan();
    worker_.send_registration({.model = name_, .epoch = epoch});  // its process is another
    worker_.hear_registered();
  }
  run_until([&] { return bad->done; });
  EXPECT_EQ(bad->status, 500);
  EXPECT_EQ(bad->header("x-should-retry"), "false") << "OpenAI's clients try again else";
  EXPECT_THAT(bad->json()["error"]["message"].get<std::string>(), HasSubstr("quarantined: 2 workers died"));
  says_ = {"ok"};
  EXPECT_EQ(choice({{"prompt", "cd"}, {"max_tokens", 2}})["text"], "ok");
}

TEST_F(CompletionTest, TheEndTokenEndsItAndHasNoText) {
  says_ = {"hi"};
  const json c = choice({{"prompt", "ab"}, {"max_tokens", 30}});
  EXPECT_EQ(c["text"], "hi");
  EXPECT_EQ(c["finish_reason"], "stop");
  EXPECT_EQ(answer_["usage"]["completion_tokens"], 3) << "the end token was sampled";
}

TEST_F(CompletionTest, TheEndTokenIsPassedOverOnRequest) {
  says_ = {"hi"};
  const json c = choice({{"prompt", "ab"}, {"max_tokens", 4}, {"ignore_eos", true}, {"return_token_ids", true}});
  EXPECT_EQ(c["finish_reason"], "length");
  EXPECT_EQ(c["token_ids"], (json{'h', 'i', kEnd, kEnd}));
  EXPECT_EQ(c["text"], "hi");
}

TEST_F(CompletionTest, AStopStringAcrossTokensEndsTheText) {
  says_ = {"ab ENDcd"};
  const json c = choice({{"prompt", "x"}, {"max_tokens", 30}, {"stop", {"zzz", "END"}}});
  EXPECT_EQ(c["text"], "ab ");
  EXPECT_EQ(c["finish_reason"], "stop");
  EXPECT_EQ(answer_["usage"]["completion_tokens"], 6) << "up to the token that completed it";
}

TEST_F(CompletionTest, EveryPromptHasNChoices) {
  says_ = {"one", "two"};
  choice({{"prompt", {"a", {98, 99}}}, {"n", 2}, {"max_tokens", 3}, {"echo", true}});
  ASSERT_EQ(answer_["choices"].size(), 4u);
  const std::vector<std::string> texts = {"aone", "atwo", "bcone", "bctwo"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer_["choices"][i]["index"], i);
    EXPECT_EQ(answer_["choices"][i]["text"], texts[i]);
  }
  EXPECT_EQ(answer_["usage"], (json{{"prompt_tokens", 3},
                                    {"completion_tokens", 12},
                                    {"total_tokens", 15},
                                    {"prompt_tokens_details", {{"cached_tokens", 0}}}}))
      << "a prompt counts once";
}

TEST_F(CompletionTest, LogprobsOfSampledTokens) {
  says_ = {"xy"};
  const json c = choice({{"prompt", "ab"}, {"max_tokens", 2}, {"logprobs", 2}});
  EXPECT_EQ(c["logprobs"],
            json::parse(R"({"tokens": ["x", "y"], "token_logprobs": [-0.25, -0.25], "text_offset": [0, 1],
    "top_logprobs": [{"x": -0.25, "y": -1.25}, {"y": -0.25, "z": -1.25}]})"));
}

TEST_F(CompletionTest, ScoringAPrompt) {
  const json c = choice({{"prompt", "abc"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}});
  EXPECT_EQ(c["text"], "abc");
  EXPECT_EQ(c["finish_reason"], "length");
  EXPECT_EQ(c["logprobs"],
            json::parse(R"({"tokens": ["a", "b", "c"], "token_logprobs": [null, -0.5, -0.5], "text_offset": [0, 1, 2],
    "top_logprobs": [null, {"b": -0.5}, {"c": -0.5}]})"));
  EXPECT_EQ(answer_["usage"], (json{{"prompt_tokens", 3},
                                    {"completion_tokens", 0},
                                    {"total_tokens", 3},
                                    {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
}

TEST_F(CompletionTest, ScoringAPromptAndGoingOn) {
  says_ = {"de"};
  const json c = choice({{"prompt", "abc"}, {"max_tokens", 2}, {"echo", true}, {"logprobs", 0}});
  EXPECT_EQ(c["text"], "abcde");
  EXPECT_EQ(c["logprobs"]["tokens"], (json{"a", "b", "c", "d", "e"}));
  EXPECT_EQ(c["logprobs"]["token_logprobs"], (json{nullptr, -0.5, -0.5, -0.25, -0.25}));
  EXPECT_EQ(c["logprobs"]["text_offset"], (json{0, 1, 2, 3, 4}));
  EXPECT_EQ(c["logprobs"]["top_logprobs"],
            (json{nullptr, json::object(), json::object(), json::object(), json::object()}));
}

TEST_F(CompletionTest, ScoringASinglePromptTokenGivesNothingToScore) {
  const json c = choice({{"prompt", "a"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}});
  EXPECT_EQ(c["logprobs"]["token_logprobs"], json::array({nullptr}));
}

TEST_F(CompletionTest, ScoringFillsTheContext) {
  const json c = choice({{"prompt", std::string(kContext, 'a')}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}});
  EXPECT_EQ(c["logprobs"]["tokens"].size(), static_cast<size_t>(kContext));
}

TEST_F(CompletionTest, MaxTokensIsCutToTheContext) {
  says_ = {std::string(100, 'x')};
  const json c = choice({{"prompt", std::string(60, 'a')}, {"max_tokens", 30}});
  EXPECT_EQ(c["text"], "xxxx");
  EXPECT_EQ(c["finish_reason"], "length");
}

TEST_F(CompletionTest, ChatAppliesTheTemplate) {
  says_ = {"yes"};
  const json c = choice({{"messages", {{{"role", "user"}, {"content", "hi"}}}}}, "/v1/chat/completions");
  EXPECT_EQ(c["message"], (json{{"role", "assistant"}, {"content", "yes"}}));
  EXPECT_EQ(c["finish_reason"], "stop");
  EXPECT_EQ(answer_["object"], "chat.completion");
  EXPECT_THAT(answer_["id"].get<std::string>(), StartsWith("chatcmpl-"));
  EXPECT_EQ(answer_["usage"]["prompt_tokens"], 7) << "u:hi a:";
}

TEST_F(CompletionTest, AChatWithoutALimitTakesWhatItsWorkerHas) {
  worker_.join(
      {.model = "m",
       .epoch = 2,
       .limits = {
           .kv_blocks = 3, .kv_block_tokens = 4, .context_max = 64, .step_tokens_max = 64, .step_sequences_max = 4}});
  says_ = {std::string(100, 'x')};
  const json c = choice({{"messages", {{{"role", "user"}, {"content", "hi"}}}}}, "/v1/chat/completions");
  EXPECT_EQ(c["message"]["content"], "xxxxx") << "12 positions, 7 of them the prompt's";
  EXPECT_EQ(c["finish_reason"], "length");
  EXPECT_EQ(complete({{"prompt", "a"}, {"max_tokens", 12}})->status, 400) << "who says how many gets as many or none";
}

TEST_F(CompletionTest, WithAWindowSequencesAreLongerThanTheCacheAndTheModelsContext) {
  worker_.join({.model = "m",
                .epoch = 2,
                .limits = {.kv_blocks = 8,
                           .kv_block_tokens = 4,
                           .context_max = 1000,
                           .step_tokens_max = 64,
                           .step_sequences_max = 4,
                           .kv_sinks = 4,
                           .kv_window = 12}});
  says_ = {std::string(1000, 'x')};
  const json c = choice({{"prompt", std::string(100, 'a')}, {"max_tokens", 640}});
  EXPECT_EQ(c["text"], std::string(640, 'x')) << "20 times the cache of 32 positions";
  EXPECT_EQ(c["finish_reason"], "length");
  EXPECT_EQ(complete({{"prompt", "a"}, {"max_tokens", 1001}})->status, 400);
  const json chat = choice({{"messages", {{{"role", "user"}, {"content", "hi"}}}}}, "/v1/chat/completions");
  EXPECT_EQ(chat["message"]["content"], std::string(kContext, 'x'))
      << "nobody said how long: as many as the model's context has";
}

TEST_F(CompletionTest, WhatWasInTheKvCacheIsCounted) {  // in blocks of 4
  const auto cached = [&](json more) {
    json body{{"prompt", "abcdefghij"}, {"max_tokens", 1}};
    body.update(more);
    choice(body);
    return answer_["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached(json::object()), 0);
  EXPECT_EQ(cached(json::object()), 8);
  EXPECT_EQ(cached({{"cache_salt", "mine"}}), 0);
  EXPECT_EQ(cached({{"cache_salt", "mine"}}), 8);
  EXPECT_EQ(cached({{"echo", true}, {"logprobs", 1}}), 0) << "the prompt's log-probabilities have to be computed";
  says_ = {"x", "y"};
  EXPECT_EQ(cached({{"n", 2}, {"cache_salt", "ours"}}), 0)
      << "the second choice found what the first had just computed: no saving beside one choice";
  EXPECT_EQ(cached({{"n", 2}, {"cache_salt", "ours"}}), 8);
  EXPECT_EQ(cached({{"prompt", {"abcdefghij", "abcdefghik"}}}), 16);
  run_until([&] { return control_->snapshot().running == 0; });
  const json status = send("GET", "/v1/moestro/status")->json();
  EXPECT_EQ(status["tokens"]["prefix_cached"], 8 + 8 + 8 + 16 + 16);
  EXPECT_GE(status["kv_blocks"]["prefixes"], 6);
  EXPECT_EQ(status["kv_blocks"]["used"], 0);
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("moestro_prefix_cached_tokens_total 56"));
}

TEST_F(CompletionTest, AProjectFindsNothingOfAnothersInTheKvCache) {
  EXPECT_EQ(cached("ann"), 0);
  EXPECT_EQ(cached("bob"), 0);
  EXPECT_EQ(cached("ann"), 8);
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("", {{"cache_salt", "ann"}}), 0) << "a salt is no way into a project";
  EXPECT_EQ(cached("an", {{"cache_salt", "n"}}), 0);
}

class SharedPrefixesTest : public CompletionTest {
 protected:
  SharedPrefixesTest() : CompletionTest({.share_prefixes = true}) {}
};

TEST_F(SharedPrefixesTest, AProjectFindsWhatOthersHaveInTheKvCache) {
  EXPECT_EQ(cached("ann"), 0);
  EXPECT_EQ(cached("bob"), 8);
  EXPECT_EQ(cached(""), 8);
  EXPECT_EQ(cached("ann", {{"cache_salt", "mine"}}), 0) << "a salt still separates";
  EXPECT_EQ(cached("bob", {{"cache_salt", "mine"}}), 8);
}

TEST_F(CompletionTest, ChatLogprobs) {
  says_ = {"x"};
  const json c = choice({{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                         {"logprobs", true},
                         {"top_logprobs", 2},
                         {"max_tokens", 1}},
                        "/v1/chat/completions");
  EXPECT_EQ(c["logprobs"]["content"], json::parse(R"([{"token": "x", "logprob": -0.25, "bytes": [120], "top_logprobs":
    [{"token": "x", "logprob": -0.25, "bytes": [120]}, {"token": "y", "logprob": -1.25, "bytes": [121]}]}])"));
}

TEST_F(CompletionTest, SamplingReachesTheWorker) {
  const auto exchange = post("/v1/completions", {{"prompt", "ab"},
                                                 {"temperature", 0.5},
                                                 {"top_p", 0.75},
                                                 {"top_k", 9},
                                                 {"min_p", 0.25},
                                                 {"seed", 11},
                                                 {"logprobs", 3},
                                                 {"max_tokens", 1}});
  const Plan plan = worker_.hear_plan();
  const Sampling& s = plan.sequences.at(0).sampling;
  EXPECT_EQ(plan.sequences[0].tokens, (std::vector<TokenId>{'a', 'b'}));
  EXPECT_EQ(std::tuple(s.temperature, s.top_p, s.top_k, s.min_p, s.seed, s.logprobs),
            std::tuple(0.5f, 0.75f, 9, 0.25f, 11u, 3));
  worker_.answer(compute_texts(plan));
  finish(*exchange);
}

TEST_F(CompletionTest, EqualPromptsAreDrawnIndependentlyUnlessThereIsASeed) {
  for (const bool seeded : {false, true}) {
    json body{{"prompt", {"ab", "ab"}}, {"temperature", 1}, {"max_tokens", 1}};
    if (seeded) body["seed"] = 11;
    says_ = {"x"};
    const auto exchange = post("/v1/completions", body);
    std::vector<uint64_t> seeds;
    while (seeds.size() < 2) {  // in one plan, or in two
      const Plan plan = worker_.hear_plan();
      for (const auto& sequence : plan.sequences) seeds.push_back(sequence.sampling.seed);
      worker_.answer(compute_texts(plan));
    }
    finish(*exchange);
    EXPECT_EQ(seeds[0] == seeds[1], seeded);
  }
}

TEST_F(CompletionTest, PenaltiesAndBiasReachTheWorkerWithWhatItDoesNotKnowOfTheTokens) {
  says_ = {"xyz"};
  const auto exchange = post("/v1/completions", {{"prompt", "ab"},
                                                 {"presence_penalty", 0.5},
                                                 {"frequency_penalty", -1},
                                                 {"repetition_penalty", 1.5},
                                                 {"logit_bias", {{"120", 100}, {"7", -3.5}}},
                                                 {"max_tokens", 3}});
  std::vector<std::vector<TokenId>> histories;
  for (int step = 0; step < 3; ++step) {
    const Plan plan = worker_.hear_plan();
    const PlannedSequence& s = plan.sequences.at(0);
    EXPECT_EQ(std::tuple(s.sampling.presence_penalty, s.sampling.frequency_penalty, s.sampling.repetition_penalty),
              std::tuple(0.5f, -1.0f, 1.5f));
    ASSERT_TRUE(s.bias);
    ASSERT_EQ(s.bias->size(), 2u);
    EXPECT_EQ(std::pair(s.bias->at(1).id, s.bias->at(1).bias), std::pair(7, -3.5f));
    EXPECT_EQ(s.history_prompt, 2u);
    EXPECT_EQ(s.history_first, step == 0 ? 0u : static_cast<uint32_t>(step + 1));
    histories.push_back(s.history);
    worker_.answer(compute_texts(plan));
  }
  EXPECT_EQ(histories, (std::vector<std::vector<TokenId>>{{'a', 'b'}, {'x'}, {'y'}}));
  finish(*exchange);
  EXPECT_EQ(exchange->json()["choices"][0]["text"], "xyz");
  EXPECT_EQ(complete({{"prompt", "ab"}, {"logit_bias", {{"257", 1}}}})->status, 400) << "beyond the vocabulary";
}

}  // namespace
}  // namespace moestro::orchestrator
