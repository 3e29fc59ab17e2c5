#include "orchestrator/dialects/messages_answer.h"

#include "orchestrator/dialects/messages_request.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

const char* stop_reason_of(const ChoiceEnd& end) {
  if (end.stop_word) return "stop_sequence";
  if (end.reason == "length") return "max_tokens";
  return end.reason == "tool_calls" ? "tool_use" : "end_turn";
}

json stop_sequence_of(const ChoiceEnd& end) {
  return end.stop_word ? json(*end.stop_word) : json();
}

/// Anthropic counts tokens of the prompt that were found in the cache apart from the others.
json messages_usage(const Usage& usage) {
  json shown{{"input_tokens", usage.prompt - usage.cached},
             {"cache_creation_input_tokens", 0},
             {"cache_read_input_tokens", usage.cached},
             {"output_tokens", usage.completion}};
  add_own(usage, shown);
  return shown;
}

json message_frame(const json& answer) {
  return {{"id", id_from(answer, "msg_")}, {"type", "message"},
          {"role", "assistant"},           {"model", string_at(answer, "model")},
          {"content", json::array()},      {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

/// A call that was cut is no JSON: its input stays empty.
json input_of(const std::string& arguments) {
  json input = json::parse(arguments, nullptr, /*allow_exceptions=*/false);
  return input.is_object() ? input : json::object();
}

}  // namespace

/// A whole answer is what its stream would have made: the events are dropped, the blocks stay.
void MessagesAnswer::read_whole(const json& answer) {
  const json& choice = answer.at("choices").at(0);
  for (const json& delta : choice.at("message").at("deltas")) take_delta(delta);
  close();
  json message = message_frame(answer);
  message["content"] = std::move(content_);
  end_ = end_of(choice);
  message["stop_reason"] = stop_reason_of(end_);
  message["stop_sequence"] = stop_sequence_of(end_);
  read_usage(answer, usage_);
  message["usage"] = messages_usage(usage_);
  text_ = text_of(message);
}

/// How long the prompt is, is known with the last chunk: message_delta has the numbers.
std::string MessagesAnswer::begin(const json& chunk) {
  if (std::exchange(begun_, true)) return "";
  json message = message_frame(chunk);
  message["usage"] = messages_usage({});
  return event_text("message_start", {{"type", "message_start"}, {"message", std::move(message)}}) +
         event_text("ping", {{"type", "ping"}});
}

std::string MessagesAnswer::open(const std::string& kind, json block) {
  if (kind_ == kind) return "";
  std::string text = close();
  kind_ = kind;
  content_.push_back(block);
  return text + event_text("content_block_start", {{"type", "content_block_start"},
                                                   {"index", content_.size() - 1},
                                                   {"content_block", std::move(block)}});
}

std::string MessagesAnswer::close() {
  if (kind_.empty()) return "";
  json& block = content_.back();
  if (kind_ == "thinking" || kind_ == "text") block[kind_] = said_;
  else block["input"] = input_of(said_);
  kind_.clear();
  said_.clear();
  return event_text("content_block_stop", {{"type", "content_block_stop"}, {"index", content_.size() - 1}});
}

/// `member`: of a delta of `type`, which goes on with the open block.
std::string MessagesAnswer::say(const char* type, const char* member, const std::string& words) {
  said_ += words;
  return event_text("content_block_delta", {{"type", "content_block_delta"},
                                            {"index", content_.size() - 1},
                                            {"delta", {{"type", type}, {member, words}}}});
}

std::string MessagesAnswer::say_call(const json& call) {
  const json& function = call.at("function");
  std::string text = open("call " + text_of(call.at("index")), {{"type", "tool_use"},
                                                                {"id", string_at(call, "id")},
                                                                {"name", string_at(function, "name")},
                                                                {"input", json::object()}});
  const std::string arguments = string_at(function, "arguments");
  return arguments.empty() ? text : text + say("input_json_delta", "partial_json", arguments);
}

std::string MessagesAnswer::take_delta(const json& delta) {
  std::string text;
  if (const std::string thinking = string_at(delta, "reasoning_content"); !thinking.empty()) {
    text += open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    text += say("thinking_delta", "thinking", thinking);
  }
  if (const std::string words = string_at(delta, "content"); !words.empty()) {
    text += open("text", {{"type", "text"}, {"text", ""}});
    text += say("text_delta", "text", words);
  }
  for (const json& call : delta.value("tool_calls", json::array())) text += say_call(call);
  return text;
}

std::string MessagesAnswer::chunk(const json& chunk) {
  std::string text = begin(chunk);
  read_usage(chunk, usage_);
  const json choices = chunk.value("choices", json::array());
  if (choices.empty()) return text;
  const json& choice = choices[0];
  text += take_delta(choice.value("delta", json::object()));
  if (ChoiceEnd end = end_of(choice); !end.reason.empty()) end_ = std::move(end);
  return text;
}

std::string MessagesAnswer::end() {
  return close() +
         event_text("message_delta",
                    {{"type", "message_delta"},
                     {"delta", {{"stop_reason", stop_reason_of(end_)}, {"stop_sequence", stop_sequence_of(end_)}}},
                     {"usage", messages_usage(usage_)}}) +
         event_text("message_stop", {{"type", "message_stop"}});
}

std::string MessagesAnswer::failed(const ApiError& error) {
  return "event: error\ndata: " + messages_error_body(error, "") + "\n\n";
}

}  // namespace moestro::orchestrator
