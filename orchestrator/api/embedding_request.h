#pragma once
// The body of /v1/embeddings, read and checked. Text becomes tokens later (embedding_route.cc).

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "orchestrator/api/completion_request.h"
#include "orchestrator/scheduler/types.h"

namespace moestro::orchestrator {

struct EmbeddingRequest {
  std::optional<std::string> model;
  std::vector<PromptInput> inputs;  ///< none is empty
  bool base64 = false;              ///< else lists of numbers
  std::optional<int64_t> dimensions;
  /// Only the last token of a causal model has seen the whole text, and models that were trained to embed text pool it.
  Pooling pooling = Pooling::kLast;
  bool normalize = true;             ///< to length 1
  std::string cache_salt;            ///< requests of different salts share no KV blocks
  std::vector<std::string> ignored;  ///< fields that are not known here
  // Not of the body:
  std::string owner;          ///< HttpRequest::owner
  std::string prefix_domain;  ///< requests of different ones share no KV blocks
};

/// `lenient`: fields that are not known are ignored instead of refused.
std::variant<EmbeddingRequest, ApiError> read_embedding(const RequestJson& body, bool lenient = false);

/// "last" or "mean".
const char* pooling_name(Pooling pooling);

}  // namespace moestro::orchestrator
