#pragma once
// A ByteGrammar as a deterministic automaton, built as it is used. A state is a set of (node, stack of calls); stacks
// share their tails. Used by one thread at a time.

#include <array>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "orchestrator/grammar/byte_grammar.h"

namespace moestro::grammar {

using StateId = uint32_t;
inline constexpr StateId kDeadState = 0;

class GrammarStates {
 public:
  static constexpr uint8_t kDepthMax = 64;              ///< calls within calls; what needs more is not offered
  static constexpr size_t kItemsMax = 4096;             ///< ways in which one text can be read at once
  static constexpr size_t kBytesMax = size_t{64} << 20;

  /// `grammar` outlives it.
  explicit GrammarStates(const ByteGrammar& grammar);

  /// kDeadState: no text ends within kDepthMax.
  StateId start() const { return start_; }
  /// The start of a text whose first space is not shown: it may come first, and is none of the text.
  StateId start_unshown_space() const { return start_unshown_space_; }
  /// The state after `byte`; kDeadState: not allowed.
  StateId next(StateId state, uint8_t byte) {
    const StateId to = transitions_[size_t{state} * classes_ + class_of_[byte]];
    return to != kUnknown ? to : make_next(state, byte);
  }
  /// Whether the text may end here.
  bool accepting(StateId state) const { return states_[state].accepting; }
  /// Whether the text must end here.
  bool ends(StateId state) const { return states_[state].accepting && states_[state].items.empty(); }
  /// True if the grammar is too ambiguous or too large; later results are not reliable.
  bool failed() const { return failed_; }
  void give_up() { failed_ = true; }
  size_t size() const { return states_.size(); }
  /// The work of building states so far, in units of about 10 ns.
  int64_t work() const { return work_; }

 private:
  static constexpr StateId kUnknown = std::numeric_limits<StateId>::max();
  using StackId = uint32_t;  ///< 0: empty
  struct Item {
    NodeId node;
    StackId stack;
    bool operator==(const Item&) const = default;
    auto operator<=>(const Item&) const = default;
  };
  struct Stack {
    NodeId back;
    StackId below;
    uint32_t depth;
  };
  struct State {
    std::vector<Item> items;  ///< those that read a byte, sorted
    bool accepting = false;
  };

  StateId make_next(StateId state, uint8_t byte);
  StateId add_unshown_space();
  /// It can come to the end of the text within kDepthMax. Every item of a state can, so no state leads nowhere.
  bool ends_within_depth(NodeId node, StackId stack) const {
    return stacks_[stack].depth + frames_to_end_[node] <= kDepthMax;
  }
  StackId push(NodeId back, StackId below);
  StateId intern(std::vector<Item> reached);
  void find_classes();

  const ByteGrammar& grammar_;
  const std::vector<uint8_t> frames_to_end_;  ///< by node
  std::array<uint16_t, 256> class_of_{};
  size_t classes_ = 0;
  std::vector<Stack> stacks_{{0, 0, 0}};
  std::unordered_map<uint64_t, StackId> stack_ids_;
  std::vector<State> states_;
  std::vector<StateId> transitions_;  ///< [state][class]
  std::unordered_multimap<uint64_t, StateId> state_ids_;
  StateId start_ = kDeadState, start_unshown_space_ = kDeadState;
  size_t bytes_ = 0;
  int64_t work_ = 0;
  bool failed_ = false;
};

}  // namespace moestro::grammar
