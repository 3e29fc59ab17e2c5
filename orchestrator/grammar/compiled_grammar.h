#pragma once
// A grammar against a vocabulary: which tokens may come next, and what they lead to. Shared by all sequences that use it; from any thread.

#include <memory>
#include <mutex>
#include <unordered_map>

#include "orchestrator/grammar/grammar_states.h"
#include "orchestrator/grammar/token_trie.h"
#include "orchestrator/scheduler/token_constraint.h"

namespace moestro::grammar {

/// What constrained decoding knows of a model: its tokens' bytes and those that end a text. Immutable.
struct GrammarVocabulary {
  TokenTrie tokens;
  std::vector<TokenId> eos_ids;
};

inline constexpr const char* kTooLarge = "the schema of response_format or of a tool is too ambiguous or too large to be followed";

class CompiledGrammar {
 public:
  static constexpr size_t kMaskBytesMax = size_t{16} << 20;  ///< masks kept; more are made anew

  CompiledGrammar(ByteGrammar grammar, std::shared_ptr<const GrammarVocabulary> vocabulary);

  StateId start() const { return states_.start(); }
  /// kExhausted if the grammar is too ambiguous or large, kInternal if it leads nowhere.
  Result<std::shared_ptr<const orchestrator::TokenMask>> allowed(StateId state);
  /// Where a token leads; kDeadState if it is not allowed.
  StateId advance(StateId state, TokenId token);
  StateId advance_byte(StateId state, uint8_t byte);
  bool complete(StateId state);
  /// It has turned out to be too ambiguous or too large; what was said since is not reliable.
  bool failed();
  size_t states();

 private:
  std::shared_ptr<const orchestrator::TokenMask> make_mask(StateId state);

  const ByteGrammar grammar_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::mutex mutex_;
  GrammarStates states_;
  std::unordered_map<StateId, std::shared_ptr<const orchestrator::TokenMask>> masks_;
  std::vector<StateId> path_;
};

/// One sequence's way through a grammar.
class GrammarConstraint final : public orchestrator::TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<CompiledGrammar> grammar) : grammar_(std::move(grammar)), state_(grammar_->start()) {}
  Result<std::shared_ptr<const orchestrator::TokenMask>> allowed() override { return grammar_->allowed(state_); }
  bool accept(TokenId token) override {
    state_ = grammar_->advance(state_, token);
    return state_ != kDeadState;
  }
  bool complete() const override { return grammar_->complete(state_); }

 private:
  std::shared_ptr<CompiledGrammar> grammar_;
  StateId state_;
};

}  // namespace moestro::grammar
