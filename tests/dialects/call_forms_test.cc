// Calls and their results in requests of other APIs, in the prompts of families with forms of their own.

#include <gmock/gmock.h>

#include "orchestrator/api/chat_prompt.h"
#include "orchestrator/dialects/messages_request.h"
#include "orchestrator/dialects/responses_request.h"
#include "orchestrator/forms/find_tool_form.h"
#include "tests/forms/answer_parts.h"

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;

RequestJson chat_of_messages() {
  const auto read = read_messages_request(RequestJson::parse(R"({"max_tokens": 5, "messages": [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "z"},
      {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": "b"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]}]})"), false);
  return std::get<Translated>(read).request.body;
}

RequestJson chat_of_responses() {
  auto read = read_responses_request(RequestJson::parse(R"({"input": [
    {"role": "user", "content": "x"},
    {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{\"a\": \"b\"}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}]})"), false);
  const auto& request = std::get<ResponsesRequest>(read);
  RequestJson chat = request.chat.body;
  chat["messages"] = responses_messages(request, RequestJson::array());
  return chat;
}

std::string prompt_of(const std::string& model, const RequestJson& body) {
  const std::string source = testing::published_template(model);
  const auto form = find_tool_form(source, [](std::string_view) { return false; });
  const auto parsed = ChatTemplate::parse(source);
  const auto request = read_chat(body);
  if (const auto* error = std::get_if<ApiError>(&request)) return "error: " + error->message;
  const RequestJson variables{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"add_generation_prompt", true}};
  auto text = render_chat(*parsed, std::get<CompletionRequest>(request), variables, form->get());
  if (const auto* error = std::get_if<ApiError>(&text)) return "error: " + error->message;
  return std::get<std::string>(text);
}

TEST(CallForms, AreThoseOfTheModelInEachApi) {
  struct Model {
    const char *name, *call, *result;
  };
  for (const auto& [name, call, result] :
       {Model{"gpt-oss-120b",
              "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": \"b\"}<|call|>",
              "<|start|>functions.f to=assistant<|channel|>commentary<|message|>\"sunny\"<|end|>"},
        Model{"Kimi-K2-Thinking", "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": \"b\"}",
              "## Return of functions.f:0\nsunny"},
        Model{"DeepSeek-R1-0528", "function<｜tool▁sep｜>f\n```json\n{\"a\": \"b\"}\n```<｜tool▁call▁end｜>",
              "<｜tool▁output▁begin｜>sunny<｜tool▁output▁end｜>"},
        Model{"Qwen3-Coder", "<tool_call>\n<function=f>\n<parameter=a>\nb\n</parameter>\n</function>\n</tool_call>",
              "<tool_response>\nsunny\n</tool_response>"},
        Model{"MiniMax-M2", "<invoke name=\"f\">\n<parameter name=\"a\">b</parameter>\n</invoke>",
              "<response>sunny</response>"},
        Model{"GLM-4.6", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
              "<tool_response>\nsunny\n</tool_response>"}}) {
    SCOPED_TRACE(name);
    for (const RequestJson& chat : {chat_of_messages(), chat_of_responses()}) {
      const std::string prompt = prompt_of(name, chat);
      EXPECT_THAT(prompt, HasSubstr(call));
      EXPECT_THAT(prompt, HasSubstr(result));
    }
  }
}

TEST(CallForms, ReasoningBetweenCallsIsKeptWhereTheTemplateKeepsIt) {
  for (const char* name : {"gpt-oss-120b", "Kimi-K2-Thinking", "MiniMax-M2", "GLM-4.6"})
    EXPECT_THAT(prompt_of(name, chat_of_messages()), HasSubstr("Hm.")) << name;
}

}  // namespace
}  // namespace moestro::orchestrator
