#include "orchestrator/api/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrator/api/tokenize_request.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;

std::variant<CompletionRequest, ApiError> read(const std::string& body, bool chat) {
  auto parsed = parse_body(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  const RequestJson& object = std::get<RequestJson>(parsed);
  return chat ? read_chat(object) : read_completion(object);
}

/// A refusal of the client's fault that names `words` in its message or its field.
void expect_refused(const std::string& body, const std::string& words, bool chat) {
  const auto got = read(body, chat);
  const std::string shown = body.substr(0, 120);
  ASSERT_TRUE(std::holds_alternative<ApiError>(got)) << shown;
  const ApiError& error = std::get<ApiError>(got);
  EXPECT_EQ(error.http_status, 400) << shown;
  EXPECT_NE((error.message + " " + error.param).find(words), std::string::npos) << shown << " -> " << error.message;
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << shown;
  EXPECT_EQ(json::parse(error.body())["error"]["message"], error.message);
}

CompletionRequest good(const std::string& body, bool chat = false) {
  auto got = read(body, chat);
  if (const auto* error = std::get_if<ApiError>(&got)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<CompletionRequest>(std::move(got));
}

TEST(CompletionRequest, RefusesBodiesThatAreNoObject) {
  for (const char* body : {"", "{", "[1,2", "nonsense", "{\"prompt\": \"a\"} trailing"})
    expect_refused(body, "JSON", false);
  for (const char* body : {"[]", "5", "null", "\"a\""}) expect_refused(body, "object", false);
  expect_refused("{\"prompt\": \"\xff\xfe\"}", "UTF-8", false);
}

TEST(CompletionRequest, RefusesNestingThatWouldRecurseTooFar) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  expect_refused(std::string(100000, '['), "JSON", false);
  expect_refused("{\"prompt\": \"a\", \"x\": " + deep + "}", "nested", false);
  expect_refused("{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"x\": " + deep + "}]}", "nested", true);
  expect_refused(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": {\"x\": " + deep + "}}",
      "nested", true);
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  expect_refused(objects + "1" + std::string(100000, '}'), "nested", true);
}

TEST(CompletionRequest, FieldsOfOtherServersAtTheirNeutralValues) {
  good(R"({"prompt": "a", "use_beam_search": false, "length_penalty": 1, "early_stopping": false,
          "spaces_between_special_tokens": true, "unheard_of": null})");
  good(R"({"messages": [{"role": "user", "content": "a"}], "length_penalty": 1.0})", true);
  for (const char* other : {"\"spaces_between_special_tokens\": false", "\"use_beam_search\": true",
                            "\"length_penalty\": 0.5", "\"use_beam_search\": 0"})
    expect_refused(std::string("{\"prompt\": \"a\", ") + other + "}", "only ", false);
  expect_refused(R"({"prompt": "a", "unheard_of": 0})", "unheard_of", false);
}

TEST(CompletionRequest, WhoIsLenientIgnoresWhatItDoesNotKnowAndNothingElse) {
  const auto read_leniently = [](const char* body) { return read_completion(RequestJson::parse(body), true); };
  const auto got = read_leniently(R"({"prompt": "a", "unheard_of": 0, "top_p": 0.5, "other": {}, "nothing": null})");
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(got));
  EXPECT_EQ(std::get<CompletionRequest>(got).ignored, (std::vector<std::string>{"unheard_of", "other"}));
  EXPECT_EQ(std::get<CompletionRequest>(got).sampling.top_p, 0.5f);
  EXPECT_TRUE(std::holds_alternative<ApiError>(read_leniently(R"({"prompt": "a", "top_p": 2})")));
  EXPECT_TRUE(std::holds_alternative<ApiError>(read_leniently(R"({"prompt": "a", "use_beam_search": true})")));
}

TEST(CompletionRequest, WhoIsLenientRefusesWhatMayBeASchemaAllTheSame) {
  const auto error_of = [](const char* more) {
    const std::string body = std::string(R"({"messages": [{"role": "user", "content": "a"}], )") + more + "}";
    auto read = read_chat(RequestJson::parse(body), /*lenient=*/true);
    const auto* error = std::get_if<ApiError>(&read);
    return error != nullptr ? error->message : "";
  };
  for (const char* schema :
       {R"("response_format": {"type": "text", "schema": {"type": "null"}})",
        R"("response_format": {"type": "text", "json_schema": {"name": "n", "schema": {"type": "null"}}})",
        R"("response_format": {"type": "json_object", "json_schema": {"name": "n", "schema": {}}})",
        R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "Schema": {"type": "null"}}})"})
    EXPECT_THAT(error_of(schema), testing::HasSubstr("chema")) << schema;
  EXPECT_THAT(error_of(R"("structured_outputs": {"json": {}, "json_lines": true})"),
              testing::HasSubstr("json_lines"));
  EXPECT_THAT(error_of(R"("tools": [{"type": "function", "function": {"name": "f", "input_schema": {}}}])"),
              testing::HasSubstr("input_schema"));
}

TEST(CompletionRequest, BracketsInsideStringsAreNoNesting) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(std::get<std::string>(good(R"({"prompt": "\"\\)" + brackets + "\"}").prompts.at(0)), "\"\\" + brackets);
}

struct Refused {
  const char* field;
  const char* value;
};

TEST(CompletionRequest, RefusesFieldsByName) {
  for (const auto& [field, value] : std::vector<Refused>{{"max_tokens", "0"},
                                                         {"max_tokens", "-5"},
                                                         {"max_tokens", "\"many\""},
                                                         {"max_tokens", "1.5"},
                                                         {"max_tokens", "1000000000000000000000000000000"},
                                                         {"max_tokens", "18446744073709551615"},
                                                         {"temperature", "\"hot\""},
                                                         {"temperature", "-1"},
                                                         {"temperature", "1e9"},
                                                         {"top_p", "2"},
                                                         {"top_p", "\"x\""},
                                                         {"min_p", "-0.1"},
                                                         {"top_k", "-2"},
                                                         {"top_k", "2147483648"},
                                                         {"n", "0"},
                                                         {"n", "\"two\""},
                                                         {"n", "129"},
                                                         {"stream", "\"yes\""},
                                                         {"stop", "5"},
                                                         {"stop", "[\"a\", 5]"},
                                                         {"logprobs", "\"all\""},
                                                         {"logprobs", "-1"},
                                                         {"logprobs", "21"},
                                                         {"logprobs", "true"},
                                                         {"seed", "\"s\""},
                                                         {"seed", "0.5"},
                                                         {"echo", "3"},
                                                         {"model", "7"},
                                                         {"cache_salt", "5"},
                                                         {"ignore_eos", "1"},
                                                         {"return_token_ids", "\"\""},
                                                         {"stream_options", "[]"},
                                                         {"logit_bias", "[5]"},
                                                         {"logit_bias", "{\"x\": 1}"},
                                                         {"logit_bias", "{\"-1\": 1}"},
                                                         {"logit_bias", "{\"5\": 101}"},
                                                         {"logit_bias", "{\"5\": \"1\"}"},
                                                         {"presence_penalty", "2.5"},
                                                         {"presence_penalty", "\"1\""},
                                                         {"frequency_penalty", "-3"},
                                                         {"repetition_penalty", "0"},
                                                         {"best_of", "0"},
                                                         {"stop_token_ids", "5"},
                                                         {"stop_token_ids", "[\"a\"]"},
                                                         {"stop_token_ids", "[1.5]"},
                                                         {"min_tokens", "-1"},
                                                         {"min_tokens", "17"},
                                                         {"include_stop_str_in_output", "1"},
                                                         {"skip_special_tokens", "0"},
                                                         {"truncate_prompt_tokens", "0"},
                                                         {"truncate_prompt_tokens", "-2"},
                                                         {"allowed_token_ids", "[]"},
                                                         {"allowed_token_ids", "{}"},
                                                         {"bad_words", "5"},
                                                         {"bad_words", "[\"\"]"},
                                                         {"bad_words", "[\"a\", null]"},
                                                         {"prompt_logprobs", "-1"},
                                                         {"prompt_logprobs", "21"},
                                                         {"prompt_logprobs", "true"},
                                                         {"priority", "0.5"},
                                                         {"priority", "2147483648"},
                                                         {"reasoning_effort", "\"low\""},
                                                         {"suffix", "\"x\""},
                                                         {"no_such_field", "1"},
                                                         {"messages", "[]"}})
    expect_refused(std::string("{\"prompt\": \"a\", \"") + field + "\": " + value + "}", field, false);
  expect_refused(R"({"prompt": "a", "stream_options": {"include_usage": 1}})", "include_usage", false);
  expect_refused(R"({"prompt": "a", "stream_options": {"other": 1}})", "other", false);
}

TEST(CompletionRequest, RefusesFieldsThatExcludeEachOther) {
  expect_refused(R"({"prompt": "a", "n": 3, "best_of": 2})", "best_of", false);
  expect_refused(R"({"prompt": "a", "best_of": 2, "stream": true})", "best_of", false);
  expect_refused(R"({"prompt": "a", "prompt_logprobs": 0, "stream": true})", "prompt_logprobs", false);
  expect_refused(R"({"prompt": "a", "max_tokens": 3, "min_tokens": 4})", "min_tokens", false);
  const std::string said =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], )";
  expect_refused(said + R"("continue_final_message": true, "add_generation_prompt": true})", "continue_final_message",
                 true);
  expect_refused(R"({"messages": [{"role": "user", "content": "a"}], "continue_final_message": true})",
                 "continue_final_message", true);
  expect_refused(R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f"}}]}],
                    "continue_final_message": true})",
                 "continue_final_message", true);
  expect_refused(R"({"messages": 5, "continue_final_message": true})", "messages", true);
  const CompletionRequest r = good(said + R"("continue_final_message": true})", true);
  EXPECT_TRUE(r.continue_final_message && !r.add_generation_prompt);
}

TEST(CompletionRequest, RefusesTooManyWordsAndIds) {
  const auto body = [](const char* field, const json& value) { return json{{"prompt", "a"}, {field, value}}.dump(); };
  expect_refused(body("stop_token_ids", std::vector<int>(kStopTokensMax + 1, 1)), "stop_token_ids", false);
  expect_refused(body("bad_words", std::vector<std::string>(kBadWordsMax + 1, "x")), "bad_words", false);
  expect_refused(body("bad_words", {std::string(kBadWordBytesMax + 1, 'x')}), "bad_words", false);
}

TEST(CompletionRequest, RefusesTooManyStopStrings) {
  expect_refused(json{{"prompt", "a"}, {"stop", std::vector<std::string>(65, "x")}}.dump(), "stop", false);
  EXPECT_EQ(good(json{{"prompt", "a"}, {"stop", std::vector<std::string>(64, "x")}}.dump()).stop.size(), 64u);
}

TEST(CompletionRequest, RefusesPrompts) {
  for (const char* body :
       {"{}", R"({"prompt": null})", R"({"prompt": {"a": 1}})", R"({"prompt": 5})", R"({"prompt": []})",
        R"({"prompt": [1, "a"]})", R"({"prompt": ["a", 1]})", R"({"prompt": [1.5]})", R"({"prompt": [[]]})",
        R"({"prompt": [[1], ["a"]]})", R"({"prompt": [true]})", R"({"prompt": [null]})"})
    expect_refused(body, "prompt", false);
  expect_refused(json{{"prompt", std::vector<std::string>(kPromptsMax + 1, "a")}}.dump(), "prompt", false);
}

TEST(CompletionRequest, RefusesChats) {
  for (const char* body :
       {"{}", R"({"messages": "hi"})", R"({"messages": []})", R"({"messages": [1]})",
        R"({"messages": [{"role": "user"}]})", R"({"messages": [{"content": "a"}]})",
        R"({"messages": [{"role": 1, "content": "a"}]})", R"({"messages": [{"role": "user", "content": 5}]})",
        R"({"messages": [{"role": "user", "content": null}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})",
        R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
        R"({"messages": [{"role": "user", "content": [{"type": {"a": []}, "text": "a"}]}]})",
        R"({"messages": [{"role": "user", "content": ["a"]}]})"})
    expect_refused(body, "messages", true);
  for (const auto& [field, value] : std::vector<Refused>{{"max_tokens", "0"},
                                                         {"max_completion_tokens", "-1"},
                                                         {"logprobs", "3"},
                                                         {"top_logprobs", "2"},
                                                         {"top_logprobs", "21"},
                                                         {"chat_template_kwargs", "[]"},
                                                         {"tools", "[{}]"},
                                                         {"tools", "{}"},
                                                         {"tool_choice", "\"required\""},
                                                         {"tool_choice", "5"},
                                                         {"functions", "[1]"},
                                                         {"function_call", "\"auto\""},
                                                         {"modalities", "[\"audio\"]"},
                                                         {"response_format", R"({"type":"xml"})"},
                                                         {"response_format", "[]"},
                                                         {"parallel_tool_calls", "1"},
                                                         {"best_of", "2"},
                                                         {"add_generation_prompt", "1"},
                                                         {"continue_final_message", "\"no\""},
                                                         {"include_reasoning", "0"},
                                                         {"reasoning_effort", "\"huge\""},
                                                         {"reasoning_effort", "5"},
                                                         {"prompt", "\"a\""}})
    expect_refused(std::string(R"({"messages": [{"role": "user", "content": "a"}], ")") + field + "\": " + value + "}",
                   field, true);
}

TEST(TokenizeRequest, EachDialectHasItsDefault) {
  const auto special = [](const char* body) {
    return std::get<TokenizeRequest>(read_tokenize(json::parse(body))).add_special_tokens;
  };
  EXPECT_FALSE(special(R"({"content": "a"})"));
  EXPECT_TRUE(special(R"({"content": "a", "add_special": true})"));
  EXPECT_TRUE(special(R"({"content": "a", "add_special_tokens": true})"));
  EXPECT_TRUE(special(R"({"prompt": "a"})"));
  EXPECT_FALSE(special(R"({"prompt": "a", "add_special_tokens": false})"));
  EXPECT_FALSE(special(R"({"prompt": "a", "add_special": false})"));
}

TEST(CompletionRequest, Defaults) {
  const CompletionRequest r = good(R"({"prompt": "a"})");
  EXPECT_EQ(r.max_tokens, 16);
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.n, 1);
  EXPECT_EQ(r.logprobs, -1);
  EXPECT_EQ(r.seed, std::nullopt);
  EXPECT_EQ(r.model, std::nullopt);
  EXPECT_FALSE(r.chat || r.echo || r.stream || r.include_usage || r.ignore_eos || r.return_token_ids);
  EXPECT_EQ(good(R"({"messages": [{"role": "user", "content": "a"}]})", true).max_tokens, std::nullopt)
      << "a chat ends by itself";
}

TEST(CompletionRequest, HowATargetBegins) {
  EXPECT_FALSE(good(R"({"prompt": "a"})").decoder_prompt.has_value());
  EXPECT_EQ(good(R"({"prompt": "a", "decoder_prompt": ""})").decoder_prompt, PromptInput(""));
  EXPECT_EQ(good(R"({"prompt": "a", "decoder_prompt": [3, 4]})").decoder_prompt, PromptInput(std::vector<TokenId>{3, 4}));
  for (const char* wrong : {"5", "true", "[\"a\"]", "[[3]]", "{}"})
    expect_refused(R"({"prompt": "a", "decoder_prompt": )" + std::string(wrong) + "}", "decoder_prompt", false);
}

TEST(CompletionRequest, Values) {
  const CompletionRequest r =
      good(R"({"prompt": ["a", [1, 2]], "model": "m", "max_tokens": 5.0, "temperature": 0, "top_p": 0.5, "min_p": 0.25,
    "top_k": -1, "n": 2, "best_of": 2, "seed": -1, "stop": ["x", ""], "echo": true, "stream": true, "stream_options": {"include_usage": true},
    "ignore_eos": true, "return_token_ids": true, "logprobs": 20, "user": "u", "suffix": null, "presence_penalty": -2, "frequency_penalty": 0.5,
    "repetition_penalty": 1.25, "logit_bias": {"5": -100}})");
  ASSERT_EQ(r.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::string>(r.prompts[0]), "a");
  EXPECT_EQ(std::get<std::vector<TokenId>>(r.prompts[1]), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(r.model, "m");
  EXPECT_EQ(r.max_tokens, 5);
  EXPECT_EQ(r.sampling.temperature, 0);
  EXPECT_EQ(r.sampling.top_p, 0.5f);
  EXPECT_EQ(r.sampling.min_p, 0.25f);
  EXPECT_EQ(r.sampling.top_k, 0) << "-1 and 0 both mean all";
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(std::tuple(r.sampling.presence_penalty, r.sampling.frequency_penalty, r.sampling.repetition_penalty),
            std::tuple(-2.0f, 0.5f, 1.25f));
  ASSERT_TRUE(r.logit_bias);
  EXPECT_EQ(*r.logit_bias, (std::vector<LogitBias>{{5, -100.0f}}));
  EXPECT_EQ(r.seed, ~uint64_t{0});
  EXPECT_EQ(r.stop, std::vector<std::string>{"x"}) << "an empty string stops nothing";
  EXPECT_TRUE(r.echo && r.stream && r.include_usage && r.ignore_eos && r.return_token_ids);
  EXPECT_EQ(r.logprobs, 20);
  EXPECT_EQ(good(R"({"prompt": "a", "max_tokens": 0, "echo": true})").max_tokens, 0) << "scores the prompt";
}

TEST(CompletionRequest, ValuesOfOtherServers) {
  const CompletionRequest r = good(R"({"prompt": "a", "n": 2, "best_of": 3, "stop_token_ids": [1, 2],
    "min_tokens": 4, "include_stop_str_in_output": true, "skip_special_tokens": false, "truncate_prompt_tokens": -1,
    "allowed_token_ids": [3], "bad_words": ["x", " y"], "prompt_logprobs": 0, "priority": -7})");
  EXPECT_EQ(std::pair(r.n, r.best_of), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(r.stop_token_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(r.allowed_token_ids, std::vector<TokenId>{3});
  EXPECT_EQ(r.bad_words, (std::vector<std::string>{"x", " y"}));
  EXPECT_EQ(std::pair(r.min_tokens, r.truncate_prompt_tokens), std::pair(int64_t{4}, int64_t{-1}));
  EXPECT_EQ(std::pair(r.prompt_logprobs, r.priority), std::pair(0, -7));
  EXPECT_TRUE(r.include_stop_str_in_output && !r.skip_special_tokens);
  const CompletionRequest plain = good(R"({"prompt": "a", "n": 2, "truncate_prompt_tokens": null})");
  EXPECT_EQ(plain.best_of, 2);
  EXPECT_EQ(std::pair(plain.truncate_prompt_tokens, plain.prompt_logprobs), std::pair(int64_t{0}, -1));
  EXPECT_EQ(good(R"({"prompt": "a", "max_tokens": 0, "prompt_logprobs": 1})").max_tokens, 0) << "scores the prompt";
}

TEST(CompletionRequest, ATopPOfNothingLeavesTheLikeliestToken) {
  for (const char* body : {R"({"prompt": "a", "top_p": 0})", R"({"prompt": "a", "top_p": 1e-50})"}) {
    const float top_p = good(body).sampling.top_p;
    EXPECT_GT(top_p, 0.0f) << "the sampler refuses 0";
    EXPECT_LT(top_p, 1e-5f);
  }
}

TEST(CompletionRequest, IdsThatNoVocabularyHasStayOutOfRange) {
  const CompletionRequest r = good(R"({"prompt": [-1, 18446744073709551615, -9223372036854775808, 1000000000]})");
  const auto& ids = std::get<std::vector<TokenId>>(r.prompts.at(0));
  EXPECT_EQ(ids, (std::vector<TokenId>{-1, INT32_MAX, INT32_MIN, 1000000000}));
}

TEST(CompletionRequest, ChatValues) {
  const CompletionRequest r = good(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "name": "n",
    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "max_tokens": 3, "max_completion_tokens": 4, "logprobs": true,
    "top_logprobs": 2, "chat_template_kwargs": {"k": [1]}, "tools": [], "tool_choice": "none", "response_format": {"type": "text"}})",
                                   true);
  EXPECT_TRUE(r.chat);
  EXPECT_EQ(r.messages,
            RequestJson::parse(R"([{"role":"system","content":"s"},{"role":"user","name":"n","content":"ab"}])"));
  EXPECT_EQ(r.max_tokens, 4) << "the newer name counts";
  EXPECT_EQ(r.logprobs, 2);
  EXPECT_EQ(r.template_arguments, RequestJson::parse(R"({"k":[1]})"));
  EXPECT_EQ(good(R"({"messages": [{"role": "user", "content": ""}], "logprobs": true})", true).logprobs, 0);
}

}  // namespace
}  // namespace moestro::orchestrator
