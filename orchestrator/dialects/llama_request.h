#pragma once
// Requests of llama-server's POST /completion as completions.

#include <functional>
#include <string>
#include <vector>

#include "orchestrator/dialects/dialect.h"

namespace moestro::orchestrator {

/// What these requests want of the tokenizer.
struct LlamaTexts {
  std::function<std::variant<std::vector<TokenId>, ApiError>(const std::string& text, bool add_special_tokens,
                                                             const char* field)>
      encode;
  std::function<std::string(const std::vector<TokenId>&)> decode;
  bool of_sources = false;  ///< prompts are sources of an encoder-decoder model
};

std::variant<Translated, ApiError> read_llama_request(const RequestJson& body, bool lenient, const LlamaTexts& texts);
std::string llama_error_body(const ApiError& error, const std::string& request_id);

}  // namespace moestro::orchestrator
