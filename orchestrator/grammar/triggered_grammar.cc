#include "orchestrator/grammar/triggered_grammar.h"

#include <algorithm>

namespace moestro::grammar {

TriggeredGrammar::TriggeredGrammar(std::shared_ptr<CompiledGrammar> grammar, const std::vector<Marker>& markers,
                                   std::shared_ptr<const GrammarVocabulary> vocabulary, Then then)
    : grammar_(std::move(grammar)),
      markers_(markers),
      vocabulary_(std::move(vocabulary)),
      then_(then),
      masks_(markers_.states()) {
  find_refused();
}

std::optional<TriggeredGrammar::Place> TriggeredGrammar::read(Place at, std::string_view bytes) {
  for (const char c : bytes) {
    if (at.inside()) {
      at.state = grammar_->advance_byte(at.state, static_cast<uint8_t>(c));
      if (!at.inside()) return std::nullopt;
      if (then_ == Then::kFreeText && grammar_->complete(at.state)) at = {markers_.inside(), kDeadState};
    } else if (at.said = markers_.next(at.said, c); at.said == Markers::kFound) {
      at = {markers_.inside(), grammar_->start()};
    }
  }
  return at;
}

/// Only a token in which something follows a marker's last byte can be refused.
void TriggeredGrammar::find_refused() {
  const TokenTrie& tokens = vocabulary_->tokens;
  std::vector<std::shared_ptr<TokenMask>> masks(markers_.states());
  for (size_t id = 0; id < tokens.vocab(); ++id) {
    const std::string& bytes = tokens.bytes(static_cast<TokenId>(id));
    const auto ends = [&](char c) { return markers_.may_end(c); };
    if (bytes.empty() || std::find_if(bytes.begin(), bytes.end() - 1, ends) == bytes.end() - 1) continue;
    for (Markers::State said = 0; said < markers_.states(); ++said) {
      if (read({said, kDeadState}, bytes)) continue;
      if (!masks[said]) {
        masks[said] = std::make_shared<TokenMask>((tokens.vocab() + 31) / 32, 0);
        for (size_t other = 0; other < tokens.vocab(); ++other) (*masks[said])[other / 32] |= 1u << (other % 32);
      }
      (*masks[said])[id / 32] &= ~(1u << (id % 32));
    }
  }
  std::ranges::move(masks, masks_.begin());
}

Result<std::optional<CompiledGrammar::Mask>> TriggeredGrammar::allowed_within(const Place& at, int64_t& work) {
  if (at.inside()) return grammar_->allowed_within(at.state, work);
  return std::optional(masks_[at.said]);
}

std::optional<TriggeredGrammar::Place> TriggeredGrammar::advance(const Place& from, TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= vocabulary_->tokens.vocab()) return std::nullopt;
  const std::string& bytes = vocabulary_->tokens.bytes(token);
  if (bytes.empty() && from.inside()) return std::nullopt;
  return read(from, bytes);
}

}  // namespace moestro::grammar
