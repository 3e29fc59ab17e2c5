#pragma once
// The bodies of /tokenize and /detokenize, and the answer of the former.

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "orchestrator/api/api_error.h"
#include "orchestrator/api/request_json.h"
#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::orchestrator {

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = false;
  RequestJson chat = nullptr;  ///< not null: the body of a chat whose prompt is tokenized, instead of `text`
  bool with_pieces = false, return_token_strs = false;
  std::vector<std::string> ignored = {};  ///< fields that are not known here
};

/// Three dialects: {"content", "add_special"}, as llama.cpp's server has it, adds no special tokens unless told to;
/// {"prompt", "add_special_tokens"}, as vLLM has it, adds them unless told not to. Either name of the switch goes with
/// either name of the text. {"messages", ...}, as vLLM has it, has fields of chats, and the template adds its own.
/// `lenient`: fields that are not known are ignored instead of refused.
std::variant<TokenizeRequest, ApiError> read_tokenize(const RequestJson& body, bool lenient = false);

/// "tokens" and "count"; the tokens with their bytes (llama.cpp: with_pieces) or as the vocabulary spells them (vLLM:
/// return_token_strs) where that was asked for.
nlohmann::json tokenize_answer(const TokenizeRequest& request, const std::vector<TokenId>& ids,
                               const Tokenizer& tokenizer);

/// {"tokens": [ids below `vocab`]}. `ignored`: as FieldReader has it.
std::variant<std::vector<TokenId>, ApiError> read_detokenize(const RequestJson& body, int64_t vocab,
                                                             std::vector<std::string>* ignored = nullptr);

}  // namespace moestro::orchestrator
