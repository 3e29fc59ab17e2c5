// Servers with --lenient: fields that are not known are ignored and named in the header of the answer.

#include <gmock/gmock.h>

#include "tests/orchestrator/tools_fixture.h"

namespace moestro::orchestrator {
namespace {

using json = nlohmann::json;
using testing::ApiTest;

class LenientTest : public ApiTest {
 protected:
  explicit LenientTest(ServedModel model = testing::byte_model())
      : ApiTest(std::move(model), /*queue_max=*/64, /*steps_in_flight=*/1, {.lenient = true}) {
    says_ = {"hey"};
    join();
  }
  static json chat(const json& more) {
    json body{{"messages", json::array({{{"role", "user"}, {"content", "hi"}}})}};
    body.update(more);
    return body;
  }
  /// What the answer says was ignored.
  std::string ignored(const std::string& path, const json& body) {
    const auto exchange = complete(body, path);
    EXPECT_TRUE(exchange->streaming || exchange->status == 200) << path << ' ' << exchange->body;
    return exchange->header("X-Moestro-Ignored");
  }
  json refused(const std::string& path, const json& body) {
    const auto exchange = complete(body, path);
    EXPECT_EQ(exchange->status, 400) << path << ' ' << body;
    return exchange->json()["error"]["param"];
  }
};

TEST_F(LenientTest, EveryRouteNamesWhatItIgnores) {
  const json colour{{"colour", "red"}};
  const auto with = [&](json body) {
    body.update(colour);
    return body;
  };
  EXPECT_EQ(ignored("/v1/completions", with({{"prompt", "a"}})), "colour");
  EXPECT_EQ(ignored("/v1/completions", with({{"prompt", "a"}, {"stream", true}})), "colour");
  EXPECT_EQ(ignored("/v1/chat/completions", chat(colour)), "colour");
  EXPECT_EQ(ignored("/v1/chat/completions", chat({{"colour", 1}, {"stream", true}})), "colour");
  EXPECT_EQ(ignored("/v1/embeddings", with({{"input", "a"}})), "colour");
  EXPECT_EQ(ignored("/tokenize", with({{"content", "a"}})), "colour");
  EXPECT_EQ(ignored("/tokenize", chat(colour)), "colour");
  EXPECT_EQ(ignored("/detokenize", with({{"tokens", {65}}})), "colour");
  EXPECT_EQ(ignored("/apply-template", chat(colour)), "colour");
  EXPECT_EQ(ignored("/apply-template", chat({{"reasoning_effort", "high"}})), "reasoning_effort")
      << "the template does not look at it";
  EXPECT_EQ(ignored("/apply-template", chat(json::object())), "");
}

TEST_F(LenientTest, WhatIsKnownIsCheckedAsEver) {
  EXPECT_EQ(refused("/tokenize", {{"content", 5}, {"colour", 1}}), "content");
  EXPECT_EQ(refused("/detokenize", {{"tokens", "a"}, {"colour", 1}}), "tokens");
  EXPECT_EQ(refused("/apply-template", chat({{"top_p", 2}, {"colour", 1}})), "top_p");
}

TEST_F(LenientTest, MembersOfObjectsAreNamedWithTheirField) {
  EXPECT_EQ(ignored("/v1/completions",
                    {{"prompt", "a"}, {"stream", true}, {"stream_options", {{"pace", 1}, {"include_usage", true}}}}),
            "stream_options.pace");
  EXPECT_EQ(ignored("/v1/completions", {{"prompt", "a"}, {"moestro", {{"mixed", false}, {"low", 1}}}}), "moestro.low");
  EXPECT_EQ(ignored("/v1/completions", {{"prompt", "a"}, {"response_format", {{"type", "text"}, {"indent", 2}}}}),
            "response_format.indent");
  const json schema{{"name", "n"}, {"schema", {{"type", "null"}}}, {"version", 7}};
  const auto exchange = complete(chat({{"response_format", {{"type", "json_schema"}, {"json_schema", schema}}}}),
                                 "/v1/chat/completions");
  EXPECT_EQ(exchange->header("X-Moestro-Ignored"), "response_format.json_schema.version");
  EXPECT_EQ(exchange->json()["choices"][0]["message"]["content"], "null") << exchange->body;
}

class LenientToolsTest : public LenientTest {
 protected:
  LenientToolsTest() : LenientTest(testing::model_with_tools("<tool_call>{\"name\"</tool_call>{{ tools | tojson }}")) {}
};

TEST_F(LenientToolsTest, MembersOfAFunctionAreNotShownToTheTemplate) {
  json tools = json::array();
  for (const char* name : {"f", "g"})
    tools.push_back({{"type", "function"},
                     {"function", {{"name", name}, {"parameters", {{"type", "object"}}}, {"cost", "MUCH"}}}});
  const auto exchange = complete(chat({{"tools", tools}}), "/apply-template");
  EXPECT_EQ(exchange->status, 200) << exchange->body;
  EXPECT_EQ(exchange->header("X-Moestro-Ignored"), "tools.cost") << "once for both";
  EXPECT_THAT(exchange->body, ::testing::Not(::testing::HasSubstr("MUCH")));
}

}  // namespace
}  // namespace moestro::orchestrator
