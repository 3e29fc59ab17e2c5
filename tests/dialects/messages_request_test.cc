#include "orchestrator/dialects/messages_request.h"

#include <gmock/gmock.h>

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
using json = RequestJson;

json parse(const char* text) {
  return json::parse(text);
}

json translated(const char* text, bool lenient = false) {
  auto read = read_messages_request(parse(text), lenient);
  const auto* error = std::get_if<ApiError>(&read);
  EXPECT_EQ(error, nullptr) << error->message;
  return error != nullptr ? json() : std::get<Translated>(read).request.body;
}

ApiError refused(const json& body) {
  const auto read = read_messages_request(body, false);
  const auto* error = std::get_if<ApiError>(&read);
  EXPECT_NE(error, nullptr) << body.dump();
  return error != nullptr ? *error : ApiError{};
}

json with(const char* field, json value) {
  json body = parse(R"({"max_tokens": 5, "messages": [{"role": "user", "content": "a"}]})");
  body[field] = std::move(value);
  return body;
}

TEST(MessagesRequest, APlainOneIsAChat) {
  EXPECT_EQ(translated(R"({"model": "m", "max_tokens": 5, "system": "be good", "temperature": 0.5, "top_p": 0.9,
                           "top_k": 3, "stop_sequences": ["x"], "metadata": {"user_id": "u"},
                           "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "hi"},
                           {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "go"}]})"),
            parse(R"({"model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop": ["x"],
                      "messages": [{"role": "system", "content": "be good"}, {"role": "user", "content": "hi"},
                      {"role": "assistant", "content": "yes?"}, {"role": "user", "content": "go"}]})"));
}

TEST(MessagesRequest, BlocksBecomePartsCallsAndToolMessages) {
  const json body = translated(R"({"max_tokens": 5, "stream": true,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "z"},
        {"type": "redacted_thinking", "data": "??"}, {"type": "text", "text": "I look"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"x": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "c2", "is_error": true, "content": [{"type": "text", "text": "t"}]},
        {"type": "tool_result", "tool_use_id": "c3"}, {"type": "text", "text": "and?"}]}]})");
  EXPECT_EQ(body["messages"], parse(R"([
    {"role": "system", "content": [{"type": "text", "text": "s"}]},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "I look"}], "reasoning_content": "hm",
     "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "t"}]},
    {"role": "tool", "tool_call_id": "c3", "content": ""},
    {"role": "user", "content": [{"type": "text", "text": "and?"}]}])"));
  EXPECT_EQ(body["stream"], true);
  EXPECT_EQ(body["stream_options"], parse(R"({"include_usage": true})"));
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(read_chat(body))) << "and the chat can be read";
}

TEST(MessagesRequest, Tools) {
  const char* const kTools = R"([{"name": "f", "description": "d", "input_schema": {"type": "object"}},
                                 {"type": "custom", "name": "g", "input_schema": {}, "strict": true}])";
  json body = with("tools", parse(kTools));
  const auto chat = [&](const char* choice) {
    body["tool_choice"] = parse(choice);
    return translated(body.dump().c_str());
  };
  EXPECT_EQ(chat(R"({"type": "auto"})")["tools"], parse(R"([
    {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": "g", "strict": true, "parameters": {}}}])"));
  EXPECT_EQ(chat(R"({"type": "auto"})")["tool_choice"], "auto");
  EXPECT_EQ(chat(R"({"type": "none"})")["tool_choice"], "none");
  EXPECT_EQ(chat(R"({"type": "any"})")["tool_choice"], "required");
  const json named = chat(R"({"type": "tool", "name": "g", "disable_parallel_tool_use": true})");
  EXPECT_EQ(named["tool_choice"], parse(R"({"type": "function", "function": {"name": "g"}})"));
  EXPECT_EQ(named["parallel_tool_calls"], false);
}

TEST(MessagesRequest, WhatIsNotSupportedIsRefusedByItsOwnName) {
  const auto content = [](const char* blocks) {
    return with("messages", json::array({{{"role", "user"}, {"content", parse(blocks)}}}));
  };
  EXPECT_EQ(refused(with("thinking", {{"type", "enabled"}, {"budget_tokens", 1024}})).param, "thinking");
  EXPECT_EQ(refused(with("no_such_field", 1)).param, "no_such_field");
  EXPECT_EQ(refused(with("stop", "x")).param, "stop") << "OpenAI's name is not known here";
  EXPECT_EQ(refused(with("max_tokens", nullptr)).param, "max_tokens");
  EXPECT_EQ(refused(with("max_tokens", 0)).param, "max_tokens");
  EXPECT_EQ(refused(with("stop_sequences", "x")).param, "stop_sequences");
  EXPECT_EQ(refused(with("messages", json::array())).param, "messages");
  EXPECT_EQ(refused(with("system", 5)).param, "system");
  EXPECT_EQ(refused(with("tool_choice", "any")).param, "tool_choice");
  EXPECT_EQ(refused(with("tools", parse(R"([{"type": "web_search_20250305", "name": "web_search"}])"))).param, "tools");
  EXPECT_THAT(refused(content(R"([{"type": "image", "source": {}}])")).message, HasSubstr("'image'"));
  EXPECT_THAT(refused(content(R"([{"type": "document", "source": {}}])")).message, HasSubstr("'document'"));
  EXPECT_THAT(
      refused(content(R"([{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image"}]}])")).message,
      HasSubstr("'image'"));
  EXPECT_THAT(refused(content(R"([{"type": "text", "text": "a", "colour": 1}])")).message, HasSubstr("'colour'"));
  EXPECT_THAT(refused(with("messages", parse(R"([{"role": "user", "content": "a"},
                                                 {"role": "assistant", "content": "so"}])")))
                  .message,
              HasSubstr("continue"));
  for (const char* odd : {R"([5])", R"([null])", R"([{"role": "user"}])", R"([{"role": "system", "content": "a"}])",
                          R"([{"role": "user", "content": 5}])", R"([{"role": "user", "content": [5]}])",
                          R"([{"role": "user", "content": []}])",
                          R"([{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}])"})
    EXPECT_EQ(refused(with("messages", parse(odd))).param, "messages") << odd;
}

TEST(MessagesRequest, LenientOnesNameWhatTheyIgnore) {
  const auto read =
      read_messages_request(parse(R"({"max_tokens": 5, "colour": 1, "messages": [{"role": "user", "content":
                [{"type": "text", "text": "a", "size": 2}]}]})"),
                            /*lenient=*/true);
  ASSERT_TRUE(std::holds_alternative<Translated>(read));
  EXPECT_THAT(std::get<Translated>(read).request.ignored, ::testing::ElementsAre("messages.size", "colour"));
}

TEST(MessagesRequest, CountingNeedsNoMaxTokens) {
  const json body = parse(R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_TRUE(std::holds_alternative<ApiError>(read_messages_request(body, false)));
  auto read = read_messages_request(body, false, /*counts=*/true);
  ASSERT_TRUE(std::holds_alternative<Translated>(read));
  AnswerTranslator& answer = *std::get<Translated>(read).answer;
  answer.read_whole({{"prompt_tokens", 7}});
  EXPECT_EQ(parse(answer.whole().c_str()), parse(R"({"input_tokens": 7})"));
}

TEST(MessagesRequest, ErrorsHaveAnthropicsShapeAndNames) {
  ApiError e = bad_request("'stop' has more than 64 strings; stop it", "stop");
  EXPECT_EQ(parse(messages_error_body(e, "req-1").c_str()),
            parse(R"({"type": "error", "error": {"type": "invalid_request_error",
                      "message": "'stop_sequences' has more than 64 strings; stop it"}, "request_id": "req-1"})"));
  const std::pair<int, const char*> kTypes[]{
      {401, "authentication_error"}, {404, "not_found_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},     {500, "api_error"},       {503, "overloaded_error"}};
  for (const auto& [status, type] : kTypes) {
    e.http_status = status;
    EXPECT_EQ(parse(messages_error_body(e, "").c_str())["error"]["type"], type);
  }
}

}  // namespace
}  // namespace moestro::orchestrator
