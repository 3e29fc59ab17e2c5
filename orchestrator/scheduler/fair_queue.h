#pragma once
// Sequences of one class that wait for a worker, in a fair order between their senders.
//
// A flow is whose they are: an API key, or a batch. The flow that was served the fewest tokens is next; within a flow,
// the lowest priority, and of those who came first: no priority helps against another flow. A flow that comes back
// after it had nothing here begins where the least served of those that are here stands: what it did not use is no
// credit, what it used beyond others while they waited stays a debt. These are the virtual token counters of Sheng et
// al., "Fairness in Serving Large Language Models" (OSDI 2024): between flows that always have something waiting, the
// tokens served differ by no more than what one of them may have under way at once.

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "common/ids.h"

namespace moestro::orchestrator {

class FairQueue {
 public:
  struct Waiting {
    SequenceId id;
    int32_t priority = 0;
  };
  struct Flow {
    int64_t served = 0;   ///< tokens, raised when the flow returns
    int64_t pending = 0;  ///< tokens of admitted sequences that are still to be computed; updated by the admitting code
    size_t present = 0;   ///< sequences, waiting or not
    std::deque<Waiting> waiting;  ///< the lowest priority first
  };

  /// Adds a sequence of this flow. The reference stays valid until the flow's last sequence has left.
  Flow& enter(const std::string& name);
  void leave(Flow& flow);

  /// Behind those of its flow that have its priority, or before them.
  void push_back(Flow& flow, Waiting one);
  void push_front(Flow& flow, Waiting one);
  void erase(Flow& flow, SequenceId id);

  bool empty() const { return waiting_ == 0; }
  size_t size() const { return waiting_; }
  /// The first sequence of the flow with the fewest served and pending tokens together; of equals, the flow whose name
  /// comes first.
  std::optional<SequenceId> next() const;

  /// All waiting sequences, one flow after another.
  std::deque<SequenceId> waiting() const;
  void forget_pending();

 private:
  int64_t least_served() const;

  std::map<std::string, Flow> flows_;  ///< flows that are present, or were served more than the least served present
                                       ///< flow
  int64_t floor_ = 0;                  ///< where a flow starts if no other is present
  size_t present_ = 0, waiting_ = 0;
};

}  // namespace moestro::orchestrator
