#pragma once
// The requests of this worker's sequences, for its log. Engine's thread.

#include <span>
#include <string>
#include <unordered_map>

#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {

class RequestNames {
 public:
  /// Call it before the plan is run. The plan releases some sequences and brings these names.
  void learn(const engine::StepPlan& plan, const std::vector<RequestName>& names);
  void forget(std::span<const ReleasedSequence> released);
  void forget_all() { names_.clear(); }
  /// "req-a,req-b,req-c and 4 more": the requests of the plan, or only those of its failed sequences. Empty if none has
  /// a name.
  std::string of(const engine::StepPlan& plan) const;
  std::string of_failed(const engine::StepOutcome& outcome) const;

 private:
  std::unordered_map<SequenceId, std::string> names_;
};

}  // namespace moestro::worker
