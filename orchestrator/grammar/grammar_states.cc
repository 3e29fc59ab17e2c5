#include "orchestrator/grammar/grammar_states.h"

#include <algorithm>
#include <bitset>
#include <set>

#include "orchestrator/grammar/call_frames.h"

namespace moestro::grammar {

namespace {
constexpr int64_t kItemWork = 20;  // it is looked for among those that were seen
}

GrammarStates::GrammarStates(const ByteGrammar& grammar)
    : grammar_(grammar), frames_to_end_(frames_to_end(grammar, kDepthMax, MayRead::kBytes)) {
  find_classes();
  states_.emplace_back();  // the dead one
  transitions_.assign(classes_, kDeadState);
  start_ = intern({{grammar.start(), 0}});
  if (start_ != kDeadState) start_unshown_space_ = add_unshown_space();
}

/// The start once more, but that a space leads back to it. No other text leads here.
StateId GrammarStates::add_unshown_space() {
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back(State(states_[start_]));
  transitions_.resize(transitions_.size() + classes_, kUnknown);
  transitions_[size_t{id} * classes_ + class_of_[' ']] = start_;
  return id;
}

/// Bytes that no edge tells apart share a column of the table; the space has one of its own.
void GrammarStates::find_classes() {
  std::bitset<257> begins;
  begins.set(' '), begins.set(' ' + 1);
  for (const Node& node : grammar_.nodes())
    for (const ByteEdge& e : node.bytes) begins.set(e.low), begins.set(size_t{e.high} + 1);
  size_t last = 0;
  for (size_t b = 0; b < 256; ++b) {
    last += b > 0 && begins[b];
    class_of_[b] = static_cast<uint16_t>(last);
  }
  classes_ = last + 1;
}

GrammarStates::StackId GrammarStates::push(NodeId back, StackId below) {
  const auto [at, fresh] = stack_ids_.emplace(uint64_t{back} << 32 | below, static_cast<StackId>(stacks_.size()));
  if (fresh) {
    stacks_.push_back({back, below, stacks_[below].depth + 1});
    bytes_ += sizeof(Stack) + 48;
  }
  return at->second;
}

/// The state of `reached` and all that can be reached from there without a byte.
StateId GrammarStates::intern(std::vector<Item> reached) {
  std::erase_if(reached, [&](const Item& item) { return !ends_within_depth(item.node, item.stack); });
  std::set<Item> seen(reached.begin(), reached.end());
  State state;
  const auto add = [&](Item item) {
    if (ends_within_depth(item.node, item.stack) && seen.insert(item).second) reached.push_back(item);
  };
  while (!reached.empty()) {
    if (seen.size() > kItemsMax) return failed_ = true, kDeadState;
    const Item item = reached.back();
    reached.pop_back();
    const Node& node = grammar_.nodes()[item.node];
    work_ += kItemWork * static_cast<int64_t>(1 + node.empty.size() + node.calls.size());
    if (!node.bytes.empty()) state.items.push_back(item);
    for (const NodeId to : node.empty) add({to, item.stack});
    for (const CallEdge& call : node.calls)
      if (stacks_[item.stack].depth < kDepthMax && ends_within_depth(call.back, item.stack))
        add({call.callee, push(call.back, item.stack)});
    if (!node.end) continue;
    if (item.stack == 0)
      state.accepting = true;
    else
      add({stacks_[item.stack].back, stacks_[item.stack].below});
  }
  if (state.items.empty() && !state.accepting) return kDeadState;
  std::sort(state.items.begin(), state.items.end());
  uint64_t hash = state.accepting;
  for (const Item& i : state.items)
    hash = (hash ^ (uint64_t{i.node} << 32 | i.stack)) * 0x9E3779B97F4A7C15u + (hash >> 29);
  for (auto [it, last] = state_ids_.equal_range(hash); it != last; ++it) {
    const State& known = states_[it->second];
    if (known.accepting == state.accepting && known.items == state.items) return it->second;
  }
  bytes_ += sizeof(State) + state.items.size() * sizeof(Item) + classes_ * sizeof(StateId) + 48;
  if (bytes_ > kBytesMax) return failed_ = true, kDeadState;
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back(std::move(state));
  transitions_.resize(transitions_.size() + classes_, kUnknown);
  state_ids_.emplace(hash, id);
  return id;
}

StateId GrammarStates::make_next(StateId state, uint8_t byte) {
  std::vector<Item> reached;
  for (const Item& item : states_[state].items) {
    const auto& edges = grammar_.nodes()[item.node].bytes;
    work_ += static_cast<int64_t>(1 + edges.size() / 8);
    for (const ByteEdge& e : edges)
      if (e.low <= byte && byte <= e.high) reached.push_back({e.to, item.stack});
  }
  std::sort(reached.begin(), reached.end());
  reached.erase(std::unique(reached.begin(), reached.end()), reached.end());
  const StateId to = reached.empty() ? kDeadState : intern(std::move(reached));
  transitions_[size_t{state} * classes_ + class_of_[byte]] = to;
  return to;
}

}  // namespace moestro::grammar
