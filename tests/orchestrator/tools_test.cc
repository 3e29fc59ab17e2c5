#include <gmock/gmock.h>

#include <random>

#include "orchestrator/api/constraints.h"
#include "orchestrator/forms/find_tool_form.h"
#include "tests/grammar/grammar_texts.h"
#include "tests/orchestrator/tools_fixture.h"
#include "tests/tokenizer/tiny_tokenizers.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(ToolsTest, TheModelMayCall) {
  says_ = {"Hm. <tool_call>\n{\"name\": \"g\", \"arguments\": {\"a\": true}}\n</tool_call>"};
  const json c = choice(request());
  EXPECT_EQ(c["message"]["content"], "Hm.");
  ASSERT_EQ(c["message"]["tool_calls"].size(), 1u);
  const json& call = c["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["id"].get<std::string>().size(), 9u);
  EXPECT_EQ(call["function"], (json{{"name", "g"}, {"arguments", "{\"a\": true}"}}));
  EXPECT_EQ(c["finish_reason"], "tool_calls");
}

TEST_F(ToolsTest, OrMayNot) {
  says_ = {"Just words."};
  const json c = choice(request("auto"));
  EXPECT_EQ(c["message"], (json{{"role", "assistant"}, {"content", "Just words."}}));
  EXPECT_EQ(c["finish_reason"], "stop");
}

TEST_F(ToolsTest, ACallThatItBeginsFollowsTheSchema) {
  says_ = {"<tool_call>\n{\"name\": \"nonsense\", \"arguments\": 7"};
  const json c = choice(request());
  const json& call = c["message"]["tool_calls"].at(0)["function"];
  EXPECT_THAT(call["name"].get<std::string>(), ::testing::AnyOf("f", "g"));
  EXPECT_TRUE(json::parse(call["arguments"].get<std::string>())["a"].is_boolean());
}

TEST_F(ToolsTest, WhatCannotBePromisedOfACallIsSaidUnlessItMust) {
  says_ = {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": true}}\n</tool_call>"};
  json body = request();
  json& function = body["tools"][0]["function"];
  function["parameters"]["not"] = {{"required", {"b"}}};
  function["parameters"]["properties"]["\n\u00e9"] = {{"type", "string"}, {"format", "iri"}};
  for (const bool stream : {false, true}) {
    body["stream"] = stream;
    const auto exchange = complete(body, "/v1/chat/completions");
    ASSERT_EQ(stream ? 200 : exchange->status, 200) << exchange->body;
    const std::string said = exchange->header("X-Moestro-Not-Constrained");
    EXPECT_THAT(said, HasSubstr("the function 'f': the schema: 'not' is not supported"));
    EXPECT_THAT(said, HasSubstr("/properties/???: the format 'iri'"));
    EXPECT_THAT(exchange->body, HasSubstr("tool_calls"));
  }
  body["stream"] = false;
  const auto refused = [&](const json& changed) {
    const auto exchange = complete(changed, "/v1/chat/completions");
    EXPECT_EQ(exchange->status, 400);
    EXPECT_THAT(exchange->body, HasSubstr("'not'"));
  };
  json must = body;
  must["tool_choice"] = "required";
  refused(must);
  function["strict"] = true;
  refused(body);
  function["strict"] = false;
  function["parameters"] = {{"type", "object"}};
  const auto plain = complete(body, "/v1/chat/completions");
  EXPECT_EQ(plain->header("X-Moestro-Not-Constrained"), "");
}

TEST_F(ToolsTest, ItMustCall) {
  says_ = {"I would rather not."};
  json body = request("required");
  body["parallel_tool_calls"] = false;
  const json c = choice(body);
  EXPECT_EQ(c["message"]["content"], nullptr);
  EXPECT_EQ(c["message"]["tool_calls"].at(0)["function"]["name"], "f");
  EXPECT_EQ(c["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(c["finish_reason"], "tool_calls");
  const json named = choice(request({{"type", "function"}, {"function", {{"name", "g"}}}}));
  EXPECT_EQ(named["message"]["tool_calls"].at(0)["function"]["name"], "g");
}

TEST_F(ToolsTest, TheTemplateSeesToolsAndCallsOfBefore) {
  EXPECT_EQ(prompt_of(request()), "2 f g <tool_call>{\"name\"</tool_call>|x|");
  EXPECT_EQ(prompt_of(request("none")), "x|") << "what may not be called is not shown";
  json body = request("none");
  body["messages"].push_back(
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls",
        {{{"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"a\": 41}"}}}}}}});
  EXPECT_EQ(prompt_of(body), "x|41|") << "arguments are objects to the template";
  body["messages"].back()["tool_calls"][0]["function"]["arguments"] = "";
  EXPECT_EQ(prompt_of(body), "x||") << "an empty text is an empty object";
}

class ToolTemplateTest : public ToolsTest {
 protected:
  static ServedModel model() {
    ServedModel m = model_with_tools();
    m.chat_template = std::move(*ChatTemplate::parse("plain"));
    m.tool_template = std::move(*ChatTemplate::parse("with {{ tools | length }}"));
    return m;
  }
  ToolTemplateTest() : ToolsTest(model()) {}
};

TEST_F(ToolTemplateTest, OfRequestsThatMayCall) {
  EXPECT_EQ(prompt_of(request()), "with 2");
  EXPECT_EQ(prompt_of(request("none")), "plain");
}

TEST_F(ToolsTest, RefusesByName) {
  const auto refused = [&](const json& body, const std::string& field, const std::string& words) {
    const auto exchange = complete(body, "/v1/chat/completions");
    EXPECT_EQ(exchange->status, 400) << body;
    EXPECT_EQ(exchange->json()["error"]["param"], field) << exchange->body;
    EXPECT_THAT(exchange->json()["error"]["message"].get<std::string>(), HasSubstr(words));
  };
  const auto with = [&](const json& tools) {
    json body = request();
    body["tools"] = tools;
    return body;
  };
  const auto function = [](const json& f) { return json::array({{{"type", "function"}, {"function", f}}}); };
  refused(with(5), "tools", "list");
  refused(with(json::array({5})), "tools", "function");
  refused(with(json::array({{{"type", "code_interpreter"}}})), "tools", "function");
  refused(with(function({{"name", "a b"}})), "tools", "name");
  refused(with(function({{"name", "f"}, {"parameters", 5}})), "tools", "parameters");
  refused(with(function({{"name", "f"}, {"extra", 5}})), "extra", "extra");
  refused(with(function({{"name", "f"}, {"parameters", {{"type", "text"}}}})), "tools", "'type'");
  refused(request("always"), "tool_choice", "auto");
  refused(request({{"type", "function"}, {"function", {{"name", "h"}}}}), "tool_choice", "'h'");
  json none = request("required");
  none.erase("tools");
  refused(none, "tool_choice", "no tools");
  json both = request();
  both["response_format"] = {{"type", "json_object"}};
  refused(both, "response_format", "tools");
  json bad = request();
  bad["messages"].push_back(
      {{"role", "assistant"}, {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", "not json"}}}}}}});
  refused(bad, "messages", "arguments");
}

/// Tokens that end the marker and go on: to a call, and to none.
TEST(ToolMarkers, ATokenThatGoesOnBehindTheMarkerIsHeldToTheSchema) {
  constexpr TokenId kToCall = kEnd + 1, kToNone = kEnd + 2;
  auto json_text = moestro::testing::gpt2_like({});
  const json plain{{"special", false}};
  json_text["added_tokens"] = {moestro::testing::added_token(kEnd, "<|end|>"),
                               moestro::testing::added_token(kToCall, ">\n{", plain),
                               moestro::testing::added_token(kToNone, "> no", plain)};
  auto tokenizer = Tokenizer::from_json(json_text.dump());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  ServedModel model = model_with_tools();
  model.tokenizer = std::move(*tokenizer);
  model.vocab = kToNone + 1;
  const Constraints constraints(model);
  const auto read = read_chat(RequestJson::parse(ToolsTest::request().dump()));
  ASSERT_TRUE(std::holds_alternative<CompletionRequest>(read));
  const auto made = constraints.of(std::get<CompletionRequest>(read), false);
  ASSERT_TRUE(std::holds_alternative<Constraint>(made));
  const auto has = [](const TokenMask& mask, TokenId id) {
    return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  const auto sequence = std::get<Constraint>(made).begin();
  for (const char c : std::string("Hm. <tool_call")) {
    EXPECT_EQ(*sequence->allowed(), nullptr) << "before '" << c << "'";
    ASSERT_TRUE(sequence->accept(c));  // tokens of one byte
  }
  const auto at_marker = *sequence->allowed();
  ASSERT_NE(at_marker, nullptr);
  EXPECT_TRUE(has(*at_marker, kToCall) && has(*at_marker, kEnd) && has(*at_marker, 'x'));
  EXPECT_FALSE(has(*at_marker, kToNone));
  EXPECT_FALSE(sequence->accept(kToNone));
  ASSERT_TRUE(sequence->accept(kToCall));
  const auto inside = *sequence->allowed();
  ASSERT_NE(inside, nullptr);
  EXPECT_TRUE(has(*inside, '"'));
  EXPECT_FALSE(has(*inside, 'x') || has(*inside, kEnd)) << "the call goes on as the grammar says";
}

class TaggedToolsTest : public ToolsTest {
 public:
  TaggedToolsTest()
      : ToolsTest(model_with_tools(
            "<tool_call>{name}<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>")) {}
  static constexpr const char* kCall =
      "Hm.\n<tool_call>g\n<arg_key>a</arg_key>\n<arg_value>true</arg_value>\n</tool_call>";
};

TEST_F(TaggedToolsTest, TheModelMayCall) {
  says_ = {kCall};
  const json c = choice(request());
  EXPECT_EQ(c["message"]["content"], "Hm.");
  ASSERT_EQ(c["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(c["message"]["tool_calls"][0]["function"], (json{{"name", "g"}, {"arguments", "{\"a\": true}"}}));
  EXPECT_EQ(c["finish_reason"], "tool_calls");
}

TEST_F(TaggedToolsTest, CallsAreStreamed) {
  says_ = {kCall};
  json body = request();
  body["stream"] = true;
  std::string arguments, name;
  for (const json& e : complete(body, "/v1/chat/completions")->events())
    if (e.is_object())
      for (const json& call : e["choices"][0]["delta"].value("tool_calls", json::array())) {
        name += call["function"].value("name", "");
        arguments += call["function"]["arguments"].get<std::string>();
      }
  EXPECT_EQ(name, "g");
  EXPECT_EQ(arguments, "{\"a\": true}");
}

TEST_F(TaggedToolsTest, ACallThatItBeginsOrMustBeginFollowsTheSchema) {
  const json named{{"type", "function"}, {"function", {{"name", "g"}}}};
  for (const json& wanted : {json("auto"), json("required"), named}) {
    says_ = {wanted == "auto" ? "<tool_call>nonsense" : "I would rather not."};
    json body = request(wanted);
    body["parallel_tool_calls"] = false;
    const json c = choice(body);
    ASSERT_EQ(c["message"].value("tool_calls", json::array()).size(), 1u) << c;
    const json& call = c["message"]["tool_calls"][0]["function"];
    EXPECT_THAT(call["name"].get<std::string>(), ::testing::AnyOf("f", "g"));
    if (wanted.is_object()) EXPECT_EQ(call["name"], "g");
    EXPECT_TRUE(json::parse(call["arguments"].get<std::string>())["a"].is_boolean()) << call;
  }
}

TEST_F(TaggedToolsTest, WhatTagsCannotPromiseIsRefusedByNameWhereItMust) {
  json body = request("required");
  body["tools"][0]["function"]["parameters"]["properties"]["a"] = {{"type", "string"}, {"pattern", "x+"}};
  const auto exchange = complete(body, "/v1/chat/completions");
  EXPECT_EQ(exchange->status, 400);
  EXPECT_THAT(exchange->body, HasSubstr("a string between tags"));
  body["tool_choice"] = "auto";
  says_ = {"Hm."};
  const auto free = complete(body, "/v1/chat/completions");
  EXPECT_EQ(free->status, 200) << free->body;
  EXPECT_THAT(free->header("X-Moestro-Not-Constrained"), HasSubstr("a string between tags"));
}

/// Every form of calls, by words of its templates.
class FormsTest : public ToolsTest, public ::testing::WithParamInterface<std::string> {
 public:
  FormsTest() : ToolsTest(model_with_tools(GetParam())) {}
  static bool is_right(const json& call) {
    return json::parse(call["function"]["arguments"].get<std::string>())["a"].is_boolean();
  }
};

TEST_P(FormsTest, ItMustCall) {
  says_ = {"I would rather not."};
  json body = request("required");
  body["parallel_tool_calls"] = false;
  const json c = choice(body);
  ASSERT_EQ(c["message"].value("tool_calls", json::array()).size(), 1u) << c;
  EXPECT_TRUE(is_right(c["message"]["tool_calls"][0])) << c;
  EXPECT_EQ(c["message"]["content"], nullptr) << c;
  EXPECT_EQ(c["finish_reason"], "tool_calls");
  const json named = choice(request({{"type", "function"}, {"function", {{"name", "g"}}}}));
  for (const json& call : named["message"]["tool_calls"]) EXPECT_EQ(call["function"]["name"], "g") << named;
}

/// What it had to say is what it says freely, streamed.
TEST_P(FormsTest, TheSameIsReadWhereItMayCall) {
  const auto found = find_tool_form("tools" + GetParam(), [](std::string_view) { return false; });
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  const ToolForm& form = **found;
  grammar::ByteGrammar g;
  const auto begin = g.add();
  const auto tools = RequestJson::parse(request()["tools"].dump());
  const auto end = form.add_calls(g, begin, false, false, [&](grammar::ByteGrammar& to, grammar::NodeId from) {
    return form.add_call(to, from, tools[1]["function"], nullptr);
  });
  ASSERT_TRUE(end.is_ok());
  g.end(*end);
  g.set_start(begin);
  std::mt19937 random(1);
  const std::string said = grammar::testing::random_text(g, random);
  says_ = {said};
  json body = request();
  body["stream"] = true;
  std::string name, arguments, content, id;
  for (const json& e : complete(body, "/v1/chat/completions")->events()) {
    if (!e.is_object()) continue;
    const json& delta = e["choices"][0]["delta"];
    if (delta.contains("content") && delta["content"].is_string()) content += delta["content"].get<std::string>();
    for (const json& call : delta.value("tool_calls", json::array())) {
      name += call["function"].value("name", "");
      id += call.value("id", "");
      arguments += call["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(name, "g") << said;
  EXPECT_EQ(content, "") << said;
  EXPECT_TRUE(json::parse(arguments)["a"].is_boolean()) << said;
  EXPECT_EQ(id.starts_with("functions.g:"), form.ids_have_names()) << id;
}

INSTANTIATE_TEST_SUITE_P(All, FormsTest, ::testing::Values(
    "<|channel|>commentary functions <|channel|>analysis<|message|>", "<｜tool▁calls▁begin｜>```json",
    "<｜tool▁calls▁begin｜><｜tool▁sep｜>", "<|tool_calls_section_begin|>", "<minimax:tool_call><invoke name=",
    "<seed:tool_call><function=><parameter=>", "<tool_call><function=><parameter=>", "<tool_call><arg_key><arg_value>",
    "<tool_call>{\"name\"</tool_call>", "[TOOL_CALLS][ARGS]", "[TOOL_CALLS]", "<|tool_call|><|/tool_call|>",
    "<|tool_call|>", "[func_name1(", "\"parameters\": dictionary of argument name"));

TEST(FormsTested, AreAll) { EXPECT_EQ(all_tool_forms().size(), 15u) << "add the new one to the values above"; }
/// A prompt that ends in reasoning: a call that must be made comes behind it.
class ThinkingToolsTest : public ToolsTest {
 public:
  ThinkingToolsTest() : ToolsTest(model_with_tools("<tool_call>{\"name\"</tool_call>", "<think>\n")) {}
};

TEST_F(ThinkingToolsTest, ReasonBeforeTheyMustCall) {
  says_ = {"Well.\n</think>\n\nI would rather not."};
  const json c = choice(request("required"));
  EXPECT_EQ(c["message"]["reasoning_content"], "Well.") << c;
  EXPECT_EQ(c["message"]["content"], nullptr);
  ASSERT_GE(c["message"].value("tool_calls", json::array()).size(), 1u) << c;
  EXPECT_EQ(c["finish_reason"], "tool_calls");
}

TEST_F(ThinkingToolsTest, ACallIsMadeBehindTheReasoning) {
  says_ = {"Well.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": true}}\n</tool_call>"};
  const json c = choice(request());
  EXPECT_EQ(c["message"]["reasoning_content"], "Well.") << c;
  EXPECT_EQ(c["message"]["tool_calls"][0]["function"]["name"], "f") << c;
}

TEST_F(ToolsTest, OneCallIsOneCallWhereTheModelMayCall) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": true}}\n</tool_call>";
  says_ = {call + "\n" + call};
  EXPECT_EQ(choice(request())["message"]["tool_calls"].size(), 2u);
  json body = request();
  body["parallel_tool_calls"] = false;
  EXPECT_EQ(choice(body)["message"]["tool_calls"].size(), 1u);
}

class PythonicToolsTest : public ToolsTest {
 public:
  PythonicToolsTest() : ToolsTest(model_with_tools("[func_name1(")) {}
};

TEST_F(PythonicToolsTest, SaysThatNothingIsPromised) {
  says_ = {"[f(a=7)]"};
  json body = request();
  const auto exchange = complete(body, "/v1/chat/completions");
  EXPECT_THAT(exchange->header("X-Moestro-Not-Constrained"), HasSubstr("begin like any text"));
  EXPECT_EQ(exchange->json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 7}");
  body["tools"][0]["function"]["strict"] = true;
  const auto strict = complete(body, "/v1/chat/completions");
  EXPECT_EQ(strict->status, 400);
  EXPECT_THAT(strict->body, HasSubstr("begin like any text"));
}

TEST_F(PythonicToolsTest, SaysThatCallsMayBeSeveral) {
  says_ = {"[f(a=7)]"};
  json body = request();
  body["parallel_tool_calls"] = false;
  const auto exchange = complete(body, "/v1/chat/completions");
  EXPECT_THAT(exchange->header("X-Moestro-Not-Constrained"), HasSubstr("parallel_tool_calls: "));
}

/// Calls that stand behind each other without a marker.
class BareObjectToolsTest : public ToolsTest {
 public:
  BareObjectToolsTest() : ToolsTest(model_with_tools("\"parameters\": dictionary of argument name")) {}
};

TEST_F(BareObjectToolsTest, EachCallFollowsTheSchema) {
  const std::string first = R"({"name": "f", "parameters": {"a": true}})";
  says_ = {first + R"(; {"name": "f", "parameters": {"no_such": 1}})"};
  const json c = choice(request());
  const json& calls = c["message"]["tool_calls"];
  ASSERT_GE(calls.size(), 2u) << c;
  for (const json& call : calls)
    EXPECT_TRUE(json::parse(call["function"]["arguments"].get<std::string>()).value("a", json()).is_boolean()) << c;
  says_ = {first};
  EXPECT_EQ(choice(request())["message"]["tool_calls"].size(), 1u) << "and may be one";
}

class NamedIdsToolsTest : public ToolsTest {
 public:
  NamedIdsToolsTest() : ToolsTest(model_with_tools("<|tool_calls_section_begin|>")) {}
};

TEST_F(NamedIdsToolsTest, AnIdIsThatOfNoPastCall) {
  says_ = {"<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": true}"
           "<|tool_call_end|><|tool_calls_section_end|>"};
  json body = request();
  EXPECT_EQ(choice(body)["message"]["tool_calls"][0]["id"], "functions.f:0");
  const json call{{"id", "functions.f:0"},
                  {"type", "function"},
                  {"function", {{"name", "f"}, {"arguments", "{\"a\": true}"}}}};
  body["messages"].push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", json::array({call})}});
  body["messages"].push_back({{"role", "tool"}, {"tool_call_id", "functions.f:0"}, {"content", "y"}});
  EXPECT_EQ(choice(body)["message"]["tool_calls"][0]["id"], "functions.f:1");
}

TEST(KeptConstraints, AToolsNameIsNoOtherFieldOfTheRequest) {
  const ServedModel model = model_with_tools();
  const Constraints constraints(model);
  auto body = ToolsTest::request("required");
  body["tools"][1]["function"]["name"] = "p";
  const auto grammar_of = [&](const json& r) {
    const auto read = read_chat(RequestJson::parse(r.dump()));
    return std::get<Constraint>(constraints.of(std::get<CompletionRequest>(read), false)).grammar;
  };
  const auto any = grammar_of(body);
  body["tool_choice"] = {{"type", "function"}, {"function", {{"name", "p"}}}};
  body["parallel_tool_calls"] = false;
  EXPECT_NE(grammar_of(body), any);
}

}  // namespace
}  // namespace moestro::orchestrator
