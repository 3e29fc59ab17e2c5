#include "orchestrator/api/answer.h"

#include <algorithm>

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

/// JSON has no infinity; a token that cannot occur gets what OpenAI's servers use.
double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

json bytes_of(const std::string& text) {
  json bytes = json::array();
  for (unsigned char c : text) bytes.push_back(c);
  return bytes;
}

json legacy_logprobs(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, int top) {
  json result{{"tokens", json::array()},
              {"token_logprobs", json::array()},
              {"top_logprobs", json::array()},
              {"text_offset", json::array()}};
  for (const ScoredToken& t : tokens) {
    result["tokens"].push_back(t.text);
    result["text_offset"].push_back(t.text_offset);
    if (!t.has_score) {
      result["token_logprobs"].push_back(nullptr);
      result["top_logprobs"].push_back(nullptr);
      continue;
    }
    result["token_logprobs"].push_back(finite(t.score.logprob));
    json best = json::object();
    for (const TopLogprob& b : t.score.best) {
      const std::string text = b.id == t.id ? t.text : tokenizer.token_text(b.id);
      if (!best.contains(text)) best[text] = finite(b.logprob);  // two ids of one text: the likelier stands
    }
    if (top > 0) best.emplace(t.text, finite(t.score.logprob));
    result["top_logprobs"].push_back(std::move(best));
  }
  return result;
}

json chat_entry(const Tokenizer& tokenizer, TokenId id, float logprob) {
  return {{"token", tokenizer.token_text(id)},
          {"logprob", finite(logprob)},
          {"bytes", bytes_of(tokenizer.token_bytes(id))}};
}

json chat_logprobs(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens) {
  json content = json::array();
  for (const ScoredToken& t : tokens) {
    json entry = chat_entry(tokenizer, t.id, t.score.logprob);
    entry["top_logprobs"] = json::array();
    for (const TopLogprob& b : t.score.best) entry["top_logprobs"].push_back(chat_entry(tokenizer, b.id, b.logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

}  // namespace

json answer_frame(const AnswerFrame& frame, bool chunk) {
  const char* object = !frame.chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", frame.id},
          {"object", object},
          {"created", frame.created_unix_s},
          {"model", frame.model},
          {"choices", json::array()}};
}

json logprobs_json(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, bool chat, int top) {
  return chat ? chat_logprobs(tokenizer, tokens) : legacy_logprobs(tokenizer, tokens, top);
}

json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, int top) {
  json all = json::array();
  for (const ScoredToken& t : tokens) {
    all.push_back(nullptr);
    if (!t.has_score) continue;
    const auto add = [&](TokenId id, float logprob, json rank) {
      all.back()[std::to_string(id)] = {
          {"logprob", finite(logprob)}, {"rank", std::move(rank)}, {"decoded_token", tokenizer.token_text(id)}};
    };
    add(t.id, t.score.logprob, nullptr);
    for (size_t i = 0; i < std::min(t.score.best.size(), static_cast<size_t>(top)); ++i)
      add(t.score.best[i].id, t.score.best[i].logprob, i + 1);
  }
  return all;
}

json usage_json(int64_t prompt_tokens, int64_t cached_tokens, int64_t completion_tokens, const CopyCounts& copies) {
  json usage{{"prompt_tokens", prompt_tokens},
             {"completion_tokens", completion_tokens},
             {"total_tokens", prompt_tokens + completion_tokens},
             {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}}};
  const auto share = [&](uint64_t n) { return static_cast<double>(n) / static_cast<double>(copies.choices); };
  if (copies.choices > 0)
    usage["moestro"] = {{"low_share", share(copies.low)}, {"skipped_share", share(copies.skipped)}};
  return usage;
}

std::string server_sent_event(const json& value) { return "data: " + dump(value) + "\n\n"; }

}  // namespace moestro::orchestrator
