#include "orchestrator/dialects/llama_answer.h"

#include <algorithm>

#include "orchestrator/dialects/llama_request.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

/// {"token": logprob} as a list, the likeliest first.
json top_list(const json& top) {
  std::vector<std::pair<double, std::string>> best;
  for (const auto& [token, logprob] : top.items())
    if (logprob.is_number()) best.emplace_back(-logprob.get<double>(), token);
  std::sort(best.begin(), best.end());
  json list = json::array();
  for (const auto& [negative, token] : best) list.push_back({{"token", token}, {"logprob", -negative}});
  return list;
}

/// OpenAI's log-probabilities, each list by tokens, as one object a token.
json completion_probabilities(const json& logprobs, const json& ids) {
  json list = json::array();
  if (!logprobs.is_object()) return list;
  const json& tokens = logprobs.at("tokens");
  for (size_t i = 0; i < tokens.size(); ++i) {
    json one = json::object();
    if (i < ids.size()) one["id"] = ids[i];
    one["token"] = tokens[i];
    one["logprob"] = logprobs.at("token_logprobs").at(i);
    one["top_logprobs"] = top_list(logprobs.at("top_logprobs").at(i));
    list.push_back(std::move(one));
  }
  return list;
}

/// llama-server's word for what ended the text; null where the answer does not say whether it was a stop string.
json stop_type_of(const ChoiceEnd& end, bool has_stops) {
  if (end.stop_word) return "word";
  if (end.reason == "length") return "limit";
  return has_stops && !end.says_why ? json() : json("eos");
}

double ms(LlamaAnswer::Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

/// What a choice adds to the text.
json LlamaAnswer::piece(const json& choice) {
  const json ids = choice.value("token_ids", json::array());
  json piece{{"index", 0},
             {"content", string_at(choice, "text")},
             {"tokens", settings_.return_tokens ? ids : json::array()},
             {"stop", false}};
  if (settings_.probabilities)
    piece["completion_probabilities"] = completion_probabilities(choice.value("logprobs", json()), ids);
  if (ChoiceEnd end = end_of(choice); !end.reason.empty()) end_ = std::move(end);
  return piece;
}

/// Times are known of streams: there every token is seen when it comes. prompt_ms is the time from the request to its
/// first token, its wait in the queue included; predicted_ms that from the first token to the last.
json LlamaAnswer::timings() const {
  const int64_t computed = usage_.prompt - usage_.cached, more = usage_.completion - 1;
  json t{{"cache_n", usage_.cached}, {"prompt_n", computed}, {"predicted_n", usage_.completion}};
  if (first_token_ == Clock::time_point{}) return t;
  const double prompt = ms(first_token_ - arrived_), predicted = ms(last_token_ - first_token_);
  t["prompt_ms"] = prompt;
  if (computed > 0 && prompt > 0)
    t["prompt_per_token_ms"] = prompt / static_cast<double>(computed),
    t["prompt_per_second"] = 1e3 * static_cast<double>(computed) / prompt;
  t["predicted_ms"] = predicted;
  if (more > 0 && predicted > 0)
    t["predicted_per_token_ms"] = predicted / static_cast<double>(more),
    t["predicted_per_second"] = 1e3 * static_cast<double>(more) / predicted;
  return t;
}

/// What the last object of an answer has beside the text.
void LlamaAnswer::finish(json& answer) const {
  answer["stop"] = true;
  answer["model"] = model_;
  answer["tokens_predicted"] = usage_.completion;
  answer["tokens_evaluated"] = usage_.prompt;
  answer["tokens_cached"] = usage_.cached;
  answer["generation_settings"] = settings_.shown;
  answer["prompt"] = settings_.prompt ? settings_.prompt() : "";
  answer["truncated"] = false;  // a prompt is taken whole or refused
  answer["stop_type"] = stop_type_of(end_, settings_.has_stops);
  answer["stopping_word"] = end_.stop_word.value_or("");
  answer["timings"] = timings();
  add_own(usage_, answer);
}

void LlamaAnswer::read_whole(const json& answer) {
  model_ = string_at(answer, "model");
  read_usage(answer, usage_);
  json whole = piece(answer.at("choices").at(0));
  finish(whole);
  text_ = text_of(whole);
}

std::string LlamaAnswer::chunk(const json& chunk) {
  model_ = string_at(chunk, "model");
  read_usage(chunk, usage_);
  const json choices = chunk.value("choices", json::array());
  if (choices.empty()) return "";
  const json made = piece(choices[0]);
  if (!made["tokens"].empty()) {
    last_token_ = now_();
    if (first_token_ == Clock::time_point{}) first_token_ = last_token_;
  }
  if (made["content"] == "" && made["tokens"].empty()) return "";
  return event_text("", made);
}

std::string LlamaAnswer::end() {
  json last{{"index", 0}, {"content", ""}, {"tokens", json::array()}};
  finish(last);
  return event_text("", last);
}

std::string LlamaAnswer::failed(const ApiError& error) {
  return "data: " + llama_error_body(error, "") + "\n\n";
}

}  // namespace moestro::orchestrator
