// What an answer must be, over HTTP's handlers: what the worker would say is not what it may.

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
  refused(format({{"type", "json_schema"}, {"json_schema", {{"name", "x"}, {"other", 1}}}}), "response_format",
          "'other': this field is not known");
  json request = body({{"type", "null"}});
  request["ignore_eos"] = true;
  refused(request, "ignore_eos", "response_format");
}

TEST_F(ConstrainedTest, OtherServersFields) {
  const json schema{{"type", "boolean"}};
  const std::string gbnf = "root ::= \"t\" rest\nrest ::= [o-q]{2} | \"rue\"";
  const auto text = [&](const std::string& says, const std::string& field, const json& value) {
    says_ = {says};
    const auto exchange = complete({{"prompt", "a"}, {"max_tokens", 40}, {field, value}});
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    const json c = exchange->json()["choices"][0];
    EXPECT_EQ(c["finish_reason"], "stop");
    return c["text"].get<std::string>();
  };
  EXPECT_EQ(text("t", "guided_json", schema), "true");
  EXPECT_EQ(text("t", "guided_json", schema.dump()), "true");
  EXPECT_EQ(text("t", "json_schema", schema), "true");
  EXPECT_EQ(text("t", "response_format", {{"type", "json_object"}, {"schema", schema}}), "true");
  EXPECT_EQ(text("t", "response_format", {{"type", "json_schema"}, {"schema", schema}}), "true");
  EXPECT_EQ(text("b", "guided_regex", "^(bb|a)c$"), "bbc");
  EXPECT_EQ(text("zx", "guided_choice", {"yes", "no", "zebra"}), "zebra");
  EXPECT_EQ(text("tq", "guided_grammar", gbnf), "tqo");
  EXPECT_EQ(text("tr", "grammar", gbnf), "true");
  EXPECT_EQ(text("t", "structured_outputs", {{"json", schema}}), "true");
  EXPECT_EQ(text("b", "structured_outputs", {{"regex", "bb|a"}, {"json", nullptr}}), "bb");
  EXPECT_EQ(text("n", "structured_outputs", {{"choice", {"yes", "no"}}, {"disable_fallback", true}}), "no");
  EXPECT_EQ(text("tq", "structured_outputs", {{"grammar", gbnf}}), "tqo");
  EXPECT_EQ(text("{}", "structured_outputs", {{"json_object", true}}), "{}");
}

TEST_F(ConstrainedTest, WhatAsksForNothingChangesNothing) {
  says_ = {"no!"};
  for (const json& off :
       {json{{"grammar", ""}}, json{{"guided_json", nullptr}}, json{{"guided_decoding_backend", "x"}},
        json{{"response_format", {{"type", "text"}}}}, json{{"guided_whitespace_pattern", nullptr}}}) {
    json request{{"prompt", "a"}, {"max_tokens", 40}};
    request.update(off);
    EXPECT_EQ(choice(request)["text"], "no!") << off;
  }
}

TEST_F(ConstrainedTest, KindsOfOneTextAreKeptApart) {
  says_ = {"[[x"};  // as a regular expression it is another language than as the only choice
  EXPECT_EQ(choice({{"prompt", "a"}, {"max_tokens", 40}, {"guided_regex", "[[x]x"}})["text"], "[x");
  EXPECT_EQ(choice({{"prompt", "a"}, {"max_tokens", 40}, {"guided_choice", {"[[x]x"}}})["text"], "[[x]x");
  const json schema{{"const", "a"}};
  says_ = {"\"a\""};
  EXPECT_EQ(choice({{"prompt", "a"}, {"max_tokens", 40}, {"json_schema", schema}})["text"], "\"a\"");
  says_ = {"{\"const\": 1}"};
  EXPECT_EQ(choice({{"prompt", "a"}, {"max_tokens", 40}, {"guided_choice", {"{\"const\": 1}"}}})["text"],
            "{\"const\": 1}");
}

TEST_F(ConstrainedTest, RefusesOtherServersFieldsByName) {
  const auto refused = [&](const json& fields, const std::string& field, const std::string& words) {
    json request{{"prompt", "a"}};
    request.update(fields);
    const auto exchange = complete(request);
    EXPECT_EQ(exchange->status, 400) << request;
    EXPECT_EQ(exchange->json()["error"]["param"], field) << exchange->body;
    EXPECT_THAT(exchange->json()["error"]["message"].get<std::string>(), HasSubstr(words));
  };
  refused({{"grammar", "root ::= \"a\n"}}, "grammar", "line 1, column 10");
  refused({{"grammar", "root ::= root \"a\" | \"b\""}}, "grammar", "begins with itself");
  refused({{"grammar", "root ::= \"a\" root"}}, "grammar", "without an end");
  std::string deep = "root ::= r0\nr100 ::= \"y\"\n";
  for (int i = 0; i < 100; ++i)
    deep += "r" + std::to_string(i) + " ::= \"x\" r" + std::to_string(i + 1) + " \"z\"\n";
  refused({{"grammar", deep}}, "grammar", "deeper than 64");
  refused({{"grammar", 5}}, "grammar", "must be a string");
  refused({{"guided_grammar", "root ::= other"}}, "guided_grammar", "'other' is not defined");
  refused({{"guided_regex", "(?=a)"}}, "guided_regex", "'(?'");
  refused({{"guided_regex", "(a"}}, "guided_regex", "not closed");
  refused({{"guided_choice", json::array()}}, "guided_choice", "at least one");
  refused({{"guided_choice", {"a", 1}}}, "guided_choice", "list of strings");
  refused({{"guided_json", "[]"}}, "guided_json", "not a JSON object");
  refused({{"guided_json", {{"not", json::object()}}}}, "guided_json", "'not' is not supported");
  refused({{"json_schema", 5}}, "json_schema", "a schema");
  refused({{"guided_whitespace_pattern", "[ ]"}}, "guided_whitespace_pattern", "not supported");
  refused({{"structured_outputs", json::object()}}, "structured_outputs", "must have one of");
  refused({{"structured_outputs", {{"regex", "a"}, {"choice", {"a"}}}}}, "structured_outputs", "must have one of");
  refused({{"structured_outputs", {{"structural_tag", "x"}}}}, "structured_outputs", "'structural_tag': not supported");
  refused({{"structured_outputs", {{"regex", "(a"}}}}, "structured_outputs", "not closed");
  refused({{"structured_outputs", {{"xml", "a"}}}}, "structured_outputs", "'xml'");
  refused({{"guided_regex", "a"}, {"grammar", "root ::= \"a\""}}, "grammar", "'guided_regex' and 'grammar'");
  refused({{"response_format", {{"type", "json_object"}}}, {"guided_json", {{"type", "null"}}}}, "guided_json",
          "'response_format' and 'guided_json'");
  refused({{"grammar", "root ::= \"a\""}, {"ignore_eos", true}}, "ignore_eos", "grammar");
}

class NoToolsTest : public ApiTest {};

TEST_F(NoToolsTest, AModelWithoutToolsSaysSo) {
  join();
  const auto exchange = complete({{"messages", {{{"role", "user"}, {"content", "x"}}}},
                                  {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}},
                                 "/v1/chat/completions");
  EXPECT_EQ(exchange->status, 400);
  EXPECT_EQ(exchange->json()["error"]["param"], "tools");
}

}  // namespace
}  // namespace moestro::orchestrator
