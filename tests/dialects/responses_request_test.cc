#include "orchestrator/dialects/responses_request.h"

#include <gmock/gmock.h>

namespace moestro::orchestrator {
namespace {

using ::testing::HasSubstr;
using json = RequestJson;

ResponsesRequest read(const json& body) {
  auto made = read_responses_request(body, false);
  const auto* error = std::get_if<ApiError>(&made);
  EXPECT_EQ(error, nullptr) << error->message;
  return error != nullptr ? ResponsesRequest{} : std::move(std::get<ResponsesRequest>(made));
}

json messages(const char* input) {
  return responses_messages(read({{"input", json::parse(input)}}), json::array());
}

ApiError refused(const char* field, const json& value) {
  json body{{"input", "a"}};
  body[field] = value;
  const auto made = read_responses_request(body, false);
  const auto* error = std::get_if<ApiError>(&made);
  EXPECT_NE(error, nullptr) << field << " " << value;
  return error != nullptr ? *error : ApiError{};
}

TEST(ResponsesRequest, APlainOneIsAChat) {
  const ResponsesRequest r = read(json::parse(R"({"model": "m", "input": "hi", "instructions": "be good",
      "max_output_tokens": 5, "temperature": 0.5, "top_p": 0.9, "stream": true, "store": false,
      "metadata": {"a": "b"}, "truncation": "disabled", "background": false, "include": [],
      "text": {"format": {"type": "text"}}, "reasoning": {"effort": null}, "user": "u"})"));
  EXPECT_EQ(r.chat.body, json::parse(R"({"model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9,
      "stream": true, "stream_options": {"include_usage": true}})"));
  EXPECT_EQ(responses_messages(r, json::array()), json::parse(R"([{"role": "system", "content": "be good"},
                            {"role": "user", "content": [{"type": "text", "text": "hi"}]}])"));
  EXPECT_FALSE(r.store);
  EXPECT_EQ(r.shown["max_output_tokens"], 5);
  EXPECT_EQ(r.shown["metadata"], json::parse(R"({"a": "b"})"));
  EXPECT_EQ(r.shown["instructions"], "be good");
  EXPECT_TRUE(read({{"input", "a"}}).store);
}

TEST(ResponsesRequest, Items) {
  EXPECT_EQ(messages(R"([
      {"role": "developer", "content": "d"},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]},
      {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
      {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
       "content": [{"type": "output_text", "text": "I look", "annotations": [], "logprobs": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{\"x\":1}"},
      {"type": "function_call_output", "call_id": "c1", "output": "one"},
      {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]}])"),
            json::parse(R"([
      {"role": "system", "content": [{"type": "text", "text": "d"}]},
      {"role": "user", "content": [{"type": "text", "text": "a"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "I look"}], "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{\"x\":1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "one"},
      {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]}])"));
  for (const json& item : read({{"input", "a"}}).items)
    EXPECT_TRUE(item["id"].get<std::string>().starts_with("msg_") && item["type"] == "message") << item;
}

TEST(ResponsesRequest, GoesOnAfterAContextButNotWithItsInstructions) {
  ResponsesRequest before = read({{"input", "hi"}, {"instructions", "old"}});
  const json said = json::parse(R"({"type": "message", "role": "assistant", "id": "msg_2",
                                   "content": [{"type": "output_text", "text": "yes?"}]})");
  json context = before.items;
  context.push_back(said);
  const ResponsesRequest r = read({{"input", "go"}, {"instructions", "new"}, {"previous_response_id", "resp_1"}});
  EXPECT_EQ(r.previous, "resp_1");
  const json all = responses_messages(r, context);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0]["content"], "new");
  EXPECT_EQ(all[1]["content"][0]["text"], "hi");
  EXPECT_EQ(all[2]["content"][0]["text"], "yes?");
  EXPECT_EQ(all[3]["content"][0]["text"], "go");
}

TEST(ResponsesRequest, ToolsAndFormats) {
  const ResponsesRequest r = read(json::parse(R"({"input": "a", "parallel_tool_calls": false,
      "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
      "tool_choice": {"type": "function", "name": "f"}})"));
  EXPECT_EQ(r.chat.body, json::parse(R"({"parallel_tool_calls": false, "tools": [{"type": "function", "function":
      {"name": "f", "parameters": {"type": "object"}, "strict": true}}],
      "tool_choice": {"type": "function", "function": {"name": "f"}}})"));
  EXPECT_EQ(r.shown["tools"][0]["name"], "f");
  const ResponsesRequest formatted = read(json::parse(R"({"input": "a", "text": {"format": {"type": "json_schema",
      "name": "n", "schema": {"type": "string"}, "strict": true}}})"));
  EXPECT_EQ(formatted.chat.body["response_format"], json::parse(R"({"type": "json_schema", "json_schema":
      {"name": "n", "schema": {"type": "string"}, "strict": true}})"));
  json chat = formatted.chat.body;
  chat["messages"] = responses_messages(formatted, json::array());
  EXPECT_TRUE(std::holds_alternative<CompletionRequest>(read_chat(chat)));
}

TEST(ResponsesRequest, WhatIsNotSupportedIsRefusedByItsOwnName) {
  const std::pair<const char*, json> kOdd[]{{"no_such_field", 1},
                                            {"messages", json::array()},
                                            {"background", true},
                                            {"conversation", "conv_1"},
                                            {"include", {"file_search_call.results"}},
                                            {"truncation", "auto"},
                                            {"max_tokens", 5},
                                            {"prompt", json::object()},
                                            {"max_output_tokens", 0},
                                            {"tools", json::array({{{"type", "web_search"}}})},
                                            {"tools", 5},
                                            {"tool_choice", {{"type", "web_search"}}},
                                            {"top_logprobs", 2},
                                            {"metadata", 5},
                                            {"input", json::array()},
                                            {"input", 5},
                                            {"input", nullptr},
                                            {"instructions", 5},
                                            {"store", "yes"},
                                            {"temperature_", 1}};
  for (const auto& [field, value] : kOdd) EXPECT_EQ(refused(field, value).param, field) << value;
  EXPECT_EQ(refused("reasoning", {{"summary", "auto"}}).param, "reasoning.summary");
  EXPECT_EQ(refused("reasoning", {{"effort", "high"}}).param, "reasoning.effort");
  EXPECT_EQ(refused("text", {{"format", {{"type", "xml"}}}}).param, "text.format");
  const std::pair<const char*, const char*> kItems[]{
      {R"([5])", "object"},
      {R"([{"role": "user"}])", "content"},
      {R"([{"role": "robot", "content": "a"}])", "role"},
      {R"([{"type": "item_reference", "id": "x"}])", "'item_reference'"},
      {R"([{"role": "user", "content": [{"type": "input_image"}]}])", "'input_image'"},
      {R"([{"role": "user", "content": [{"type": "input_text"}]}])", "'text'"},
      {R"([{"role": "user", "content": "a", "colour": 1}])", "'colour'"},
      {R"([{"type": "function_call", "name": "f"}])", "'call_id'"},
      {R"([{"type": "function_call_output", "call_id": "c"}])", "'output'"}};
  for (const auto& [input, words] : kItems) {
    const ApiError e = refused("input", json::parse(input));
    EXPECT_EQ(e.param, "input") << input;
    EXPECT_THAT(e.message, HasSubstr(words)) << input;
  }
}

TEST(ResponsesRequest, ErrorsHaveItsNames) {
  const json body = json::parse(responses_error_body(bad_request("'messages' is odd", "messages"), "r"));
  EXPECT_EQ(body["error"]["param"], "input");
  EXPECT_EQ(body["error"]["message"], "'input' is odd");
}

}  // namespace
}  // namespace moestro::orchestrator
