#include <gmock/gmock.h>

#include "orchestrator/dialects/llama_answer.h"
#include "orchestrator/dialects/llama_request.h"
#include "tests/dialects/dialect_events.h"

namespace moestro::orchestrator {
namespace {

using testing::events_in;
using ::testing::HasSubstr;
using json = RequestJson;

/// A token is a letter, its id the letter's value; 1 begins a text.
LlamaTexts letters() {
  return {[](const std::string& text, bool special, const char* field) -> std::variant<std::vector<TokenId>, ApiError> {
            if (text == "too long") return bad_request("too long", field);
            std::vector<TokenId> ids;
            if (special) ids.push_back(1);
            for (const char c : text) ids.push_back(c);
            return ids;
          },
          [](const std::vector<TokenId>& ids) {
            std::string text;
            for (const TokenId id : ids) text += id == 1 ? '^' : static_cast<char>(id);
            return text;
          }};
}

std::variant<Translated, ApiError> tried(const json& body) {
  return read_llama_request(body, false, letters());
}

Translated taken(const json& body) {
  auto made = tried(body);
  const auto* error = std::get_if<ApiError>(&made);
  EXPECT_EQ(error, nullptr) << error->message;
  return error != nullptr ? Translated{} : std::move(std::get<Translated>(made));
}

ApiError denied(const char* field, const json& value) {
  json body{{"prompt", "a"}};
  body[field] = value;
  const auto made = tried(body);
  const auto* error = std::get_if<ApiError>(&made);
  EXPECT_NE(error, nullptr) << field << " " << value;
  return error != nullptr ? *error : ApiError{};
}

TEST(LlamaRequest, DefaultsAreThoseOfLlamaServer) {
  const Translated t = taken({{"prompt", "hi"}});
  EXPECT_FALSE(t.request.chat);
  EXPECT_TRUE(t.request.until_end);
  EXPECT_EQ(t.request.body, json::parse(R"({"prompt": "hi", "temperature": 0.8, "top_k": 40, "top_p": 0.95,
      "min_p": 0.05, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
      "ignore_eos": false})"));
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(read_completion(t.request.body)));
}

TEST(LlamaRequest, FieldsByTheirOpenAiNames) {
  const Translated t = taken(json::parse(R"({"prompt": "hi", "n_predict": 9, "temperature": 0, "top_k": 1,
      "top_p": 1, "min_p": 0, "repeat_penalty": 1.1, "repeat_last_n": -1, "presence_penalty": 0.5,
      "frequency_penalty": 0.25, "seed": 4, "stop": ["x"], "stream": true, "cache_prompt": true, "n_probs": 2,
      "ignore_eos": true, "json_schema": {"type": "string"}, "grammar": "", "mirostat": 0, "mirostat_tau": 5.0,
      "dry_multiplier": 0, "typical_p": 1, "top_n_sigma": -1.0, "id_slot": -1,
      "logit_bias": [[5, 1.5], ["ab", -2], [7, false]]})"));
  EXPECT_FALSE(t.request.until_end);
  EXPECT_EQ(t.request.body, json::parse(R"({"prompt": "hi", "max_tokens": 9, "temperature": 0, "top_k": 1, "top_p": 1,
      "min_p": 0, "repetition_penalty": 1.1, "presence_penalty": 0.5, "frequency_penalty": 0.25, "seed": 4,
      "ignore_eos": true, "logit_bias": {"5": 1.5, "97": -2, "98": -2, "7": -100.0}, "stream": true,
      "stream_options": {"include_usage": true}, "logprobs": 2, "return_token_ids": true, "stop": ["x"],
      "response_format": {"type": "json_schema",
                          "json_schema": {"name": "answer", "schema": {"type": "string"}}}})"));
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(read_completion(t.request.body)));
  for (const int64_t random : {int64_t{-1}, int64_t{UINT32_MAX}})
    EXPECT_FALSE(taken({{"prompt", "a"}, {"seed", random}}).request.body.contains("seed")) << random;
  EXPECT_EQ(taken({{"prompt", "a"}, {"grammar", "root ::= x"}}).request.body["grammar"], "root ::= x");
}

TEST(LlamaRequest, Prompts) {
  EXPECT_EQ(taken({{"prompt", {"hi"}}}).request.body["prompt"], "hi");
  EXPECT_EQ(taken({{"prompt", {5, 6}}}).request.body["prompt"], json({5, 6}));
  EXPECT_EQ(taken({{"prompt", {"a", 5, "b"}}}).request.body["prompt"], json({1, 'a', 5, 'b'}));
  EXPECT_EQ(taken({{"prompt", {5, "a"}}}).request.body["prompt"], json({5, 'a'}));
  EXPECT_EQ(denied("prompt", json::array()).param, "prompt");
  EXPECT_THAT(denied("prompt", {"a", "b"}).message, HasSubstr("several prompts"));
  EXPECT_EQ(denied("prompt", {5, "too long"}).message, "too long");
  for (const json& odd : {json(5), json({-1}), json({1.5}), json({1, nullptr}), json({1, int64_t{1} << 40}),
                          json({{1, 2}, 3}), json::object()})
    EXPECT_EQ(denied("prompt", odd).param, "prompt") << odd;
}

TEST(LlamaRequest, WhatIsNotSupportedIsRefusedByItsOwnName) {
  const std::pair<const char*, json> kOdd[]{{"mirostat", 2},
                                            {"dry_multiplier", 0.8},
                                            {"xtc_probability", 0.5},
                                            {"typical_p", 0.9},
                                            {"tfs_z", 0.5},
                                            {"dynatemp_range", 0.5},
                                            {"top_n_sigma", 1.0},
                                            {"samplers", {"top_k"}},
                                            {"n_keep", 4},
                                            {"no_such_field", 1},
                                            {"max_tokens", 5},
                                            {"n_predict", 0},
                                            {"n_predict", -2},
                                            {"temperature", "hot"},
                                            {"logit_bias", 5},
                                            {"logit_bias", json::array({5})},
                                            {"logit_bias", json::array({json::array({std::string(2000, 'a'), 1})})},
                                            {"logit_bias", json::array({json::array({5, true})})},
                                            {"logit_bias", json::array({json::array({-5, 1})})},
                                            {"n_probs", 100},
                                            {"seed", -2},
                                            {"stream", 1}};
  for (const auto& [field, value] : kOdd) EXPECT_EQ(denied(field, value).param, field) << value;
  const auto last = tried({{"prompt", "a"}, {"repeat_penalty", 1.2}, {"repeat_last_n", 64}});
  EXPECT_EQ(std::get<ApiError>(last).param, "repeat_last_n");
  EXPECT_TRUE(std::holds_alternative<Translated>(tried({{"prompt", "a"}, {"repeat_last_n", 64}})));
}

TEST(LlamaRequest, ErrorsHaveItsNames) {
  const auto body = [](const ApiError& e) { return json::parse(llama_error_body(e, "r")); };
  EXPECT_EQ(body(bad_request("'max_tokens' is 9; lower max_tokens, not my_max_tokens", "max_tokens")),
            json::parse(R"({"error": {"code": 400, "message": "'n_predict' is 9; lower n_predict, not my_max_tokens",
                            "type": "invalid_request_error", "param": "n_predict"}})"));
  ApiError longer = bad_request("long");
  longer.n_prompt_tokens = 7, longer.n_ctx = 5;
  EXPECT_EQ(body(longer)["error"]["n_ctx"], 5);
}

json completion(const json& choice) {
  json answer{{"id", "cmpl-1"}, {"model", "m"}, {"choices", json::array({choice})}};
  answer["usage"] = testing::usage_chunk(10, 4, 3)["usage"];
  return answer;
}

json whole(const json& request, const json& choice) {
  const Translated t = taken(request);
  t.answer->read_whole(completion(choice));
  return json::parse(t.answer->whole());
}

TEST(LlamaAnswer, AWholeOne) {
  json answer =
      whole({{"prompt", {"a", 5}}, {"n_predict", 3}}, {{"index", 0}, {"text", "xyz"}, {"finish_reason", "length"}});
  EXPECT_EQ(answer["generation_settings"]["n_predict"], 3);
  EXPECT_EQ(answer["generation_settings"]["temperature"], 0.8);
  answer.erase("generation_settings");
  EXPECT_EQ(answer, json::parse(R"({"index": 0, "content": "xyz", "tokens": [], "stop": true, "model": "m",
      "tokens_predicted": 3, "tokens_evaluated": 10, "tokens_cached": 4, "prompt": "^a\u0005", "truncated": false,
      "stop_type": "limit", "stopping_word": "", "timings": {"cache_n": 4, "prompt_n": 6, "predicted_n": 3}})"));
}

TEST(LlamaAnswer, WhyItStopped) {
  const auto stopped = [](const json& request, json choice) {
    choice["text"] = "x", choice["finish_reason"] = "stop";
    const json answer = whole(request, choice);
    return json::array({answer["stop_type"], answer["stopping_word"]});
  };
  const json kPlain{{"prompt", "a"}}, kStops{{"prompt", "a"}, {"stop", {"END"}}};
  EXPECT_EQ(stopped(kStops, {{"stop_reason", "END"}}), json::array({"word", "END"}));
  EXPECT_EQ(stopped(kStops, {{"stop_reason", nullptr}}), json::array({"eos", ""}));
  EXPECT_EQ(stopped(kPlain, {{"index", 0}}), json::array({"eos", ""})) << "there is no other way";
  EXPECT_EQ(stopped(kStops, {{"index", 0}}), json::array({nullptr, ""})) << "it is not said";
}

TEST(LlamaAnswer, TokensAndProbabilities) {
  const json answer = whole({{"prompt", "a"}, {"return_tokens", true}, {"n_probs", 2}}, json::parse(R"({"text": "xy",
      "finish_reason": "stop", "token_ids": [8, 9], "logprobs": {"tokens": ["x", "y"], "token_logprobs": [-1.5, null],
      "top_logprobs": [{"z": -2.5, "x": -1.5}, null], "text_offset": [0, 1]}})"));
  EXPECT_EQ(answer["tokens"], json({8, 9}));
  EXPECT_EQ(answer["completion_probabilities"], json::parse(R"([
      {"id": 8, "token": "x", "logprob": -1.5,
       "top_logprobs": [{"token": "x", "logprob": -1.5}, {"token": "z", "logprob": -2.5}]},
      {"id": 9, "token": "y", "logprob": null, "top_logprobs": []}])"));
}

TEST(LlamaAnswer, AStreamWithItsTimes) {
  auto now = LlamaAnswer::Clock::time_point(std::chrono::seconds(5));
  LlamaSettings settings;
  settings.stream = settings.return_tokens = true;
  LlamaAnswer a(std::move(settings), [&now] { return now; });
  const auto piece = [](const char* text, const json& ids, const json& finish = nullptr) {
    return json{{"model", "m"},
                {"choices", json::array({{{"text", text}, {"token_ids", ids}, {"finish_reason", finish}}})}};
  };
  std::string text;
  now += std::chrono::milliseconds(30);
  text += a.chunk(piece("x", json({7})));
  now += std::chrono::milliseconds(10);
  text += a.chunk(piece("", json::array()));
  text += a.chunk(piece("yz", json({8, 9}), "stop"));
  now += std::chrono::milliseconds(1000);
  text += a.chunk(testing::usage_chunk(10, 4, 3));
  text += a.end();
  const auto events = events_in(text);
  ASSERT_EQ(events.size(), 3u) << text;
  EXPECT_EQ(events[0].data, json::parse(R"({"index": 0, "content": "x", "tokens": [7], "stop": false})"));
  EXPECT_EQ(events[1].data["tokens"], json({8, 9}));
  const json& last = events[2].data;
  EXPECT_EQ(last["stop"], true);
  EXPECT_EQ(last["content"], "");
  EXPECT_EQ(last["timings"], json::parse(R"({"cache_n": 4, "prompt_n": 6, "predicted_n": 3, "prompt_ms": 30.0,
      "prompt_per_token_ms": 5.0, "prompt_per_second": 200.0, "predicted_ms": 10.0, "predicted_per_token_ms": 5.0,
      "predicted_per_second": 200.0})"));
  EXPECT_EQ(events_in(a.failed(bad_request("no")))[0].data["error"]["message"], "no");
}

}  // namespace
}  // namespace moestro::orchestrator
