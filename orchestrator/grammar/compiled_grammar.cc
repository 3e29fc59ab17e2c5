#include "orchestrator/grammar/compiled_grammar.h"

#include <algorithm>

namespace moestro::grammar {

using orchestrator::TokenMask;

CompiledGrammar::CompiledGrammar(ByteGrammar grammar, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), states_(grammar_), path_(vocabulary_->tokens.depth_max() + 1) {}

Result<std::shared_ptr<const TokenMask>> CompiledGrammar::allowed(StateId state) {
  const std::lock_guard lock(mutex_);
  if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
  auto mask = make_mask(state);
  if (states_.failed()) return exhausted(kTooLarge);
  if (std::all_of(mask->begin(), mask->end(), [](uint32_t word) { return word == 0; }))
    return internal_error("no token of this model goes on with what response_format or a tool wants");
  if ((masks_.size() + 1) * mask->size() * sizeof(uint32_t) > kMaskBytesMax) masks_.clear();
  masks_.emplace(state, mask);
  return mask;
}

/// Walks the tokens' trie and the automaton together; what is dead is skipped with all that begins so.
std::shared_ptr<const TokenMask> CompiledGrammar::make_mask(StateId state) {
  const TokenTrie& trie = vocabulary_->tokens;
  auto mask = std::make_shared<TokenMask>((trie.vocab() + 31) / 32, 0);
  const auto set = [&](TokenId id) { (*mask)[static_cast<size_t>(id) / 32] |= 1u << (id % 32); };
  path_[0] = state;
  const auto& entries = trie.entries();
  for (size_t i = 0; i < entries.size() && !states_.failed();) {
    const TokenTrie::Entry& e = entries[i];
    const StateId next = states_.next(path_[e.depth], e.byte);
    if (next == kDeadState) {
      i = e.skip;
      continue;
    }
    path_[size_t{e.depth} + 1] = next;
    for (uint32_t t = e.tokens_begin; t < e.tokens_end; ++t) set(trie.tokens()[t]);
    ++i;
  }
  if (states_.accepting(state))
    for (const TokenId id : vocabulary_->eos_ids) set(id);
  return mask;
}

StateId CompiledGrammar::advance(StateId state, TokenId token) {
  const std::lock_guard lock(mutex_);
  if (token < 0 || static_cast<size_t>(token) >= vocabulary_->tokens.vocab() || vocabulary_->tokens.bytes(token).empty()) return kDeadState;
  for (const char c : vocabulary_->tokens.bytes(token)) state = states_.next(state, static_cast<uint8_t>(c));
  return state;
}

StateId CompiledGrammar::advance_byte(StateId state, uint8_t byte) {
  const std::lock_guard lock(mutex_);
  return states_.next(state, byte);
}

bool CompiledGrammar::complete(StateId state) {
  const std::lock_guard lock(mutex_);
  return states_.ends(state);
}

bool CompiledGrammar::failed() {
  const std::lock_guard lock(mutex_);
  return states_.failed();
}

size_t CompiledGrammar::states() {
  const std::lock_guard lock(mutex_);
  return states_.size();
}

}  // namespace moestro::grammar
