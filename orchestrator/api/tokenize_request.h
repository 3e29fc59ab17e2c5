#pragma once
// The bodies of /tokenize and /detokenize.

#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "orchestrator/api/api_error.h"
#include "orchestrator/api/request_json.h"

namespace moestro::orchestrator {

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = false;
};

/// Two dialects: {"content", "add_special"}, as llama.cpp's server has it, adds no special tokens unless told to;
/// {"prompt", "add_special_tokens"}, as vLLM has it, adds them unless told not to. Either name of the switch goes with
/// either name of the text.
std::variant<TokenizeRequest, ApiError> read_tokenize(const RequestJson& body);

/// {"tokens": [ids below `vocab`]}.
std::variant<std::vector<TokenId>, ApiError> read_detokenize(const RequestJson& body, int64_t vocab);

}  // namespace moestro::orchestrator
