// Grammars of calls: what they let a model write is read as calls that satisfy the tools' schemas.

#include <gmock/gmock.h>

#include "orchestrator/forms/find_tool_form.h"
#include "orchestrator/forms/reasoning_grammar.h"
#include "tests/forms/answer_parts.h"
#include "tests/grammar/grammar_texts.h"

namespace moestro::orchestrator {
namespace {

using grammar::ByteGrammar;
using grammar::NodeId;
using grammar::SchemaJson;
using grammar::testing::random_text;
using grammar::testing::reads;
using ::testing::HasSubstr;

const SchemaJson kToolList = SchemaJson::parse(R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "required": ["location"],
    "properties": {"location": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer"},
                   "o": {"type": "object", "properties": {"b": {"type": "boolean"}}}}}}},
  {"type": "function", "function": {"name": "set", "parameters": {"type": "object", "required": ["mode"],
    "properties": {"mode": {"enum": ["slow", "fast"]}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])");
const ToolArguments kToolArguments = arguments_of_tools(kToolList);

/// The grammar of an answer that must call.
ByteGrammar calls_of(const ToolForm& form, bool many, bool begun = false) {
  return grammar::testing::whole([&](ByteGrammar& g, NodeId from) {
    const auto end = form.add_calls(g, from, begun, many, [&](ByteGrammar& to, NodeId call) -> Result<NodeId> {
      const NodeId behind = to.add();
      for (const SchemaJson& tool : kToolList) {
        MOESTRO_ASSIGN_OR_RETURN(const NodeId at, form.add_call(to, call, tool["function"], nullptr));
        to.empty(at, behind);
      }
      return behind;
    });
    EXPECT_TRUE(end.is_ok()) << end.status().message();
    return end.is_ok() ? *end : from;
  });
}

bool is_valid(const nlohmann::json& call) {
  const auto arguments = SchemaJson::parse(call["arguments"].get<std::string>(), nullptr, false);
  if (!arguments.is_object()) return false;
  if (call["name"] == "now") return arguments.empty();
  if (call["name"] == "set") {
    const std::string mode = arguments.value("mode", "");
    return arguments.size() == 1 && (mode == "slow" || mode == "fast");
  }
  for (const auto& [key, value] : arguments.items()) {
    const bool right = key == "location" ? value.is_string()
                       : key == "unit"   ? value == "c" || value == "f"
                       : key == "days"   ? value.is_number_integer()
                                         : key == "o" && value.is_object();
    if (!right) return false;
  }
  return arguments.contains("location");
}

std::optional<ReasoningStyle> style_of(const ToolForm& form) {
  if (form.name().starts_with("<|channel|>")) return reasoning_style_of("<|channel|>analysis<|message|>");
  return std::nullopt;
}

class FormGrammar : public ::testing::TestWithParam<std::shared_ptr<const ToolForm>> {};

TEST_P(FormGrammar, EveryTextIsCalls) {
  const ToolForm& form = *GetParam();
  const testing::AnswerReader reader{form, style_of(form), false, kToolArguments};
  for (const bool many : {false, true}) {
    const ByteGrammar g = calls_of(form, many);
    std::mt19937 random(3);
    size_t most = 0;
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(g, random, 20 + random() % 200);
      const testing::AnswerParts parts = reader.read({text});
      EXPECT_EQ(parts.content, "") << text;
      EXPECT_EQ(parts.reasoning, "") << text;
      ASSERT_FALSE(parts.calls.empty()) << text;
      for (const auto& call : parts.calls) EXPECT_TRUE(is_valid(call)) << text << " gives " << call;
      most = std::max(most, parts.calls.size());
      EXPECT_EQ(reader.read(testing::pieces_of(text, 3)), parts) << text;
    }
    if (!many) EXPECT_EQ(most, 1u);
  }
}

/// Behind what begins calls in free text, the same.
TEST_P(FormGrammar, BehindTheMarkerTheyGoOn) {
  const ToolForm& form = *GetParam();
  if (form.begins().empty()) return;
  const ByteGrammar whole = calls_of(form, false), rest = calls_of(form, false, /*begun=*/true);
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    const std::string text = random_text(whole, random);
    ASSERT_TRUE(text.starts_with(form.frame().begin));
    EXPECT_TRUE(reads(rest, text.substr(form.frame().begin.size()))) << text;
  }
  const auto begins = form.begins();
  EXPECT_TRUE(std::ranges::any_of(begins, [&](const grammar::Marker& m) { return m.text == form.frame().begin; }));
}

INSTANTIATE_TEST_SUITE_P(All, FormGrammar, ::testing::ValuesIn(all_tool_forms()));

TEST(FormGrammars, ReasoningMayComeFirst) {
  const auto with = [](const ReasoningStyle& style, bool open) {
    return grammar::testing::whole([&](ByteGrammar& g, NodeId from) {
      return g.literal(add_reasoning(g, from, style, open), "<call>");
    });
  };
  const ReasoningStyle think{"<think>", "</think>"};
  const ByteGrammar closed = with(think, false), open = with(think, true);
  for (const char* text : {"<call>", "<think>a\n</thin b</think>\n\n<call>", "\n<think></think><call>"})
    EXPECT_TRUE(reads(closed, text)) << text;
  for (const char* text : {"words<call>", "a</think><call>", "<think>a<call>"})
    EXPECT_FALSE(reads(closed, text)) << text;
  EXPECT_TRUE(reads(open, "a<call></think>\n<call>"));
  EXPECT_FALSE(reads(open, "<call>")) << "the prompt's reasoning ends first";
  const ByteGrammar harmony = with(*reasoning_style_of("<|channel|>analysis<|message|>"), false);
  EXPECT_TRUE(reads(harmony, "<|channel|>analysis<|message|>a<|end|><|start|>assistant<call>"));
  EXPECT_TRUE(reads(harmony, "<call>"));
  EXPECT_FALSE(reads(with({"◁think▷", "◁/think▷"}, true), "a◁/think▷<call>")) << "no grammar can look for it";
}

TEST(FormGrammars, WhatAFormCannotWriteIsRefusedByName) {
  const auto refusal = [](const std::string& form_name, const std::string& parameters) {
    for (const auto& form : all_tool_forms()) {
      if (form->name() != form_name) continue;
      ByteGrammar g;
      const SchemaJson function{{"name", "f"}, {"parameters", SchemaJson::parse(parameters)}};
      const auto end = form->add_call(g, g.add(), function, nullptr);
      return end.is_ok() ? std::string() : end.status().message();
    }
    return std::string("no such form");
  };
  EXPECT_THAT(refusal("[NAME(KEY=VALUE)]", R"({"properties": {"a b": {}}})"), HasSubstr("/properties/a b"));
  EXPECT_THAT(refusal("[NAME(KEY=VALUE)]", R"({"anyOf": [{}]})"), HasSubstr("in Python's syntax"));
  EXPECT_THAT(refusal("<tool_call><function=", R"({"properties": {"a>b": {}}})"), HasSubstr("'>'"));
  EXPECT_THAT(refusal("<minimax:tool_call><invoke name=", R"({"properties": {"a\"b": {}}})"), HasSubstr("'\"'"));
  EXPECT_THAT(refusal("<tool_call>{\"name\": ...}", R"({"type": "text"})"), HasSubstr("'type'"));
}

}  // namespace
}  // namespace moestro::orchestrator
