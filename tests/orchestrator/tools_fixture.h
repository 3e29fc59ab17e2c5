#pragma once
// A model of bytes that has tools.

#include <gtest/gtest.h>

#include <string>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator::testing {

inline constexpr int64_t kToolsContext = 512;

inline ServedModel model_with_tools(const std::string& call = "<tool_call>{\"name\"</tool_call>",
                                    const std::string& answer_begin = "") {
  const std::string source =
      "{% if tools %}{{ tools | length }}{% for t in tools %} {{ t.function.name }}{% endfor %} " + call +
      "|{% endif %}"
      "{% for m in messages %}{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments.a }}{% else %}{{ m.content "
      "}}{% endif %}|{% endfor %}" +
      (answer_begin.empty() ? "" : "{% if add_generation_prompt %}" + answer_begin + "{% endif %}{# </think> #}");
  ServedModel m = byte_model();
  auto chat = ChatTemplate::parse(source);
  MOESTRO_CHECK(chat.is_ok(), chat.status().message());
  m.chat_template = std::move(*chat);
  m.set_styles(source);
  m.context_max = kToolsContext;
  return m;
}

class ToolsTest : public ApiTest {
 public:
  explicit ToolsTest(ServedModel model = model_with_tools()) : ApiTest(std::move(model)) {
    worker_.join({.model = name_,
                  .limits = {.kv_blocks = 256,
                             .kv_block_tokens = 4,
                             .context_max = kToolsContext,
                             .step_tokens_max = 512,
                             .step_sequences_max = 4}});
  }
  static nlohmann::json request(const nlohmann::json& choice = nullptr) {
    const nlohmann::json schema = {
        {"type", "object"}, {"properties", {{"a", {{"type", "boolean"}}}}}, {"required", {"a"}}};
    nlohmann::json r = {
        {"messages", {{{"role", "user"}, {"content", "x"}}}},
        {"max_tokens", 300},
        {"tools",
         {{{"type", "function"}, {"function", {{"name", "f"}, {"description", "d"}, {"parameters", schema}}}},
          {{"type", "function"}, {"function", {{"name", "g"}, {"parameters", schema}}}}}}};
    if (!choice.is_null()) r["tool_choice"] = choice;
    return r;
  }
  /// What the worker is sent of a chat.
  std::string prompt_of(const nlohmann::json& body) {
    const auto exchange = post("/v1/chat/completions", body);
    std::optional<Plan> plan;  // the request is read on a thread of its own first
    for (const auto end = std::chrono::steady_clock::now() + kAnswerLimit;
         !plan && !exchange->done && std::chrono::steady_clock::now() < end;) {
      (void)run_posted();
      plan = worker_.try_plan(std::chrono::milliseconds(5));
    }
    if (!plan) return exchange->body;
    std::string text;
    for (const TokenId t : plan->sequences.at(0).tokens) text += static_cast<char>(t);
    worker_.answer(compute_texts(*plan));
    finish(*exchange);
    return text;
  }
  nlohmann::json choice(const nlohmann::json& body) {
    const auto exchange = complete(body, "/v1/chat/completions");
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    return exchange->json()["choices"][0];
  }
};

}  // namespace moestro::orchestrator::testing
