#pragma once
// Whose the sequences are that this worker holds, for its log. Engine thread.

#include <span>
#include <string>
#include <unordered_map>

#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {

class RequestNames {
 public:
  /// Before the plan is run: it lets some sequences go, and these names came with it.
  void learn(const engine::StepPlan& plan, const std::vector<RequestName>& names);
  void forget(std::span<const engine::ReleasedSequence> released);
  void forget_all() { names_.clear(); }
  /// "req-a,req-b,req-c and 4 more": the requests of the plan; or of those of its sequences alone that failed. Empty
  /// where none has a name.
  std::string of(const engine::StepPlan& plan) const;
  std::string of_failed(const engine::StepOutcome& outcome) const;

 private:
  std::unordered_map<SequenceId, std::string> names_;
};

}  // namespace moestro::worker
