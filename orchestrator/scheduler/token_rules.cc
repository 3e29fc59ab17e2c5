#include "orchestrator/scheduler/token_rules.h"

#include <algorithm>
#include <utility>

namespace moestro::orchestrator {

namespace {

TokenMask all_tokens(int64_t vocab) {
  TokenMask mask(static_cast<size_t>((vocab + 31) / 32), UINT32_MAX);
  if (vocab % 32 != 0) mask.back() = (1u << (vocab % 32)) - 1;
  return mask;
}

void forbid(TokenMask& mask, TokenId id) { mask[static_cast<size_t>(id) / 32] &= ~(1u << (id % 32)); }

}  // namespace

bool allows_nothing(const TokenConstraint::Mask& mask) {
  return mask && std::ranges::all_of(*mask, [](uint32_t word) { return word == 0; });
}

TokenRules::TokenRules(const TokenRulesOptions& o) : vocab_(o.vocab), min_tokens_(o.min_tokens) {
  TokenMask mask = all_tokens(o.vocab);
  if (!o.allowed.empty()) {
    std::ranges::fill(mask, 0);
    for (const TokenId id : o.allowed) mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  bool limited = !o.allowed.empty();
  for (const std::vector<TokenId>& word : o.bad_words) {
    if (word.size() == 1) {
      forbid(mask, word.front());
      limited = true;
    } else {
      phrases_.push_back(word);
      phrase_tokens_max_ = std::max(phrase_tokens_max_, word.size());
    }
  }
  if (limited) allowed_ = std::make_shared<const TokenMask>(mask);
  early_ = allowed_;
  if (o.min_tokens == 0 || o.ends.empty()) return;
  for (const TokenId id : o.ends) forbid(mask, id);
  early_ = std::make_shared<const TokenMask>(std::move(mask));
}

/// The last tokens of the phrases that have been said but for that one.
std::vector<TokenId> RuledConstraint::forbidden() const {
  std::vector<TokenId> ids;
  for (const std::vector<TokenId>& phrase : rules_->phrases()) {
    const std::span<const TokenId> begun = std::span(phrase).first(phrase.size() - 1);
    if (begun.size() <= recent_.size() && std::ranges::equal(begun, std::span(recent_).last(begun.size())))
      ids.push_back(phrase.back());
  }
  return ids;
}

TokenConstraint::Mask RuledConstraint::joined(const Mask& rule, const Mask& text,
                                              std::span<const TokenId> forbidden) const {
  if (forbidden.empty() && (!rule || !text)) return rule ? rule : text;
  auto mask = std::make_shared<TokenMask>(text ? *text : all_tokens(rules_->vocab()));
  for (size_t i = 0; rule && i < mask->size(); ++i) (*mask)[i] &= (*rule)[i];
  for (const TokenId id : forbidden) forbid(*mask, id);
  return mask;
}

Result<std::optional<TokenConstraint::Mask>> RuledConstraint::allowed_within(int64_t& work) {
  Mask text;
  if (text_) {
    auto said = text_->allowed_within(work);
    if (!said.is_ok() || !*said) return said;
    text = std::move(**said);
  }
  const std::vector<TokenId> without = forbidden();
  work -= rules_->vocab() / 32 + static_cast<int64_t>(rules_->phrases().size());
  for (const Mask& rule : {rules_->mask(sampled_), rules_->mask_at_end()}) {
    Mask mask = joined(rule, text, without);
    if (!allows_nothing(mask)) return std::optional(std::move(mask));
  }
  return invalid_argument(
      "no token is left: 'allowed_token_ids', 'bad_words' and the form of the answer exclude each other here");
}

std::optional<TokenConstraint::Mask> RuledConstraint::allowed_ahead() const {
  if (text_ || !rules_->phrases().empty()) return std::nullopt;
  return rules_->mask(sampled_ + 1);
}

bool RuledConstraint::accept(TokenId token) {
  ++sampled_;
  if (!rules_->phrases().empty()) {
    recent_.push_back(token);
    if (recent_.size() >= rules_->phrase_tokens_max()) recent_.erase(recent_.begin());
  }
  return !text_ || text_->accept(token);
}

}  // namespace moestro::orchestrator
