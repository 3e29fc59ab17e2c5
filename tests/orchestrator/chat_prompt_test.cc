// Prompts of templates of published models (tests/chat/models): where answers begin, and messages that go on.

#include "orchestrator/api/chat_prompt.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/places.h"

namespace moestro::orchestrator {
namespace {

std::filesystem::path models() { return test::source_dir() / "tests/chat/models"; }

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.is_open()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The prompt; the error's message if there is none.
std::string prompt_of(const std::string& source, const CompletionRequest& request) {
  const auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
  RequestJson arguments = request.template_arguments;
  arguments["add_generation_prompt"] = request.add_generation_prompt;
  arguments["bos_token"] = "<s>";
  arguments["eos_token"] = "</s>";
  auto text = render_chat(*parsed, request, arguments);
  if (const auto* error = std::get_if<ApiError>(&text)) return "error: " + error->message;
  return std::get<std::string>(text);
}

CompletionRequest asked(RequestJson messages) {
  CompletionRequest r;
  r.chat = true;
  r.template_arguments = RequestJson::object();
  r.messages = std::move(messages);
  return r;
}

const RequestJson kUser{{"role", "user"}, {"content", "How much is it?"}};

TEST(ChatPrompt, AnswersBeginInReasoningWhereTheTemplateOpensIt) {
  struct Model {
    const char* name;
    bool enable_thinking, opens;
  };
  for (const auto& [name, enable_thinking, opens] : {Model{"QwQ-32B", true, true},
                                                     {"QwQ-32B", false, false},
                                                     {"DeepSeek-R1-Distill-Qwen-32B", true, true},
                                                     {"DeepSeek-R1-Distill-Qwen-32B", false, false},
                                                     {"Qwen3-Next-Thinking", false, true},
                                                     {"Qwen3-0.6B", true, false},
                                                     {"DeepSeek-V3.1", true, true},
                                                     {"DeepSeek-V3.1", false, false}}) {
    const std::string source = read(models() / (std::string(name) + ".jinja"));
    const auto style = reasoning_style_of(source);
    ASSERT_TRUE(style) << name;
    CompletionRequest r = asked(RequestJson::array({kUser}));
    r.template_arguments["enable_thinking"] = enable_thinking;
    const std::string prompt = prompt_of(source, r);
    EXPECT_EQ(begins_in_reasoning(*style, r, prompt), opens) << name << ": " << prompt;
  }
  EXPECT_EQ(reasoning_style_of(read(models() / "Ministral-3-14B-Reasoning-2512.jinja"))->begin, "[THINK]");
  EXPECT_FALSE(reasoning_style_of(read(models() / "Qwen2.5-7B-Instruct.jinja")));
}

TEST(ChatPrompt, TheLastMessageGoesOnWithEveryTemplate) {
  CompletionRequest r = asked(RequestJson::array({kUser, {{"role", "assistant"}, {"content", "It is  exactly"}}}));
  r.continue_final_message = true;
  r.add_generation_prompt = false;
  size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models())) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string prompt = prompt_of(read(entry.path()), r);
    EXPECT_TRUE(prompt.ends_with("It is  exactly")) << entry.path().filename() << ": " << prompt;
    ++seen;
  }
  EXPECT_GE(seen, 20u);
}

}  // namespace
}  // namespace moestro::orchestrator
