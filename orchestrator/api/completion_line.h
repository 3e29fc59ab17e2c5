#pragma once
// One choice of one prompt of a completion: what has been said of it, and what of that is in its answer.

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/api/chat_deltas.h"
#include "orchestrator/api/choice.h"
#include "orchestrator/api/completion_request.h"
#include "orchestrator/forms/reasoning.h"
#include "orchestrator/api/served_model.h"
#include "orchestrator/api/text_cursor.h"
#include "orchestrator/forms/tool_call_parser.h"

namespace moestro::orchestrator {

struct TokenizedPrompt {
  std::string text;
  std::vector<TokenId> ids;
  bool reasoning_open = false;  ///< it ends in reasoning: what follows goes on with it
  /// Of an encoder-decoder model the source; `ids` is then what the target begins with, of which the first `silent` are
  /// no part of its text, and `text` that of the others.
  std::shared_ptr<const std::vector<TokenId>> source = nullptr;
  size_t silent = 0;

  /// That the model reads.
  size_t tokens() const { return ids.size() + (source ? source->size() : 0); }
};

struct CompletionLine {
  /// All of them outlive it. `reasons`: reasoning is looked for, if the model marks it.
  CompletionLine(size_t index, const TokenizedPrompt& prompt, uint32_t choice_number, const ServedModel& model,
                 const CompletionRequest& request, bool reasons);

  void take_prompt_token(TokenScore score, bool has_score);
  /// The prompt's scored tokens for `logprobs` of an echo, with no more than `top` alternatives. Once.
  std::vector<ScoredToken> take_echoed(int top);
  void take_sampled(const SampledToken& token);
  /// Once there is no more text: sets reason and stop_reason. `stopped`: at a stop string or an end token.
  void end(bool stopped, const CompletionRequest& request, const ServedModel& model);
  bool ended() const { return !reason.empty(); }
  /// By which the best of several are found; 0 if nothing was sampled.
  double mean_logprob() const;

  /// Takes apart the text that has come since the last time, into deltas as a stream shows them. `answer_id` goes into
  /// the calls' ids.
  std::vector<nlohmann::json> take_apart(const std::string& text, const std::string& answer_id,
                                         bool include_reasoning);
  /// The message of a whole answer; see CompletionRequest::in_order.
  nlohmann::json message(const std::string& text, const std::string& answer_id, const CompletionRequest& request);

  const size_t index;  ///< among those of its request
  const TokenizedPrompt& prompt;
  int64_t cached_tokens = 0;  ///< of the prompt
  CopyCounts copies;          ///< that it was computed with
  const uint32_t choice_number;
  SequenceId id;
  TextCursor cursor;  ///< over the prompt's text
  std::optional<ReasoningParser> reasoning;
  std::unique_ptr<ToolCallParser> tools;  ///< where there are any
  Choice choice;
  int score_top = -1;  ///< >= 0: the prompt's tokens are scored, with so many alternatives
  std::vector<ScoredToken> prompt_tokens;
  bool echoed = false;
  std::string reason;             ///< finish_reason; "" until it has ended
  nlohmann::json stop_reason;     ///< the stop string or the id of the token that ended it; null: neither did
  bool unshown = false;           ///< has said more than its stream
  std::vector<TokenId> new_token_ids;  ///< sampled and not yet in an answer
  TokenId last_sampled = -1;
  double logprob_sum = 0;         ///< of what was sampled
  std::chrono::steady_clock::time_point last_token;

 private:
  void take_answer(const std::string& text, const std::string& answer_id, ChatDeltas& deltas);
  std::string call_id(const std::string& answer_id, size_t call) const;
};

}  // namespace moestro::orchestrator
