#pragma once
// A request's own rules for which tokens may be sampled: allowed_token_ids, bad_words, min_tokens. They join what a
// grammar allows, if there is one.

#include <span>

#include "orchestrator/scheduler/token_constraint.h"

namespace moestro::orchestrator {

struct TokenRulesOptions {
  int64_t vocab = 0;
  std::vector<TokenId> allowed = {};  ///< empty: all
  std::vector<TokenId> ends = {};     ///< the tokens that end the answer; not sampled among its first `min_tokens`
  int64_t min_tokens = 0;
  std::vector<std::vector<TokenId>> bad_words = {};  ///< the last token of each does not follow the others

  /// Whether there is anything to keep to.
  bool any() const { return !allowed.empty() || min_tokens > 0 || !bad_words.empty(); }
};

bool allows_nothing(const TokenConstraint::Mask& mask);

/// The rules of one request, shared by its sequences. Immutable.
class TokenRules {
 public:
  using Mask = TokenConstraint::Mask;

  /// All ids are of the vocabulary, no bad word is empty. The masks may allow nothing.
  explicit TokenRules(const TokenRulesOptions& options);

  /// Of what does not hang on the text: for a token behind so many; null: any.
  const Mask& mask(int64_t sampled) const { return sampled < min_tokens_ ? early_ : allowed_; }
  /// The same once the answer may end.
  const Mask& mask_at_end() const { return allowed_; }
  /// Bad words of more than one token: they do hang on it.
  std::span<const std::vector<TokenId>> phrases() const { return phrases_; }
  size_t phrase_tokens_max() const { return phrase_tokens_max_; }
  int64_t vocab() const { return vocab_; }

 private:
  int64_t vocab_, min_tokens_;
  Mask allowed_, early_;
  std::vector<std::vector<TokenId>> phrases_;
  size_t phrase_tokens_max_ = 0;
};

/// One sequence under them.
class RuledConstraint final : public TokenConstraint {
 public:
  /// `text`: what else constrains it; may be null.
  RuledConstraint(std::shared_ptr<const TokenRules> rules, std::shared_ptr<TokenConstraint> text)
      : rules_(std::move(rules)), text_(std::move(text)) {}

  /// Where a grammar's text must end before `min_tokens`, it ends. kInvalidArgument where nothing is left to say.
  Result<std::optional<Mask>> allowed_within(int64_t& work) override;
  std::optional<Mask> allowed_ahead() const override;
  bool accept(TokenId token) override;
  bool complete() const override { return text_ && text_->complete(); }

 private:
  std::vector<TokenId> forbidden() const;
  Mask joined(const Mask& rule, const Mask& text, std::span<const TokenId> forbidden) const;

  const std::shared_ptr<const TokenRules> rules_;
  const std::shared_ptr<TokenConstraint> text_;
  int64_t sampled_ = 0;
  std::vector<TokenId> recent_;  ///< as many of the last tokens as a phrase may begin with
};

}  // namespace moestro::orchestrator
