#pragma once
// What a request says of tokens, against the model's vocabulary. From any thread.

#include <memory>
#include <optional>
#include <variant>

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/served_model.h"
#include "orchestrator/scheduler/token_rules.h"

namespace moestro::orchestrator {

/// Refuses `field` if one of its ids is no token of the model's.
std::optional<ApiError> check_ids(const std::vector<TokenId>& ids, int64_t vocab, const char* field);
/// Refuses ids of logit_bias, stop_token_ids and allowed_token_ids that the model has not.
std::optional<ApiError> check_token_ids(const CompletionRequest& request, int64_t vocab);
/// The rules of allowed_token_ids, bad_words and min_tokens; null if there are none. The ids have been checked.
std::variant<std::shared_ptr<const TokenRules>, ApiError> token_rules(const CompletionRequest& request,
                                                                      const ServedModel& model);

}  // namespace moestro::orchestrator
