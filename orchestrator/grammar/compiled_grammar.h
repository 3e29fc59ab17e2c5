#pragma once
// A grammar with a vocabulary: which tokens may come next, and which state they lead to. Shared by all sequences that
// use it; any thread.

#include <memory>
#include <mutex>
#include <unordered_map>

#include "orchestrator/grammar/grammar_states.h"
#include "orchestrator/grammar/token_trie.h"
#include "orchestrator/scheduler/token_constraint.h"

namespace moestro::grammar {

/// What constrained decoding needs to know of a model: the bytes of its tokens, and the tokens that end a text.
/// Immutable.
struct GrammarVocabulary {
  TokenTrie tokens;
  std::vector<TokenId> eos_ids;
};

inline constexpr const char* kTooLarge =
    "what the answer must be is too ambiguous or too large to be followed";

class CompiledGrammar {
 public:
  static constexpr size_t kMaskBytesMax = size_t{16} << 20;  ///< masks that are kept; further ones are computed again
  static constexpr size_t kUnfinishedMax = 16;               ///< masks that are being computed
  static constexpr int64_t kMaskWorkMax = 100'000'000;       ///< for one mask, about a second; more is an error
  using Mask = orchestrator::TokenConstraint::Mask;

  CompiledGrammar(ByteGrammar grammar, std::shared_ptr<const GrammarVocabulary> vocabulary);

  /// kDeadState: no text is in the language, as GrammarStates says.
  StateId start() const { return states_.start(); }
  StateId start_unshown_space() const { return states_.start_unshown_space(); }
  /// As TokenConstraint::allowed_within. kUnsupported if the grammar is too ambiguous or large, kInternal if no token
  /// is allowed.
  Result<std::optional<Mask>> allowed_within(StateId state, int64_t& work);
  /// The state after a token; kDeadState if the token is not allowed.
  StateId advance(StateId state, TokenId token);
  StateId advance_byte(StateId state, uint8_t byte);
  bool complete(StateId state);
  /// True if the grammar is too ambiguous or too large; later results are not reliable.
  bool failed();
  size_t states();

 private:
  /// The state of a joint walk over the tokens' trie and the automaton.
  struct Walk {
    std::shared_ptr<TokenMask> mask;
    std::vector<StateId> path;  ///< by bytes from the walk's state on
    size_t entry = 0;           ///< of the trie: the next
    int64_t work = 0;           ///< done so far
  };
  Walk& walk_from(StateId state);
  bool go_on(Walk& walk, int64_t& work);

  const ByteGrammar grammar_;
  const std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::mutex mutex_;
  GrammarStates states_;
  std::unordered_map<StateId, Mask> masks_;
  std::unordered_map<StateId, Walk> walks_;
};

/// One sequence's position in a grammar.
class GrammarConstraint final : public orchestrator::TokenConstraint {
 public:
  /// `unshown_space`: a space at the beginning is not shown, so the grammar does not count it.
  explicit GrammarConstraint(std::shared_ptr<CompiledGrammar> grammar, bool unshown_space = false)
      : grammar_(std::move(grammar)),
        state_(unshown_space ? grammar_->start_unshown_space() : grammar_->start()) {}
  Result<std::optional<Mask>> allowed_within(int64_t& work) override { return grammar_->allowed_within(state_, work); }
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
