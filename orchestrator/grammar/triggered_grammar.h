#pragma once
// Free text in which the text after a marker must follow a grammar; then free text again, or nothing more.
//
// A token may contain the end of the marker and more text. The rest of it must then follow the grammar, and other such
// tokens are not allowed there. So free text has masks, but only where a token could end the marker in this way, which
// is very rare.

#include <optional>
#include <string_view>
#include <vector>

#include "orchestrator/grammar/compiled_grammar.h"
#include "orchestrator/grammar/markers.h"

namespace moestro::grammar {

/// Shared by all sequences that use it; from any thread.
class TriggeredGrammar {
 public:
  /// In free text: how far markers have been said. Otherwise the state of the grammar, which is not dead.
  struct Place {
    Markers::State said = Markers::start();
    StateId state = kDeadState;
    bool inside() const { return state != kDeadState; }
  };

  enum class Then { kFreeText, kNothing };

  /// `markers`: at least one. `then`: what follows where the grammar has ended.
  TriggeredGrammar(std::shared_ptr<CompiledGrammar> grammar, const std::vector<Marker>& markers,
                   std::shared_ptr<const GrammarVocabulary> vocabulary, Then then = Then::kFreeText);

  /// As TokenConstraint::allowed_within.
  Result<std::optional<CompiledGrammar::Mask>> allowed_within(const Place& at, int64_t& work);
  /// The place after a token; nullopt if it is not allowed. A token that is not text does not change free text.
  std::optional<Place> advance(const Place& from, TokenId token);

 private:
  std::optional<Place> read(Place at, std::string_view bytes);
  void find_refused();

  const std::shared_ptr<CompiledGrammar> grammar_;
  const Markers markers_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  const Then then_;
  std::vector<std::shared_ptr<const TokenMask>> masks_;  ///< by the state of the markers; null: any token
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
