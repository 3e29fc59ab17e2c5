#include "orchestrator/api/tool_calls.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "orchestrator/chat/chat_template.h"
#include "tests/support/places.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;

const ToolStyle kHermes{"<tool_call>", "</tool_call>", false};
const ToolStyle kMistral{"[TOOL_CALLS]", "", true};
const ToolStyle kGlm{"<tool_call>", "</tool_call>", false, ToolStyle::Form::kTagged};
const ToolArguments kTools = arguments_of_tools(RequestJson::parse(R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "b": {"type": "boolean"},
    "maybe": {"type": ["string", "null"]}, "any": {}, "ref": {"$ref": "#/$defs/text"}},
    "$defs": {"text": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "g"}}])"));

struct Said {
  std::string content;
  json calls = json::array();
  bool operator==(const Said&) const = default;
};

/// Says `text` in pieces of `piece` bytes, 0: of random lengths, and joins what comes out.
Said said(const ToolStyle& style, const std::string& text, size_t piece) {
  const auto parser = make_tool_call_parser(style, kTools);
  Said out;
  const auto take = [&] {
    out.content += parser->take_content();
    for (const ToolCallDelta& d : parser->take_calls()) {
      if (d.begins) out.calls.push_back({{"name", d.name}, {"arguments", ""}});
      EXPECT_EQ(d.index + 1, out.calls.size());
      out.calls.back()["arguments"] = out.calls.back()["arguments"].get<std::string>() + d.arguments;
    }
  };
  static std::mt19937 random(1);
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
    bytes = piece > 0 ? piece : 1 + random() % 40;
    parser->push(text.substr(at, bytes));
    take();
  }
  parser->finish();
  take();
  EXPECT_EQ(parser->calls(), out.calls.size());
  return out;
}

void expect(const ToolStyle& style, const std::string& text, const std::string& content, const json& calls) {
  for (const size_t piece : {1, 2, 3, 7, 1000, 0, 0, 0}) {
    const Said got = said(style, text, piece);
    EXPECT_EQ(got.content, content) << text << " in pieces of " << piece;
    EXPECT_EQ(got.calls, calls) << text << " in pieces of " << piece;
  }
}

json call(const std::string& name, const std::string& arguments) { return {{"name", name}, {"arguments", arguments}}; }

TEST(ToolCalls, FindsCallsInText) {
  expect(kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "",
         json::array({call("f", "{\"a\": 1}")}));
  expect(kHermes,
         "Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"name\": \"g\", "
         "\"arguments\": {\"x\": \"}\\\"<tool_call>\"}}\n</tool_call>\n",
         "Let me see.", json::array({call("f", "{}"), call("g", "{\"x\": \"}\\\"<tool_call>\"}")}));
  expect(kHermes, "<tool_call>{\"arguments\": {\"a\": [1, {}]}, \"name\": \"f\"}</tool_call> done", " done",
         json::array({call("f", "{\"a\": [1, {}]}")}));
  expect(kHermes, "<tool_call>{\"name\": \"f\", \"parameters\": {\"a\": 1}}</tool_call>", "",
         json::array({call("f", "{\"a\": 1}")}));
  expect(kHermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "", json::array({call("f", "{}")}));
  expect(kHermes, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)", "",
         json::array({call("f", "{\"a\": 1}")}));
  expect(kMistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
         "", json::array({call("f", "{\"a\": 1}"), call("g", "{}")}));
  expect(kMistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", "", json::array({call("f", "{}")}));
}

TEST(ToolCalls, WhatIsNoCallIsContent) {
  expect(kHermes, "a < b <tool> <tool_cal", "a < b <tool> <tool_cal", json::array());
  expect(kHermes, "  spaces  ", "  spaces  ", json::array());
  expect(kHermes, "<tool_call>nothing</tool_call>", "<tool_call>nothing</tool_call>", json::array());
  expect(kHermes, "<tool_call>{\"a\": 1}</tool_call>x", "<tool_call>{\"a\": 1}</tool_call>x", json::array());
  expect(kHermes, "x <tool_call>\n", "x <tool_call>\n", json::array());
  expect(kHermes, "<tool_call>{\"na", "<tool_call>{\"na", json::array());
  expect(kMistral, "[TOOL_CALLS]x", "[TOOL_CALLS]x", json::array());
}

TEST(ToolCalls, ACallThatIsCutOffKeepsWhatThereIs) {
  expect(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1,", "",
         json::array({call("f", "{\"a\": [1,")}));
}

std::string tagged(const std::string& key, const std::string& value) {
  return "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
}

TEST(ToolCalls, ArgumentsBetweenTagsAreWhatTheSchemaSays) {
  const auto f = [](const std::string& inside, const std::string& arguments) {
    expect(kGlm, "<tool_call>f\n" + inside + "</tool_call>", "", json::array({call("f", arguments)}));
  };
  f("", "{}");
  f(tagged("s", "12"), R"({"s": "12"})");
  f(tagged("s", " a \"b\"\n\xc3\xa9</arg_val> "), "{\"s\": \" a \\\"b\\\"\\n\xc3\xa9</arg_val> \"}");
  f(tagged("s", ""), R"({"s": ""})");
  f(tagged("ref", "true"), R"({"ref": "true"})");
  f(tagged("n", " 12\n") + tagged("b", "true"), R"({"n": 12, "b": true})");
  f(tagged("n", "twelve"), R"({"n": "twelve"})");
  f(tagged("o", R"({"a": "</arg_value>\"", "b": [1]})"), R"({"o": {"a": "</arg_value>\"", "b": [1]}})");
  f(tagged("maybe", "null"), R"({"maybe": null})");
  f(tagged("maybe", "5"), R"({"maybe": "5"})");
  f(tagged("any", "5") + tagged("other", "\"x\"") + tagged("s", "x < y"),
    R"({"any": 5, "other": "\"x\"", "s": "x < y"})");
  expect(kGlm, "Hm.\n<tool_call>f" + tagged("n", "1") + "</tool_call>\n<tool_call>g\n</tool_call>\n", "Hm.",
         json::array({call("f", "{\"n\": 1}"), call("g", "{}")}));
}

TEST(ToolCalls, WhatIsNoTaggedCallIsContent) {
  for (const std::string text :
       {"<tool_call>nothing</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call>f",
        "<tool_call>f\n<arg", "<tool_call>f <x>", "x <tool_call>\n", "<tool_call></tool_call>"})
    expect(kGlm, text, text, json::array());
  const std::string wide = "<tool_call>" + std::string(400, 'f') + " and so on";
  expect(kGlm, wide, wide, json::array());
  expect(kGlm, "<tool_call>f\n" + tagged("n", "1") + "words</tool_call>", "words</tool_call>",
         json::array({call("f", "{\"n\": 1")}));
  expect(kGlm, "<tool_call>f\n<arg_key>n</arg_key>words", "<arg_key>n</arg_key>words", json::array({call("f", "")}));
}

TEST(ToolCalls, ATaggedCallThatIsCutOffKeepsWhatThereIs) {
  expect(kGlm, "<tool_call>f\n" + tagged("n", "1") + "<arg_key>s</arg_key><arg_value>ab</arg", "",
         json::array({call("f", "{\"n\": 1, \"s\": \"ab</arg")}));
  expect(kGlm, "<tool_call>f\n<arg_key>o</arg_key><arg_value>{\"a\": ", "",
         json::array({call("f", "{\"o\": {\"a\": ")}));
}

std::string published(const std::string& model) {
  std::ifstream in(test::source_dir() / "tests/chat/models" / (model + ".jinja"), std::ios::binary);
  EXPECT_TRUE(in.is_open()) << model;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A past call as the published template writes it is what the model would have said.
TEST(ToolCalls, CallsThatPublishedTemplatesWriteAreRead) {
  for (const std::string model : {"GLM-4.5", "GLM-4.6"}) {
    SCOPED_TRACE(model);
    const std::string source = published(model);
    const auto style = tool_style_of(source);
    ASSERT_TRUE(style);
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    const auto text = parsed->render(RequestJson::parse(R"([{"role": "user", "content": "x"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments":
            {"s": "1 < 2", "n": 7, "o": {"a": [1, "</arg_value>"]}, "b": false, "maybe": null}}},
          {"type": "function", "function": {"name": "g", "arguments": {}}}]}])"), RequestJson::object());
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    const std::string answer = text->substr(text->find("Hm."));
    expect(*style, answer, "Hm.", json::array({call("f", R"({"s": "1 < 2", "n": 7, "o": {"a": [1, "</arg_value>"]}, )"
                                                         R"("b": false, "maybe": null})"), call("g", "{}")}));
  }
}

TEST(ToolCalls, StylesOfTemplates) {
  EXPECT_EQ(tool_style_of("{{ messages }}"), std::nullopt);
  EXPECT_EQ(tool_style_of("<tool_call></tool_call>"), std::nullopt) << "it knows no tools";
  EXPECT_EQ(tool_style_of("{% if tools %}<tool_call></tool_call>")->begin, "<tool_call>");
  EXPECT_TRUE(tool_style_of("{% if tools %}[TOOL_CALLS]")->list);
  for (const char* model : {"GLM-4.5", "GLM-4.6"})
    EXPECT_EQ(tool_style_of(published(model))->form, ToolStyle::Form::kTagged) << model;
  for (const char* model : {"Qwen3-0.6B", "QwQ-32B", "granite-4.0"})
    EXPECT_EQ(tool_style_of(published(model))->form, ToolStyle::Form::kObject) << model;
}

}  // namespace
}  // namespace moestro::orchestrator
