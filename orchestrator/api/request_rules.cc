#include "orchestrator/api/request_rules.h"

#include <algorithm>

#include "orchestrator/api/sampling_request.h"

namespace moestro::orchestrator {

std::optional<ApiError> check_ids(const std::vector<TokenId>& ids, int64_t vocab, const char* field) {
  const auto bad = std::ranges::find_if(ids, [vocab](TokenId id) { return id < 0 || id >= vocab; });
  if (bad == ids.end()) return std::nullopt;
  return bad_request("'" + std::string(field) + "' has the token id " + std::to_string(*bad) +
                         "; this model's are 0 to " + std::to_string(vocab - 1),
                     field);
}

namespace {

/// A word has one spelling in tokens where a text begins and another behind a space: both are bad.
Result<std::vector<std::vector<TokenId>>> spellings(const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  std::vector<std::vector<TokenId>> all;
  for (const std::string& word : words) {
    const std::string bare = word.substr(std::min(word.find_first_not_of(' '), word.size()));
    for (const std::string& text : {bare, " " + bare}) {
      MOESTRO_ASSIGN_OR_RETURN(auto ids, tokenizer.encode(text, /*add_special_tokens=*/false));
      if (!ids.empty() && (all.empty() || all.back() != ids)) all.push_back(std::move(ids));
    }
  }
  return all;
}

}  // namespace

std::optional<ApiError> check_token_ids(const CompletionRequest& request, int64_t vocab) {
  std::vector<TokenId> biased;
  if (request.logit_bias)
    for (const LogitBias& b : *request.logit_bias) biased.push_back(b.id);
  if (auto error = check_ids(biased, vocab, "logit_bias")) return error;
  if (auto error = check_ids(request.stop_token_ids, vocab, "stop_token_ids")) return error;
  return check_ids(request.allowed_token_ids, vocab, "allowed_token_ids");
}

std::variant<std::shared_ptr<const TokenRules>, ApiError> token_rules(const CompletionRequest& request,
                                                                      const ServedModel& model) {
  TokenRulesOptions options;
  options.vocab = model.vocab;
  options.allowed = request.allowed_token_ids;
  options.ends = end_tokens(request, model.eos_ids);
  options.min_tokens = request.min_tokens;
  auto words = spellings(request.bad_words, model.tokenizer);
  if (!words.is_ok()) return bad_request("'bad_words': " + words.status().message(), "bad_words");
  options.bad_words = std::move(*words);
  if (!options.any()) return std::shared_ptr<const TokenRules>();
  auto rules = std::make_shared<const TokenRules>(options);
  if (allows_nothing(rules->mask_at_end()))
    return bad_request("'bad_words' leaves no token that may be sampled", "bad_words");
  if (allows_nothing(rules->mask(0)))
    return bad_request("'min_tokens': all tokens that may be sampled end the answer", "min_tokens");
  return rules;
}

}  // namespace moestro::orchestrator
