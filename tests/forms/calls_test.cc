// Calls of the forms that JSON objects and tags are, piece by piece; cases of each family are in recorded_test.cc.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "orchestrator/chat/chat_template.h"
#include "orchestrator/forms/find_tool_form.h"
#include "tests/forms/answer_parts.h"

namespace moestro::orchestrator {
namespace {

using grammar::SchemaJson;
using nlohmann::json;

const ToolForm& form_of(const std::string& words) {
  static std::vector<std::shared_ptr<const ToolForm>> kept;
  const auto form = find_tool_form("tools" + words, [](std::string_view) { return false; });
  EXPECT_TRUE(form.is_ok()) << words;
  kept.push_back(*form);
  return *kept.back();
}

const ToolForm& kHermes = form_of("<tool_call>{\"name\"</tool_call>");
const ToolForm& kMistral = form_of("[TOOL_CALLS]");
const ToolForm& kGlm = form_of("<tool_call><arg_key><arg_value>");
const ToolArguments kTools = arguments_of_tools(SchemaJson::parse(R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"}, "b": {"type": "boolean"},
    "maybe": {"type": ["string", "null"]}, "any": {}, "ref": {"$ref": "#/$defs/text"}},
    "$defs": {"text": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "g"}}])"));

struct SaidCalls {
  std::string content;
  json calls = json::array();
  bool operator==(const SaidCalls&) const = default;
};

/// Says `text` in pieces of `piece` bytes, 0: of random lengths, and joins what comes out.
SaidCalls said(const ToolForm& form, const std::string& text, size_t piece) {
  const auto parser = form.parser(kTools);
  SaidCalls out;
  const auto take = [&] {
    for (const AnswerPiece& taken : parser->take()) {
      if (const auto* words = std::get_if<std::string>(&taken)) {
        out.content += *words;
        continue;
      }
      const auto& d = std::get<ToolCallDelta>(taken);
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

void expect_calls(const ToolForm& form, const std::string& text, const std::string& content, const json& calls) {
  for (const size_t piece : {1, 2, 3, 7, 1000, 0, 0, 0}) {
    const SaidCalls got = said(form, text, piece);
    EXPECT_EQ(got.content, content) << text << " in pieces of " << piece;
    EXPECT_EQ(got.calls, calls) << text << " in pieces of " << piece;
  }
}

json call(const std::string& name, const std::string& arguments) { return {{"name", name}, {"arguments", arguments}}; }

TEST(ToolCalls, FindsCallsInText) {
  expect_calls(kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "",
         json::array({call("f", "{\"a\": 1}")}));
  expect_calls(kHermes,
         "Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_call>\n{\"name\": \"g\", "
         "\"arguments\": {\"x\": \"}\\\"<tool_call>\"}}\n</tool_call>\n",
         "Let me see.", json::array({call("f", "{}"), call("g", "{\"x\": \"}\\\"<tool_call>\"}")}));
  expect_calls(kHermes, "<tool_call>{\"arguments\": {\"a\": [1, {}]}, \"name\": \"f\"}</tool_call> done", " done",
         json::array({call("f", "{\"a\": [1, {}]}")}));
  expect_calls(kHermes, "<tool_call>{\"name\": \"f\", \"parameters\": {\"a\": 1}}</tool_call>", "",
         json::array({call("f", "{\"a\": 1}")}));
  expect_calls(kHermes, "<tool_call>{\"name\": \"f\"}</tool_call>", "", json::array({call("f", "{}")}));
  expect_calls(kHermes, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)", "",
         json::array({call("f", "{\"a\": 1}")}));
  expect_calls(kMistral,
               "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
         "", json::array({call("f", "{\"a\": 1}"), call("g", "{}")}));
  expect_calls(kMistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]", "", json::array({call("f", "{}")}));
}

TEST(ToolCalls, WhatIsNoCallIsContent) {
  expect_calls(kHermes, "a < b <tool> <tool_cal", "a < b <tool> <tool_cal", json::array());
  expect_calls(kHermes, "  spaces  ", "  spaces  ", json::array());
  expect_calls(kHermes, "<tool_call>nothing</tool_call>", "<tool_call>nothing</tool_call>", json::array());
  expect_calls(kHermes, "<tool_call>{\"a\": 1}</tool_call>x", "<tool_call>{\"a\": 1}</tool_call>x", json::array());
  expect_calls(kHermes, "x <tool_call>\n", "x <tool_call>\n", json::array());
  expect_calls(kHermes, "<tool_call>{\"na", "<tool_call>{\"na", json::array());
  expect_calls(kMistral, "[TOOL_CALLS]x", "[TOOL_CALLS]x", json::array());
}

TEST(ToolCalls, ACallThatIsCutOffKeepsWhatThereIs) {
  expect_calls(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1,", "",
         json::array({call("f", "{\"a\": [1,")}));
}

/// The name is complete with the last byte of each text: a call that is cut there has no arguments yet.
TEST(ToolCalls, ACallThatIsCutBehindItsNameIsACall) {
  struct Cut {
    const char *words, *text;
  };
  for (const auto& [words, text] :
       {Cut{"<|channel|>commentary functions", "<|start|>assistant to=functions.f<|message|>"},
        Cut{"<｜tool▁calls▁begin｜>```json",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json"},
        Cut{"<｜tool▁calls▁begin｜><｜tool▁sep｜>", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>"},
        Cut{"<|tool_calls_section_begin|>",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"},
        Cut{"<minimax:tool_call><invoke name=", "<minimax:tool_call>\n<invoke name=\"f\">"},
        Cut{"<seed:tool_call><function=<parameter=", "<seed:tool_call><function=f>"},
        Cut{"<tool_call><function=<parameter=", "<tool_call>\n<function=f>"},
        Cut{"<tool_call><arg_key><arg_value>", "<tool_call>f\n<arg_key>"},
        Cut{"<tool_call></tool_call>\"name", "<tool_call>\n{\"name\": \"f\""},
        Cut{"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]"},
        Cut{"[TOOL_CALLS]", "[TOOL_CALLS][{\"name\": \"f\""},
        Cut{"<|tool_call|><|/tool_call|>", "<|tool_call|>[{\"name\": \"f\""},
        Cut{"<|tool_call|>", "<|tool_call|>[{\"name\": \"f\""},
        Cut{"[func_name1(", "[f("},
        Cut{"\"parameters\": dictionary of argument name", "{\"name\": \"f\""}}) {
    const ToolForm& form = form_of(words);
    const std::string whole = text, cut = whole.substr(0, whole.size() - 1);
    expect_calls(form, whole, "", json::array({call("f", "")}));
    expect_calls(form, whole + " \n", "", json::array({call("f", "")}));
    expect_calls(form, cut, cut, json::array());
  }
  expect_calls(kHermes, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\"", "",
               json::array({call("f", "{\"a\": 1}")}));
  const std::string none = "{\"name\": \"none\"";
  expect_calls(form_of("\"parameters\": dictionary of argument name"), none, none, json::array());
}

std::string tagged(const std::string& key, const std::string& value) {
  return "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
}

TEST(ToolCalls, ArgumentsBetweenTagsAreWhatTheSchemaSays) {
  const auto f = [](const std::string& inside, const std::string& arguments) {
    expect_calls(kGlm, "<tool_call>f\n" + inside + "</tool_call>", "", json::array({call("f", arguments)}));
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
  expect_calls(kGlm, "Hm.\n<tool_call>f" + tagged("n", "1") + "</tool_call>\n<tool_call>g\n</tool_call>\n", "Hm.",
         json::array({call("f", "{\"n\": 1}"), call("g", "{}")}));
}

TEST(ToolCalls, WhatIsNoTaggedCallIsContent) {
  for (const std::string text :
       {"<tool_call>nothing</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", "<tool_call>f",
        "<tool_call>f\n<arg", "<tool_call>f <x>", "x <tool_call>\n", "<tool_call></tool_call>"})
    expect_calls(kGlm, text, text, json::array());
  const std::string wide = "<tool_call>" + std::string(400, 'f') + " and so on";
  expect_calls(kGlm, wide, wide, json::array());
  expect_calls(kGlm, "<tool_call>f\n" + tagged("n", "1") + "words</tool_call>", "words</tool_call>",
         json::array({call("f", "{\"n\": 1")}));
  expect_calls(kGlm, "<tool_call>f\n<arg_key>n</arg_key>words", "<arg_key>n</arg_key>words",
               json::array({call("f", "")}));
}

TEST(ToolCalls, ATaggedCallThatIsCutOffKeepsWhatThereIs) {
  expect_calls(kGlm, "<tool_call>f\n" + tagged("n", "1") + "<arg_key>s</arg_key><arg_value>ab</arg", "",
         json::array({call("f", "{\"n\": 1, \"s\": \"ab</arg")}));
  expect_calls(kGlm, "<tool_call>f\n<arg_key>o</arg_key><arg_value>{\"a\": ", "",
         json::array({call("f", "{\"o\": {\"a\": ")}));
}

/// A past call as the published template writes it is what the model would have said.
TEST(ToolCalls, CallsThatPublishedTemplatesWriteAreRead) {
  for (const std::string model : {"GLM-4.5", "GLM-4.6"}) {
    SCOPED_TRACE(model);
    const std::string source = testing::published_template(model);
    const auto form = find_tool_form(source, [](std::string_view) { return false; });
    ASSERT_TRUE(form.is_ok());
    const auto parsed = ChatTemplate::parse(source);
    ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
    const auto text = parsed->render(SchemaJson::parse(R"([{"role": "user", "content": "x"},
        {"role": "assistant", "content": "Hm.", "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments":
            {"s": "1 < 2", "n": 7, "o": {"a": [1, "</arg_value>"]}, "b": false, "maybe": null}}},
          {"type": "function", "function": {"name": "g", "arguments": {}}}]}])"), SchemaJson::object());
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    const std::string answer = text->substr(text->find("Hm."));
    expect_calls(**form, answer, "Hm.", json::array({call("f", R"({"s": "1 < 2", "n": 7, "o": {"a": [1, "</arg_value>"]}, )"
                                                         R"("b": false, "maybe": null})"), call("g", "{}")}));
  }
}

/// A key that does not end holds nothing back for ever.
TEST(ToolCalls, AKeyThatDoesNotEndIsContent) {
  const std::string key(300, 'a');
  expect_calls(form_of("[func_name1("), "[f(" + key, key, json::array({call("f", "")}));
  expect_calls(kGlm, "<tool_call>f\n<arg_key>" + key, "<arg_key>" + key, json::array({call("f", "")}));
}

/// Ids of past calls are not given again.
TEST(ToolCalls, IdsAreThoseOfNoPastCall) {
  const ToolForm& kimi = form_of("<|tool_calls_section_begin|>");
  ASSERT_TRUE(kimi.ids_have_names());
  const auto parser = kimi.parser(kTools);
  parser->avoid_ids({"functions.f:0", "functions.f:2", "other"});
  std::string text = "<|tool_calls_section_begin|>";
  for (const char* id : {"functions.f:0", "functions.f:1", "functions.g:0"})
    text += std::string("<|tool_call_begin|>") + id + "<|tool_call_argument_begin|>{}<|tool_call_end|>";
  parser->push(text + "<|tool_calls_section_end|>");
  parser->finish();
  std::vector<std::string> ids;
  for (const AnswerPiece& piece : parser->take())
    if (const auto* d = std::get_if<ToolCallDelta>(&piece); d != nullptr && d->begins) ids.push_back(d->id);
  EXPECT_EQ(ids, (std::vector<std::string>{"functions.f:1", "functions.f:3", "functions.g:0"}));
}

}  // namespace
}  // namespace moestro::orchestrator
