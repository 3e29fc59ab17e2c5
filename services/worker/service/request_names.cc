#include "services/worker/service/request_names.h"

#include <set>

namespace moestro::worker {
namespace {

constexpr size_t kNamed = 3;
/// A worker holds fewer sequences; what is beyond comes of an orchestrator that lets none go.
constexpr size_t kNamesMax = 65536;

std::string list(const std::set<std::string>& names) {
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown == kNamed) break;
    text += (shown++ == 0 ? "" : ",") + name;
  }
  return names.size() > kNamed ? text + " and " + std::to_string(names.size() - kNamed) + " more" : text;
}

}  // namespace

void RequestNames::learn(const engine::StepPlan& plan, const std::vector<RequestName>& names) {
  forget(plan.released);
  for (const auto& [sequence, request] : names)
    if (names_.size() < kNamesMax || names_.contains(sequence)) names_[sequence] = request;
}

void RequestNames::forget(std::span<const ReleasedSequence> released) {
  for (const ReleasedSequence& r : released) names_.erase(r.id);
}

std::string RequestNames::of(const engine::StepPlan& plan) const {
  std::set<std::string> names;  // a request may have several sequences
  for (const engine::PlanSequence& s : plan.sequences)
    if (const auto found = names_.find(s.id); found != names_.end()) names.insert(found->second);
  return list(names);
}

std::string RequestNames::of_failed(const engine::StepOutcome& outcome) const {
  std::set<std::string> names;
  for (const engine::SequenceOutcome& s : outcome.sequences)
    if (const auto found = names_.find(s.id); !s.status.is_ok() && found != names_.end()) names.insert(found->second);
  return list(names);
}

}  // namespace moestro::worker
