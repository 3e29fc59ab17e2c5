#include "orchestrator/forms/find_tool_form.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <map>

#include "orchestrator/forms/reasoning_style.h"
#include "tests/forms/answer_parts.h"
#include "tests/support/places.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;

constexpr auto kNoToken = [](std::string_view) { return false; };

std::string name_of(std::string_view source, const HasToken& has_token = kNoToken) {
  const auto form = find_tool_form(source, has_token);
  return form.is_ok() ? (*form)->name() : "none";
}

/// Each published template, by the form of its calls and by what ends its reasoning.
TEST(FindToolForm, OfPublishedTemplates) {
  struct Known {
    std::string form, end;
  };
  const std::string hermes = "<tool_call>{\"name\": ...}", tags = "<tool_call>NAME<arg_key>",
                    args = "[TOOL_CALLS]NAME[ARGS]{...}", list = "[TOOL_CALLS][{\"name\": ...}]",
                    functions = "<tool_call><function=", none = "none";
  const std::map<std::string, Known> known{
      {"Apertus-8B-Instruct", {none, ""}},
      {"Apriel-1.5-15b-Thinker", {none, ""}},
      {"DeepSeek-R1-0528", {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME", "</think>"}},
      {"DeepSeek-R1-Distill-Qwen-32B", {none, "</think>"}},
      {"DeepSeek-V3.1", {none, "</think>"}},  // its own template writes no tools
      {"Devstral-Small-2507", {args, ""}},
      {"functionary-medium-v3.1", {none, ""}},
      {"functionary-medium-v3.2", {none, ""}},
      {"GLM-4.5", {tags, "</think>"}},
      {"GLM-4.6", {tags, "</think>"}},
      {"GLM-4.7-Flash", {tags, "</think>"}},
      {"gpt-oss-120b", {"<|channel|>commentary to=functions.NAME", "<|end|>"}},
      {"granite-3.3-2b-instruct", {"<|tool_call|>[{\"name\": ...}]", "</think>"}},
      {"granite-4.0", {hermes, ""}},
      {"internlm3-8b-instruct", {none, ""}},
      {"Kimi-K2-Thinking", {"<|tool_call_begin|>functions.NAME:NUMBER", "</think>"}},
      {"MiniMax-M1", {none, ""}},
      {"MiniMax-M2", {"<minimax:tool_call><invoke name=", "</think>"}},
      {"Ministral-3-14B-Reasoning-2512", {args, "[/THINK]"}},
      {"Mistral-7B-Instruct-v0.3", {list, ""}},
      {"Mistral-Nemo-Instruct-2407", {list, ""}},
      {"Mistral-Small-3.2-24B-Instruct-2506", {args, ""}},
      {"Phi-3.5-mini-instruct", {none, ""}},
      {"Qwen2.5-7B-Instruct", {hermes, ""}},
      {"Qwen3-0.6B", {hermes, "</think>"}},
      {"Qwen3-Coder", {functions, ""}},
      {"Qwen3-Next-Thinking", {hermes, "</think>"}},
      {"Qwen3-VL-Instruct", {hermes, ""}},
      {"Qwen3.5-4B", {functions, "</think>"}},
      {"QwQ-32B", {hermes, "</think>"}},
      {"Seed-OSS-36B-Instruct", {"<seed:tool_call><function=", "</seed:think>"}},
      {"SmolLM3-3B", {none, "</think>"}},
      {"Yi-1.5-chat", {none, ""}},
  };
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "tests/chat/models")) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string model = entry.path().stem().string(), source = testing::published_template(model);
    SCOPED_TRACE(model);
    ASSERT_TRUE(known.contains(model)) << "say here what it is";
    EXPECT_EQ(name_of(source), known.at(model).form);
    const auto style = reasoning_style_of(source);
    EXPECT_EQ(style ? style->end : "", known.at(model).end);
    EXPECT_EQ(style && !style->answer_begin.empty(), model == "granite-3.3-2b-instruct");
  }
}

TEST(FindToolForm, SaysWhyThereIsNone) {
  EXPECT_THAT(find_tool_form("{{ messages }}<tool_call>{\"name\"</tool_call>", kNoToken).status().message(),
              HasSubstr("does not write tools"));
  const std::string unknown = find_tool_form("{{ tools }}<call>", kNoToken).status().message();
  EXPECT_THAT(unknown, HasSubstr("of a form that is known here"));
  for (const auto& form : all_tool_forms()) EXPECT_THAT(unknown, HasSubstr(form->name()));
  EXPECT_EQ(name_of("{{ tools }}<tool_call></tool_call>"), "none") << "nothing shows what stands in it";
  EXPECT_EQ(name_of("{{ tools }}<tool_call>{{ {'name': c.name} | tojson }}</tool_call>"), "<tool_call>{\"name\": ...}");
  EXPECT_EQ(name_of("{{ tools }}<tool_call><function=f>{\"name\"</tool_call>"), "none");
}

TEST(FindToolForm, TokensShowWhatATemplateLeavesOut) {
  const std::string declared = "{{ '<|im_system|>tool_declare<|im_middle|>' }}{{ tools }}";
  EXPECT_EQ(name_of(declared), "none");
  EXPECT_EQ(name_of(declared, [](std::string_view t) { return t == "<|tool_calls_section_begin|>"; }),
            "<|tool_call_begin|>functions.NAME:NUMBER");
}

/// docs/api.md lists what is known.
TEST(FindToolForm, TheDocumentationHasEachForm) {
  std::string docs = testing::file_of_tree("docs/api.md");
  std::erase(docs, '\\');  // in tables '|' is escaped
  for (const auto& form : all_tool_forms()) EXPECT_THAT(docs, HasSubstr("`" + form->name() + "`"));
}

}  // namespace
}  // namespace moestro::orchestrator
