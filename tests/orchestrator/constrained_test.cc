// response_format over HTTP's handlers: what the worker would say is not what it may.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

class ConstrainedTest : public ApiTest {
 protected:
  ConstrainedTest() { join(); }
  json body(const json& schema) {
    return {{"prompt", "a"},
            {"max_tokens", 40},
            {"response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"schema", schema}}}}}};
  }
  json choice(const json& request) { return complete(request)->json()["choices"][0]; }
};

TEST_F(ConstrainedTest, TheSchemaWinsOverTheModel) {
  says_ = {"no!"};
  const json c = choice(body({{"type", "boolean"}}));
  EXPECT_EQ(c["text"], "false");
  EXPECT_EQ(c["finish_reason"], "stop") << "nothing can follow: no end token is needed";
}

TEST_F(ConstrainedTest, WhatTheSchemaAllowsIsTheModelsOwn) {
  says_ = {"12"};
  EXPECT_EQ(choice(body({{"type", "integer"}}))["text"], "12")
      << "more digits could follow: the end token is the model's";
  says_ = {R"({"k": [1, null]} and more)"};
  const json c = choice({{"prompt", "a"}, {"max_tokens", 40}, {"response_format", {{"type", "json_object"}}}});
  EXPECT_EQ(c["text"], R"({"k": [1, null]})");
  EXPECT_EQ(c["finish_reason"], "stop");
}

TEST_F(ConstrainedTest, EveryChoiceHasItsOwnWay) {
  says_ = {"t", "f"};
  json request = body({{"type", "boolean"}});
  request["n"] = 2;
  const json choices = complete(request)->json()["choices"];
  EXPECT_EQ(choices[0]["text"], "true");
  EXPECT_EQ(choices[1]["text"], "false");
}

TEST_F(ConstrainedTest, ChatStreamsIt) {
  says_ = {"?"};
  json request = body({{"enum", {"red", "green"}}});
  request.erase("prompt");
  request["messages"] = {{{"role", "user"}, {"content", "x"}}};
  request["stream"] = true;
  const auto exchange = complete(request, "/v1/chat/completions");
  std::string text;
  for (const json& e : exchange->events())
    if (e.is_object() && e["choices"][0]["delta"].contains("content"))
      text += e["choices"][0]["delta"]["content"].get<std::string>();
  EXPECT_EQ(text, "\"green\"");
}

/// It can be read in too many ways, but only behind its first character: so that comes to light as it is followed.
constexpr const char* kTooAmbiguous = "^x((a?){70}){70}$";

TEST_F(ConstrainedTest, ASchemaThatCannotBeFollowedIsTheRequestsFault) {
  for (int again = 0; again < 2; ++again) {
    const auto exchange = complete(body({{"type", "string"}, {"pattern", kTooAmbiguous}}));
    EXPECT_EQ(exchange->status, 400) << exchange->body;
    EXPECT_EQ(exchange->header("Retry-After"), "") << "it will be no other the next time";
    EXPECT_THAT(exchange->json()["error"]["message"].get<std::string>(), HasSubstr("too ambiguous"));
  }
}

TEST_F(ConstrainedTest, RefusesByName) {
  const auto refused = [&](const json& request, const std::string& field, const std::string& words) {
    const auto exchange = complete(request);
    EXPECT_EQ(exchange->status, 400) << request;
    EXPECT_EQ(exchange->json()["error"]["param"], field) << exchange->body;
    EXPECT_THAT(exchange->json()["error"]["message"].get<std::string>(), HasSubstr(words));
  };
  const auto format = [](const json& f) { return json{{"prompt", "a"}, {"response_format", f}}; };
  refused(body({{"type", "object"}, {"patternProperties", json::object()}}), "response_format", "patternProperties");
  refused(body({{"type", "nothing"}}), "response_format", "type");
  refused(body({{"$ref", "#"}}), "response_format", "");
  refused(format("json"), "response_format", "object");
  refused(format({{"type", "xml"}}), "response_format", "type");
  refused(format({{"type", "json_schema"}}), "response_format", "json_schema");
  refused(format({{"type", "json_schema"}, {"json_schema", {{"schema", json::object()}}}}), "response_format", "name");
  refused(format({{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"other", 1}}}}), "other", "not known");
  json request = body({{"type", "null"}});
  request["ignore_eos"] = true;
  refused(request, "ignore_eos", "response_format");
}

}  // namespace
}  // namespace moestro::orchestrator
