// Fields of chats: what the template makes of the messages, and the reasoning in answers.

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kLongContext = 512;

/// Opens <think> in the generation prompt where `open` is given as an argument of the template.
ServedModel thinking_model(const std::string& more = "") {
  const std::string source =
      "{% for m in messages %}{{ m.role[0] }}:{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
      "{% endif %}{{ m.content | trim }};{% endfor %}" +
      more +
      "{% if tools %}<tool_call>{\"name\"</tool_call>{% endif %}{% if add_generation_prompt %}a:{% if open %}<think>\n"
      "{% endif %}{% endif %}";
  ServedModel m = byte_model();
  auto chat = ChatTemplate::parse(source);
  MOESTRO_CHECK(chat.is_ok(), chat.status().message());
  m.chat_template = std::move(*chat);
  m.set_styles(source);
  m.context_max = kLongContext;
  return m;
}

class ChatFieldsTest : public ApiTest {
 protected:
  explicit ChatFieldsTest(ServedModel model = thinking_model()) : ApiTest(std::move(model)) {
    worker_.join({.model = name_,
                  .limits = {.kv_blocks = 256,
                             .kv_block_tokens = 4,
                             .context_max = kLongContext,
                             .step_tokens_max = 512,
                             .step_sequences_max = 4}});
  }
  static json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
  static json assistant(const std::string& text) { return {{"role", "assistant"}, {"content", text}}; }
  std::shared_ptr<FakeExchange> chat(json body) {
    body.emplace("messages", json::array({user("x")}));
    body.emplace("max_tokens", 200);
    return complete(body, "/v1/chat/completions");
  }
  json choice(const json& body) {
    const auto exchange = chat(body);
    EXPECT_EQ(exchange->status, 200) << exchange->body;
    return exchange->json()["choices"].at(0);
  }
  /// The prompt that the worker is given.
  std::string prompt_of(json body) {
    body.emplace("messages", json::array({user("x")}));
    body.emplace("max_tokens", 1);
    body["cache_salt"] = std::to_string(++prompts_);  // or the worker is given what is not cached
    const auto exchange = post("/v1/chat/completions", body);
    if (exchange->done) return exchange->body;
    const Plan plan = worker_.hear_plan();
    std::string text;
    for (const TokenId t : plan.sequences.at(0).tokens) text += static_cast<char>(t);
    worker_.answer(compute_texts(plan));
    finish(*exchange);
    return text;
  }

 private:
  int prompts_ = 0;
};

TEST_F(ChatFieldsTest, ReasoningIsApartFromTheAnswer) {
  says_ = {"<think>\nLet me see.\n</think>\n\nYes."};
  EXPECT_EQ(choice(json::object())["message"],
            (json{{"role", "assistant"}, {"content", "Yes."}, {"reasoning_content", "Let me see."}}));
  EXPECT_EQ(choice({{"include_reasoning", false}})["message"], (json{{"role", "assistant"}, {"content", "Yes."}}));
  says_ = {"Just so."};
  EXPECT_EQ(choice(json::object())["message"],
            (json{{"role", "assistant"}, {"content", "Just so."}, {"reasoning_content", nullptr}}));
}

TEST_F(ChatFieldsTest, ThePromptMayOpenIt) {
  says_ = {"Hm.\n</think>\nYes."};
  const json open{{"chat_template_kwargs", {{"open", true}}}};
  EXPECT_EQ(choice(open)["message"],
            (json{{"role", "assistant"}, {"content", "Yes."}, {"reasoning_content", "Hm."}}));
  says_ = {"It goes on"};
  EXPECT_EQ(choice(open)["message"]["reasoning_content"], "It goes on");
}

TEST_F(ChatFieldsTest, ReasoningIsStreamed) {
  says_ = {"<think>One two.</think>Yes <b>."};
  for (const bool include : {true, false}) {
    const auto exchange = chat({{"stream", true}, {"include_reasoning", include}});
    std::string reasoning, content;
    size_t pieces = 0;
    for (const json& e : exchange->events()) {
      if (!e.is_object()) continue;
      const json& delta = e["choices"][0]["delta"];
      EXPECT_FALSE(delta.contains("reasoning_content") && !content.empty()) << "it comes first";
      reasoning += delta.value("reasoning_content", "");
      content += delta.value("content", "");
      pieces += delta.contains("reasoning_content");
    }
    EXPECT_EQ(content, "Yes <b>.");
    EXPECT_EQ(reasoning, include ? "One two." : "");
    EXPECT_EQ(pieces > 3, include) << "as it is said";
  }
}

TEST_F(ChatFieldsTest, ToolsAreCalledBehindIt) {
  const json tools = {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", {{"type", "object"}}}}}}};
  says_ = {"<think>Which?</think>\nSo: <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"};
  const json c = choice({{"tools", tools}});
  EXPECT_EQ(c["message"]["reasoning_content"], "Which?");
  EXPECT_EQ(c["message"]["content"], "So:");
  EXPECT_EQ(c["message"]["tool_calls"].at(0)["function"]["name"], "f");
  EXPECT_EQ(c["finish_reason"], "tool_calls");
  says_ = {"Which?</think>\nNone."};
  const json must = choice({{"tools", tools}, {"tool_choice", "required"}, {"chat_template_kwargs", {{"open", true}}}});
  EXPECT_EQ(must["message"]["reasoning_content"], "Which?") << "a call that must be comes behind it too";
  EXPECT_EQ(must["message"]["tool_calls"].at(0)["function"]["name"], "f");
}

TEST_F(ChatFieldsTest, AFormLeavesNoRoomForReasoning) {
  says_ = {"?"};
  const json c = choice(
      {{"chat_template_kwargs", {{"open", true}}},
       {"response_format",
        {{"type", "json_schema"},
         {"json_schema", {{"name", "x"}, {"schema", {{"enum", json::array({"<think>"})}}}}}}}});
  EXPECT_EQ(c["message"], (json{{"role", "assistant"}, {"content", "\"<think>\""}}));
}

TEST_F(ChatFieldsTest, TemplatesSeeReasoningOfBefore) {
  json before = assistant("Yes.");
  before["reasoning_content"] = "Hm.";
  EXPECT_EQ(prompt_of({{"messages", {user("x"), before, user("y")}}}), "u:x;a:<think>Hm.</think>Yes.;u:y;a:");
}

TEST_F(ChatFieldsTest, TheGenerationPromptCanBeLeftOut) {
  EXPECT_EQ(prompt_of(json::object()), "u:x;a:");
  EXPECT_EQ(prompt_of({{"add_generation_prompt", false}}), "u:x;");
}

TEST_F(ChatFieldsTest, TheLastMessageGoesOn) {
  const auto on = [&](const std::string& text) {
    return prompt_of({{"messages", {user("x"), assistant(text)}}, {"continue_final_message", true}});
  };
  EXPECT_EQ(on("x is"), "u:x;a:x is") << "the last of two that are alike";
  EXPECT_EQ(on(""), "u:x;a:");
  EXPECT_EQ(on("x is "), "u:x;a:x is") << "the template trims";
  says_ = {" so</think>Yes"};
  const json c = choice({{"messages", {user("x"), assistant("<think>It is")}}, {"continue_final_message", true}});
  EXPECT_EQ(c["message"],
            (json{{"role", "assistant"}, {"content", "Yes"}, {"reasoning_content", "so"}}));
}

TEST_F(ChatFieldsTest, AnEffortThatChangesNothingIsNamed) {
  EXPECT_EQ(chat({{"reasoning_effort", "low"}})->header("X-Moestro-Ignored"), "reasoning_effort");
  EXPECT_EQ(chat(json::object())->header("X-Moestro-Ignored"), "");
}

class EffortTest : public ChatFieldsTest {
 protected:
  EffortTest() : ChatFieldsTest(thinking_model("{{ reasoning_effort }}|")) {}
};

TEST_F(EffortTest, TheTemplateSeesIt) {
  EXPECT_EQ(prompt_of({{"reasoning_effort", "low"}}), "u:x;low|a:");
  EXPECT_EQ(prompt_of(json::object()), "u:x;|a:");
  EXPECT_EQ(chat({{"reasoning_effort", "none"}})->header("X-Moestro-Ignored"), "");
}

class ThinkingSwitchTest : public ChatFieldsTest {
 protected:
  ThinkingSwitchTest() : ChatFieldsTest(thinking_model("{{ enable_thinking }}|")) {}
};

TEST_F(ThinkingSwitchTest, NoEffortTurnsThinkingOff) {
  EXPECT_EQ(prompt_of({{"reasoning_effort", "none"}}), "u:x;False|a:");
  EXPECT_EQ(prompt_of({{"reasoning_effort", "none"}, {"chat_template_kwargs", {{"enable_thinking", true}}}}),
            "u:x;True|a:");
  EXPECT_EQ(chat({{"reasoning_effort", "none"}})->header("X-Moestro-Ignored"), "");
  EXPECT_EQ(chat({{"reasoning_effort", "high"}})->header("X-Moestro-Ignored"), "reasoning_effort");
}

class HiddenEndTest : public ChatFieldsTest {
 protected:
  static ServedModel model() {
    ServedModel m = thinking_model();
    m.chat_template = std::move(*ChatTemplate::parse("{{ messages[0].role }}"));
    return m;
  }
  HiddenEndTest() : ChatFieldsTest(model()) {}
};

TEST_F(HiddenEndTest, ATemplateThatDoesNotShowTheMessageCannotLeaveItOpen) {
  const auto exchange = chat({{"messages", {user("x"), assistant("y")}}, {"continue_final_message", true}});
  EXPECT_EQ(exchange->status, 400);
  EXPECT_EQ(exchange->json()["error"]["param"], "continue_final_message");
}

}  // namespace
}  // namespace moestro::orchestrator
