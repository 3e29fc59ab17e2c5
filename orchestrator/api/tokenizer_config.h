#pragma once
// What tokenizer_config.json, special_tokens_map.json and the files of chat templates say, as transformers reads them.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/status.h"
#include "orchestrator/api/model_files.h"
#include "orchestrator/tokenizer/tokenizer.h"

namespace moestro::orchestrator {

inline constexpr char kTokenizerConfig[] = "tokenizer_config.json";

struct TokenizerConfig {
  std::string bos_token, eos_token, pad_token, unk_token;  ///< empty: none
  std::optional<std::string> chat_template;
  std::optional<std::string> tool_template;  ///< the one named "tool_use": of requests with tools
  std::vector<Tokenizer::Said> said;         ///< for the tokenizer

  static Result<TokenizerConfig> of_files(const ModelFiles& files);
  /// Refuses ids that are not tokenizer.json's: their tokens would be cut into pieces, silently.
  Status check(const Tokenizer& tokenizer) const;

 private:
  void read_special_tokens(const nlohmann::json& config);
  Status read_added_tokens(const nlohmann::json& config);
  void read_templates(const nlohmann::json& templates);

  std::vector<std::pair<TokenId, std::string>> ids_;  ///< of 'added_tokens_decoder'
};

}  // namespace moestro::orchestrator
