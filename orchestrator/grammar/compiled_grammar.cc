#include "orchestrator/grammar/compiled_grammar.h"

#include <algorithm>

namespace moestro::grammar {


namespace {
void allow(TokenMask& mask, TokenId id) {
  mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}
}  // namespace

CompiledGrammar::CompiledGrammar(ByteGrammar grammar, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), states_(grammar_) {}

Result<std::optional<CompiledGrammar::Mask>> CompiledGrammar::allowed_within(StateId state, int64_t& work) {
  const std::lock_guard lock(mutex_);
  if (const auto known = masks_.find(state); known != masks_.end()) return std::optional(known->second);
  if (states_.failed()) return unsupported(kTooLarge);
  if (work <= 0 && !walks_.contains(state)) return std::optional<Mask>();  // nor does it take another's place
  Walk& walk = walk_from(state);
  const bool arrived = go_on(walk, work);
  if (walk.work > kMaskWorkMax) states_.give_up();
  if (states_.failed()) {
    walks_.clear();
    return unsupported(kTooLarge);
  }
  if (!arrived) return std::optional<Mask>();
  const std::shared_ptr<TokenMask> mask = std::move(walk.mask);
  walks_.erase(state);
  if (states_.accepting(state))
    for (const TokenId id : vocabulary_->eos_ids) allow(*mask, id);
  if (std::all_of(mask->begin(), mask->end(), [](uint32_t word) { return word == 0; }))
    return internal_error("no token of this model continues a text that must be of a certain form");
  if ((masks_.size() + 1) * mask->size() * sizeof(uint32_t) > kMaskBytesMax) masks_.clear();
  masks_.emplace(state, mask);
  return std::optional<Mask>(mask);
}

/// The walk that is under way from this state, or a new one.
CompiledGrammar::Walk& CompiledGrammar::walk_from(StateId state) {
  if (const auto known = walks_.find(state); known != walks_.end()) return known->second;
  if (walks_.size() >= kUnfinishedMax) walks_.erase(walks_.begin());  // whoever wanted it may be gone, or begins anew
  const TokenTrie& trie = vocabulary_->tokens;
  Walk& walk = walks_[state];
  walk.mask = std::make_shared<TokenMask>((trie.vocab() + 31) / 32, 0);
  walk.path.resize(trie.depth_max() + 1);
  walk.path[0] = state;
  return walk;
}

/// What is dead is skipped with all that begins so. False: `work` is spent.
bool CompiledGrammar::go_on(Walk& walk, int64_t& work) {
  const TokenTrie& trie = vocabulary_->tokens;
  const auto& entries = trie.entries();
  while (walk.entry < entries.size() && !states_.failed()) {
    if (work <= 0 || walk.work > kMaskWorkMax) return false;
    const TokenTrie::Entry& e = entries[walk.entry];
    const int64_t before = states_.work();
    const StateId next = states_.next(walk.path[e.depth], e.byte);
    const int64_t cost = 1 + states_.work() - before;
    walk.work += cost;
    work -= cost;
    if (next == kDeadState) {
      walk.entry = e.skip;
      continue;
    }
    walk.path[size_t{e.depth} + 1] = next;
    for (uint32_t t = e.tokens_begin; t < e.tokens_end; ++t) allow(*walk.mask, trie.tokens()[t]);
    ++walk.entry;
  }
  return true;
}

StateId CompiledGrammar::advance(StateId state, TokenId token) {
  const std::lock_guard lock(mutex_);
  if (token < 0 || static_cast<size_t>(token) >= vocabulary_->tokens.vocab() ||
      vocabulary_->tokens.bytes(token).empty())
    return kDeadState;
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
