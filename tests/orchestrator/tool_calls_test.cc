#include "orchestrator/api/tool_calls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace moestro::orchestrator {
namespace {

using nlohmann::json;

const ToolStyle kHermes{"<tool_call>", "</tool_call>", false};
const ToolStyle kMistral{"[TOOL_CALLS]", "", true};

struct Said {
  std::string content;
  json calls = json::array();
  bool operator==(const Said&) const = default;
};

/// Says `text` in pieces of `piece` bytes and joins what comes out.
Said said(const ToolStyle& style, const std::string& text, size_t piece) {
  ToolCallParser parser(style);
  Said out;
  const auto take = [&] {
    out.content += parser.take_content();
    for (const ToolCallDelta& d : parser.take_calls()) {
      if (d.begins) out.calls.push_back({{"name", d.name}, {"arguments", ""}});
      EXPECT_EQ(d.index + 1, out.calls.size());
      out.calls.back()["arguments"] = out.calls.back()["arguments"].get<std::string>() + d.arguments;
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    parser.push(text.substr(at, piece));
    take();
  }
  parser.finish();
  take();
  EXPECT_EQ(parser.calls(), out.calls.size());
  return out;
}

void expect(const ToolStyle& style, const std::string& text, const std::string& content, const json& calls) {
  for (const size_t piece : {1, 2, 3, 7, 1000}) {
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

TEST(ToolCalls, StylesOfTemplates) {
  EXPECT_EQ(tool_style_of("{{ messages }}"), std::nullopt);
  EXPECT_EQ(tool_style_of("<tool_call></tool_call>"), std::nullopt) << "it knows no tools";
  EXPECT_EQ(tool_style_of("{% if tools %}<tool_call></tool_call>")->begin, "<tool_call>");
  EXPECT_TRUE(tool_style_of("{% if tools %}[TOOL_CALLS]")->list);
}

}  // namespace
}  // namespace moestro::orchestrator
