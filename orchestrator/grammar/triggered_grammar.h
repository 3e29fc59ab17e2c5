#pragma once
// Free text, but what follows a marker is what a grammar reads; then free text again.
//
// A token may end the marker and go on: then what it goes on with is read by the grammar, too, and a token that goes on
// with something else may not be said there. So free text has masks, but only where such a token is about to end the
// marker: nearly never.

#include <optional>
#include <string>
#include <string_view>

#include "orchestrator/grammar/compiled_grammar.h"

namespace moestro::grammar {

/// Shared by all sequences that use it; from any thread.
class TriggeredGrammar {
 public:
  /// In free text, behind so many bytes of the marker; or, not dead, where the grammar is.
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
  /// Where a token leads; nothing if it is not allowed. What is in no text leaves free text as it is.
  std::optional<Place> advance(const Place& from, TokenId token);

 private:
  size_t match(size_t matched, char byte) const;
  std::optional<Place> read(Place at, std::string_view bytes);
  void find_refused();

  const std::shared_ptr<CompiledGrammar> grammar_;
  const std::string marker_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::vector<size_t> shorter_;  ///< of so many bytes of the marker: how many at their end begin it, too
  std::vector<std::shared_ptr<const orchestrator::TokenMask>>
      masks_;  ///< by bytes of the marker that are said; null: any token
};

/// One sequence's way through it.
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
