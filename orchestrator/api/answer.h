#pragma once
// The JSON of answers: choices, log-probabilities, usage, chunks. Pure functions of what they are given.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/api/choice.h"
#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/json_text.h"

namespace moestro::orchestrator {

struct AnswerFrame {
  std::string id, model;
  int64_t created_unix_s = 0;
  bool chat = false;
};

/// {"id", "object", "created", "model", "choices": []} of a whole answer or of a chunk.
nlohmann::json answer_frame(const AnswerFrame& frame, bool chunk);
/// Log-probabilities in the shape of /v1/completions or of /v1/chat/completions.
nlohmann::json logprobs_json(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, bool chat, int top);
/// prompt_logprobs as vLLM has them: for each token null, or {id: {"logprob", "rank", "decoded_token"}} of the token
/// and of the `top` best. The rank is null where the token is none of those.
nlohmann::json prompt_logprobs_json(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, int top);
/// `copies`: shares of low copies and of what was left out are said if they were counted.
nlohmann::json usage_json(int64_t prompt_tokens, int64_t cached_tokens, int64_t completion_tokens,
                          const CopyCounts& copies = {});
std::string server_sent_event(const nlohmann::json& value);

}  // namespace moestro::orchestrator
