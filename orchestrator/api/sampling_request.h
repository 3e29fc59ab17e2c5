#pragma once
// The fields of a request that say which tokens are drawn, and where the answer ends: stop, logit_bias, min_tokens and
// others.

#include <optional>
#include <vector>

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

void read_sampling(FieldReader& f, CompletionRequest& r);
/// The tokens that end an answer.
std::vector<TokenId> end_tokens(const CompletionRequest& r, const std::vector<TokenId>& eos_ids);
/// Ids that no vocabulary has stay out of range. Nothing if an entry is no integer.
std::optional<std::vector<TokenId>> token_ids(const RequestJson& list);

}  // namespace moestro::orchestrator
