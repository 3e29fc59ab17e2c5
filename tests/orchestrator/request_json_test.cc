// Request bodies: keys in their order, none twice.

#include "orchestrator/api/request_json.h"

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& body) {
  const auto parsed = parse_body(body);
  const auto* error = std::get_if<ApiError>(&parsed);
  EXPECT_NE(error, nullptr) << body.substr(0, 100);
  if (error == nullptr) return "";
  EXPECT_EQ(error->http_status, 400);
  EXPECT_EQ(error->message.find('\n'), std::string::npos);
  return error->message;
}

TEST(RequestJson, ReadsEveryKindOfValueInOrder) {
  const std::string text =
      R"({"z":null,"a":[true,-5,18446744073709551615,1.5,"é\n",[],{}],"m":{"y":1,"b":{"x":[[2]]}},"":"empty"})";
  const auto parsed = parse_body(text);
  ASSERT_TRUE(std::holds_alternative<RequestJson>(parsed));
  EXPECT_EQ(std::get<RequestJson>(parsed).dump(),
            R"({"z":null,"a":[true,-5,18446744073709551615,1.5,"é\n",[],{}],"m":{"y":1,"b":{"x":[[2]]}},"":"empty"})");
  EXPECT_EQ(std::get<RequestJson>(parsed)["m"]["b"]["x"][0][0], 2);
}

TEST(RequestJson, AKeyGivenTwiceIsRefusedByName) {
  EXPECT_EQ(refusal(R"({"seed": 1, "prompt": "a", "seed": 2})"), "the body gives 'seed' twice in one object");
  EXPECT_THAT(refusal(R"({"a": [{"b": 1}, {"b": 1, "c": {"d": 1, "d": 1}}]})"), HasSubstr("'d' twice"));
  EXPECT_THAT(refusal(R"({"seed": 1, "s\u0065ed": 2})"), HasSubstr("'seed' twice"));
  EXPECT_THAT(refusal("{\"a\\n\": 1, \"a\\n\": 2}"), HasSubstr("'a?' twice"));
  std::string key;
  for (int i = 0; i < 100; ++i) key += "é";
  EXPECT_THAT(refusal("{\"x" + key + "\": 1, \"x" + key + "\": 2}"), HasSubstr("...' twice"));
  EXPECT_TRUE(std::holds_alternative<RequestJson>(parse_body(R"({"a": {"a": [{"a": 1}, {"a": 1}]}})")))
      << "of different objects";
}

TEST(RequestJson, WhatIsNoObjectOfJson) {
  for (const char* body : {"", "{", "[1", "nonsense", "{} {}", "{\"a\": 1e999}", "{\"a\" 1}", "[[[", "{\"a\": nan}"})
    EXPECT_THAT(refusal(body), HasSubstr("JSON")) << body;
  for (const char* body : {"[]", "5", "null", "\"a\""}) EXPECT_THAT(refusal(body), HasSubstr("object")) << body;
  EXPECT_THAT(refusal(std::string(65, '[')), HasSubstr("deeper than 64"));
  EXPECT_TRUE(
      std::holds_alternative<RequestJson>(parse_body("{\"a\": " + std::string(63, '[') + std::string(63, ']') + "}")));
}

TEST(RequestJson, ManyKeysOfOneObject) {
  std::string body = "{";
  for (int i = 0; i < 300000; ++i) body += "\"k" + std::to_string(i) + "\":0,";
  const auto parsed = parse_body(body + "\"end\":1}");  // quadratic work would run into the test's time limit
  ASSERT_TRUE(std::holds_alternative<RequestJson>(parsed));
  EXPECT_EQ(std::get<RequestJson>(parsed).size(), 300001u);
}

class TemplateTest : public testing::ApiTest {
 protected:
  /// No block is ever full, so no prompt begins with what was there already.
  TemplateTest() : ApiTest(model()) {
    worker_.join({.model = name_,
                  .limits = {.kv_blocks = 8,
                             .kv_block_tokens = 128,
                             .context_max = 128,
                             .step_tokens_max = 128,
                             .step_sequences_max = 4}});
  }
  static ServedModel model() {
    ServedModel m = testing::byte_model();
    m.chat_template =
        std::move(*ChatTemplate::parse("{{ messages[0] | tojson }}{{ kind | tojson if kind is defined }}{{ pad_token "
                                       "}}{% if unk_token is defined %}!{% endif %}"));
    m.pad_token = "[P]";
    return m;
  }
  /// The prompt that the worker gets.
  std::string prompt(const std::string& body) {
    const auto exchange = send("POST", "/v1/chat/completions", body);
    if (exchange->done) return exchange->body;
    const Plan plan = worker_.hear_plan();
    std::string text;
    for (const TokenId id : plan.sequences.at(0).tokens) text += static_cast<char>(id);
    worker_.answer(compute_texts(plan));
    finish(*exchange);
    return text;
  }
};

TEST_F(TemplateTest, SeesKeysInTheirOrderAndThePadToken) {
  EXPECT_EQ(prompt(R"({"max_tokens": 1, "messages": [{"role": "u", "content": "x", "b": 1, "a": 2}]})"),
            R"({"role": "u", "content": "x", "b": 1, "a": 2}[P])");
  EXPECT_EQ(
      prompt(
          R"({"max_tokens": 1, "messages": [{"role": "u", "content": "x"}], "chat_template_kwargs": {"kind": {"z": 1, "a": 2}}})"),
      R"({"role": "u", "content": "x"}{"z": 1, "a": 2}[P])");
}

TEST_F(TemplateTest, ACallOfToolsNeedsNoContent) {
  EXPECT_EQ(
      prompt(
          R"({"max_tokens": 1, "messages": [{"role": "a", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"z\": 1, \"a\": 2}"}}]}]})"),
      R"({"role": "a", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]}[P])");
  EXPECT_THAT(prompt(R"({"messages": [{"role": "a", "content": null, "tool_calls": [{"id": "c"}]}]})"),
              HasSubstr("'function'"));
  for (const char* calls : {"[]", "null", "5"})
    EXPECT_THAT(prompt(R"({"messages": [{"role": "a", "content": null, "tool_calls": )" + std::string(calls) + "}]}"),
                HasSubstr("without 'content'"));
}

}  // namespace
}  // namespace moestro::orchestrator
