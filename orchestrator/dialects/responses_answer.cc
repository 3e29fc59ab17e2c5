#include "orchestrator/dialects/responses_answer.h"

#include "orchestrator/dialects/responses_items.h"
#include "orchestrator/dialects/responses_request.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

json text_part(const char* type, const std::string& text) {
  json part{{"type", type}, {"text", text}};
  if (type == std::string_view("output_text")) part["annotations"] = part["logprobs"] = json::array();
  return part;
}

// Items as they begin.
constexpr const char* kBegun = "in_progress";

json message_item() {
  return {{"type", "message"},
          {"id", new_item_id("msg_")},
          {"status", kBegun},
          {"role", "assistant"},
          {"content", json::array()}};
}

json reasoning_item() {
  return {{"type", "reasoning"},
          {"id", new_item_id("rs_")},
          {"status", kBegun},
          {"summary", json::array()},
          {"content", json::array()}};
}

json call_item(const json& call) {
  return {{"type", "function_call"},
          {"id", new_item_id("fc_")},
          {"status", kBegun},
          {"call_id", string_at(call, "id")},
          {"name", string_at(call.at("function"), "name")},
          {"arguments", ""}};
}

}  // namespace

json ResponsesAnswer::usage() const {
  json shown{{"input_tokens", usage_.prompt},
             {"input_tokens_details", {{"cached_tokens", usage_.cached}}},
             {"output_tokens", usage_.completion},
             {"output_tokens_details", {{"reasoning_tokens", 0}}},
             {"total_tokens", usage_.prompt + usage_.completion}};
  add_own(usage_, shown);
  return shown;
}

json ResponsesAnswer::response(const char* status) const {
  const bool under_way = status == std::string_view("in_progress");
  json made{{"id", frame_.id},
            {"object", "response"},
            {"created_at", frame_.created_unix_s},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"model", model_},
            {"output", under_way ? json::array() : output_},
            {"store", stored_},
            {"background", false},
            {"truncation", "disabled"},
            {"usage", under_way ? json() : usage()}};
  made["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  if (status == std::string_view("incomplete")) made["incomplete_details"] = {{"reason", "max_output_tokens"}};
  made.update(frame_.shown);
  return made;
}

/// A whole answer is what its stream would have made: the events are dropped, the items stay.
void ResponsesAnswer::read_whole(const json& answer) {
  const json& choice = answer.at("choices").at(0);
  model_ = string_at(answer, "model");
  for (const json& delta : choice.at("message").at("deltas")) take_delta(delta);
  end_ = end_of(choice);
  close();
  read_usage(answer, usage_);
}

/// The status of what was said last: it was cut where the answer was, unless it is a whole call.
const char* ResponsesAnswer::last_status(const json& item) const {
  return is_whole_call(item) ? "completed" : final_status();
}

/// What is kept is what is answered, so it has to be whole before.
void ResponsesAnswer::settle(std::function<void()> then) {
  if (output_.empty()) last_events_ = open("message", message_item());
  last_events_ += close();
  if (!frame_.keep) return then();
  json record{{"response", response(final_status())}};
  record["input"] = std::move(frame_.input);
  frame_.keep(std::move(record), [this, then = std::move(then)](bool kept) {
    stored_ = kept;
    then();
  });
}

std::string ResponsesAnswer::event(const char* type, json members) {
  json data{{"type", type}, {"sequence_number", next_number_++}};
  data.update(members);
  return event_text(type, data);
}

std::string ResponsesAnswer::begin() {
  if (std::exchange(begun_, true)) return "";
  std::string text = event("response.created", {{"response", response("in_progress")}});
  return text + event("response.in_progress", {{"response", response("in_progress")}});
}

/// Where the open item, or its part, is.
json ResponsesAnswer::place() const {
  json at{{"item_id", output_.back().at("id")}, {"output_index", output_.size() - 1}};
  if (!kind_.starts_with("call")) at["content_index"] = 0;
  return at;
}

json ResponsesAnswer::part(const std::string& text) const {
  return text_part(kind_ == "message" ? "output_text" : "reasoning_text", text);
}

std::string ResponsesAnswer::open(const std::string& kind, json item) {
  std::string text = close();
  kind_ = kind;
  output_.push_back(std::move(item));
  text += event("response.output_item.added", {{"output_index", output_.size() - 1}, {"item", output_.back()}});
  if (kind_.starts_with("call")) return text;
  json at = place();
  at["part"] = part("");
  return text + event("response.content_part.added", std::move(at));
}

std::string ResponsesAnswer::say(const char* type, const std::string& delta) {
  said_ += delta;
  json at = place();
  at["delta"] = delta;
  if (kind_ == "message") at["logprobs"] = json::array();
  return event(type, std::move(at));
}

std::string ResponsesAnswer::say_call(const json& call) {
  const std::string kind = "call " + text_of(call.at("index"));
  std::string text = kind == kind_ ? "" : open(kind, call_item(call));
  const std::string arguments = string_at(call.at("function"), "arguments");
  return arguments.empty() ? text : text + say("response.function_call_arguments.delta", arguments);
}

/// Ends the text of the open item.
std::string ResponsesAnswer::close_part() {
  json& item = output_.back();
  json done = place(), part_done = place();
  if (kind_.starts_with("call")) {
    item["arguments"] = said_;
    done["name"] = item["name"];
    done["arguments"] = said_;
    return event("response.function_call_arguments.done", std::move(done));
  }
  item["content"].push_back(part(said_));
  done["text"] = said_;
  if (kind_ == "message") done["logprobs"] = json::array();
  part_done["part"] = item["content"].back();
  const char* type = kind_ == "message" ? "response.output_text.done" : "response.reasoning_text.done";
  std::string text = event(type, std::move(done));
  return text + event("response.content_part.done", std::move(part_done));
}

/// An item that another follows is complete.
std::string ResponsesAnswer::close() {
  if (kind_.empty()) return "";
  std::string text = close_part();
  json& item = output_.back();
  item["status"] = last_status(item);
  kind_.clear();
  said_.clear();
  return text + event("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
}

std::string ResponsesAnswer::take_delta(const json& delta) {
  std::string text;
  if (const std::string thinking = string_at(delta, "reasoning_content"); !thinking.empty()) {
    if (kind_ != "reasoning") text += open("reasoning", reasoning_item());
    text += say("response.reasoning_text.delta", thinking);
  }
  if (const std::string words = string_at(delta, "content"); !words.empty()) {
    if (kind_ != "message") text += open("message", message_item());
    text += say("response.output_text.delta", words);
  }
  for (const json& call : delta.value("tool_calls", json::array())) text += say_call(call);
  return text;
}

std::string ResponsesAnswer::chunk(const json& chunk) {
  model_ = string_at(chunk, "model");
  std::string text = begin();
  read_usage(chunk, usage_);
  const json choices = chunk.value("choices", json::array());
  if (choices.empty()) return text;
  const json& choice = choices[0];
  text += take_delta(choice.value("delta", json::object()));
  if (ChoiceEnd end = end_of(choice); !end.reason.empty()) end_ = std::move(end);
  return text;
}

std::string ResponsesAnswer::end() {
  const std::string type = std::string("response.") + final_status();
  return std::exchange(last_events_, "") + event(type.c_str(), {{"response", response(final_status())}});
}

std::string ResponsesAnswer::failed(const ApiError& error) {
  json made = response("failed");
  made["error"] = {{"code", error.code.empty() ? error.type : error.code}, {"message", error.message}};
  return event("response.failed", {{"response", std::move(made)}});
}

}  // namespace moestro::orchestrator
