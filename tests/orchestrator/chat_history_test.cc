// Past calls in the prompts of published templates (tests/chat/models).

#include "orchestrator/api/chat_history.h"

#include <gmock/gmock.h>

#include "orchestrator/api/chat_prompt.h"
#include "orchestrator/forms/find_tool_form.h"
#include "tests/forms/answer_parts.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct PublishedModel {
  ChatTemplate chat_template;
  std::shared_ptr<const ToolForm> form;
};

PublishedModel model_of(const std::string& source) {
  const auto form = find_tool_form(source, [](std::string_view) { return false; });
  EXPECT_TRUE(form.is_ok()) << form.status().message();
  return {*ChatTemplate::parse(source), *form};
}

PublishedModel published(const std::string& name) { return model_of(testing::published_template(name)); }

std::string history_prompt(const PublishedModel& model, const std::string& messages) {
  CompletionRequest request;
  request.messages = RequestJson::parse(messages);
  const RequestJson variables{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}};
  auto text = render_chat(model.chat_template, request, variables, model.form.get());
  if (const auto* error = std::get_if<ApiError>(&text)) return "error: " + error->message;
  return std::get<std::string>(text);
}

/// A past call as its template writes it is what the model would have said.
TEST(ChatHistory, IsReadAsItIsWritten) {
  const RequestJson tools = RequestJson::parse(R"([
    {"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
      "o": {"type": "object"}, "b": {"type": "boolean"}}}}}, {"function": {"name": "g"}}])");
  const ToolArguments arguments = arguments_of_tools(tools);
  const nlohmann::json first{{"s", "1 < 2 \"é\"\n"}, {"n", 7}, {"o", {{"a", {1, "}"}}}}, {"b", false}};
  for (const std::string name :
       {"DeepSeek-R1-0528", "Devstral-Small-2507", "GLM-4.5", "GLM-4.6", "GLM-4.7-Flash", "gpt-oss-120b",
        "granite-4.0", "Kimi-K2-Thinking", "MiniMax-M2", "Ministral-3-14B-Reasoning-2512", "Mistral-7B-Instruct-v0.3",
        "Mistral-Nemo-Instruct-2407", "Mistral-Small-3.2-24B-Instruct-2506", "Qwen2.5-7B-Instruct", "Qwen3-0.6B",
        "Qwen3-Coder", "Qwen3-Next-Thinking", "Qwen3-VL-Instruct", "Qwen3.5-4B", "QwQ-32B", "Seed-OSS-36B-Instruct"}) {
    SCOPED_TRACE(name);
    const PublishedModel model = published(name);
    const bool one = model.form->frame().next.empty();
    RequestJson calls = RequestJson::array();
    calls.push_back({{"id", "abcdefgh1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", first}}}});
    if (!one)
      calls.push_back({{"id", "abcdefgh2"}, {"type", "function"},
                       {"function", {{"name", "g"}, {"arguments", RequestJson::object()}}}});
    const RequestJson messages{{{"role", "user"}, {"content", "x"}},
                               {{"role", "assistant"}, {"content", "Hm."}, {"tool_calls", calls}}};
    const std::string prompt = history_prompt(model, messages.dump());
    size_t begin = one ? prompt.rfind("<|start|>assistant to=") : prompt.rfind("Hm.");
    if (begin == std::string::npos) begin = prompt.find(model.form->frame().begin);  // content is not shown with calls
    ASSERT_NE(begin, std::string::npos) << prompt;
    std::optional<ReasoningStyle> style;
    if (one) style = reasoning_style_of("<|channel|>analysis<|message|>");
    const auto parts = testing::AnswerReader{*model.form, style, false, arguments}.read({prompt.substr(begin)});
    ASSERT_EQ(parts.calls.size(), calls.size()) << prompt << "\n" << parts;
    EXPECT_EQ(parts.calls[0]["name"], "f");
    EXPECT_EQ(nlohmann::json::parse(parts.calls[0]["arguments"].get<std::string>()), first) << parts;
    if (!one) EXPECT_EQ(parts.calls[1]["name"], "g");
  }
}

TEST(ChatHistory, OfHarmonyHasOneCallToAMessage) {
  const std::string prompt = history_prompt(published("gpt-oss-120b"), R"([{"role": "user", "content": "x"},
    {"role": "assistant", "content": null, "reasoning_content": "Two of them.", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "2", "content": "of g"}, {"role": "tool", "tool_call_id": "1", "content": "of f"}])");
  EXPECT_THAT(prompt, HasSubstr("<|start|>assistant<|channel|>analysis<|message|>Two of them.<|end|>"
                                "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": 1}"
                                "<|call|>"
                                "<|start|>functions.f to=assistant<|channel|>commentary<|message|>\"of f\"<|end|>"
                                "<|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>"
                                "<|start|>functions.g to=assistant<|channel|>commentary<|message|>\"of g\"<|end|>"));
}

TEST(ChatHistory, OfHarmonyPutsNoResultBehindAnotherCall) {
  const std::string prompt = history_prompt(published("gpt-oss-120b"), R"([{"role": "user", "content": "x"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "2", "content": "of g"}])");
  EXPECT_THAT(prompt, HasSubstr("<|start|>functions.g to=assistant<|channel|>commentary<|message|>\"of g\""));
  EXPECT_THAT(prompt, Not(HasSubstr("<|start|>functions.f to=assistant")));
}

TEST(ChatHistory, OfHarmonyTakesReasoningAndContentBesideCalls) {
  const std::string prompt = history_prompt(published("gpt-oss-120b"), R"([{"role": "user", "content": "x"},
    {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
      {"type": "function", "function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "1"}])");
  EXPECT_THAT(prompt, HasSubstr("analysis<|message|>Hm.\n\nI look.<|end|>"));
}

TEST(ChatHistory, IdsNameTheirFunctionsWhereTheFormHasThemSo) {
  const std::string prompt = history_prompt(published("Kimi-K2-Thinking"), R"([{"role": "user", "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
      {"id": "call_xyz", "type": "function", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "functions.f:0", "content": "of f"},
    {"role": "tool", "tool_call_id": "call_xyz", "content": "of g"}])");
  EXPECT_THAT(prompt, HasSubstr("<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}"
                                "<|tool_call_end|>"
                                "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"));
  EXPECT_THAT(prompt, HasSubstr("## Return of functions.g:1"));
  EXPECT_THAT(prompt, Not(HasSubstr("call_xyz")));
}

TEST(ChatHistory, AnIdThatIsNamedIsThatOfNoOtherCall) {
  const std::string prompt = history_prompt(published("Kimi-K2-Thinking"), R"([{"role": "user", "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"id": "functions.f:1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
      {"id": "call_xyz", "type": "function", "function": {"name": "f", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "functions.f:1", "content": "first"},
    {"role": "tool", "tool_call_id": "call_xyz", "content": "second"}])");
  EXPECT_THAT(prompt, HasSubstr("## Return of functions.f:1\nfirst"));
  EXPECT_THAT(prompt, HasSubstr("## Return of functions.f:2\nsecond"));
}

/// As the templates of DeepSeek-V3 and R1 do it: arguments are added to text.
TEST(ChatHistory, TemplatesGetArgumentsAsTextWhereTheyTakeNoOther) {
  const PublishedModel model = model_of(
      "{{ tools }}{% for m in messages %}{% if m.tool_calls %}{% for t in m.tool_calls %}{{ m.content + "
      "'<｜tool▁calls▁begin｜><｜tool▁sep｜>' + t.function.name + '\n```json\n' + t.function.arguments }}"
      "{% endfor %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  const std::string messages = R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": null,
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"a": [1, "é"]}}}]}])";
  EXPECT_THAT(history_prompt(model, messages), HasSubstr("<｜tool▁sep｜>f\n```json\n{\"a\": [1, \"é\"]}"));
}

TEST(ChatHistory, WhatATemplateRefusesIsRefusedInItsWords) {
  const PublishedModel model = model_of("{{ tools }}[TOOL_CALLS]{{ raise_exception('no calls here') }}");
  const std::string messages = R"([{"role": "assistant", "content": null,
    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}])";
  EXPECT_THAT(history_prompt(model, messages), HasSubstr("no calls here"));
}

}  // namespace
}  // namespace moestro::orchestrator
