#include "orchestrator/grammar/triggered_grammar.h"

#include <algorithm>

namespace moestro::grammar {


TriggeredGrammar::TriggeredGrammar(std::shared_ptr<CompiledGrammar> grammar, std::string marker,
                                   std::shared_ptr<const GrammarVocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      marker_(std::move(marker)),
      vocabulary_(std::move(vocabulary)),
      shorter_(marker_.size() + 1, 0),
      masks_(marker_.size()) {
  for (size_t i = 1; i < marker_.size(); ++i)
    shorter_[i + 1] = match(shorter_[i], marker_[i]);  // Knuth, Morris and Pratt's
  find_refused();
}

/// How many bytes of the marker are said when `byte` comes behind `matched` of them.
size_t TriggeredGrammar::match(size_t matched, char byte) const {
  while (matched > 0 && marker_[matched] != byte) matched = shorter_[matched];
  return marker_[matched] == byte ? matched + 1 : 0;
}

std::optional<TriggeredGrammar::Place> TriggeredGrammar::read(Place at, std::string_view bytes) {
  for (const char c : bytes) {
    if (at.inside()) {
      at.state = grammar_->advance_byte(at.state, static_cast<uint8_t>(c));
      if (!at.inside()) return std::nullopt;
      if (grammar_->complete(at.state)) at = {};
    } else if (at.matched = match(at.matched, c); at.matched == marker_.size()) {
      at = {0, grammar_->start()};
    }
  }
  return at;
}

/// Only a token in which something follows the marker's last byte can be refused.
void TriggeredGrammar::find_refused() {
  const TokenTrie& tokens = vocabulary_->tokens;
  std::vector<std::shared_ptr<TokenMask>> masks(marker_.size());
  for (size_t id = 0; id < tokens.vocab(); ++id) {
    const std::string& bytes = tokens.bytes(static_cast<TokenId>(id));
    const size_t last = bytes.find(marker_.back());
    if (last == std::string::npos || last + 1 == bytes.size()) continue;
    for (size_t said = 0; said < marker_.size(); ++said) {
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
  return std::optional(masks_[at.matched]);
}

std::optional<TriggeredGrammar::Place> TriggeredGrammar::advance(const Place& from, TokenId token) {
  if (token < 0 || static_cast<size_t>(token) >= vocabulary_->tokens.vocab()) return std::nullopt;
  const std::string& bytes = vocabulary_->tokens.bytes(token);
  if (bytes.empty() && from.inside()) return std::nullopt;
  return read(from, bytes);
}

}  // namespace moestro::grammar
