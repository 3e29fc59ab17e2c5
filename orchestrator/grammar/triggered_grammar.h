#pragma once
// Free text in which the text after a marker must follow a grammar; then free text again.
//
// A token may contain the end of the marker and more text. The rest of it must then follow the grammar, and other such
// tokens are not allowed there. So free text has masks, but only where a token could end the marker in this way, which
// is very rare.

#include <optional>
#include <string>
#include <string_view>

#include "orchestrator/grammar/compiled_grammar.h"

namespace moestro::grammar {

/// Shared by all sequences that use it; from any thread.
class TriggeredGrammar {
 public:
  /// In free text: the number of bytes of the marker so far. Otherwise the state of the grammar, which is not dead.
  struct Place {
    size_t matched = 0;
    StateId state = kDeadState;
    bool inside() const { return state != kDeadState; }
  };

  /// `marker` is not empty.
  TriggeredGrammar(std::shared_ptr<CompiledGrammar> grammar, std::string marker,
                   std::shared_ptr<const GrammarVocabulary> vocabulary);

  /// As TokenConstraint::allowed_within.
  Result<std::optional<CompiledGrammar::Mask>> allowed_within(const Place& at, int64_t& work);
  /// The place after a token; nullopt if it is not allowed. A token that is not text does not change free text.
  std::optional<Place> advance(const Place& from, TokenId token);

 private:
  size_t match(size_t matched, char byte) const;
  std::optional<Place> read(Place at, std::string_view bytes);
  void find_refused();

  const std::shared_ptr<CompiledGrammar> grammar_;
  const std::string marker_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<size_t> shorter_;  ///< for each number of bytes of the marker: how many at their end begin it again
  std::vector<std::shared_ptr<const TokenMask>>
      masks_;  ///< by the bytes of the marker so far; null: any token
};

/// One sequence's position in it.
class TriggeredConstraint final : public orchestrator::TokenConstraint {
 public:
  explicit TriggeredConstraint(std::shared_ptr<TriggeredGrammar> grammar) : grammar_(std::move(grammar)) {}
  Result<std::optional<Mask>> allowed_within(int64_t& work) override { return grammar_->allowed_within(at_, work); }
  bool accept(TokenId token) override {
    const auto next = grammar_->advance(at_, token);
    if (next) at_ = *next;
    return next.has_value();
  }
  bool complete() const override { return false; }

 private:
  std::shared_ptr<TriggeredGrammar> grammar_;
  TriggeredGrammar::Place at_;
};

}  // namespace moestro::grammar
