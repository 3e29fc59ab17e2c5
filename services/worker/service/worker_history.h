#pragma once
// What past requests have used, as a worker has it: the orchestrator's own memory, mapped for reading; where that
// cannot be had, a copy that its messages keep up to date. Predictors read view() and need not know which.

#include <filesystem>
#include <optional>
#include <string>

#include "common/activation/history.h"
#include "common/activation/history_mapping.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {

class WorkerHistory {
 public:
  /// Empty, until the orchestrator at `endpoint` has said something.
  WorkerHistory(const activation::EamcShape& shape, uint64_t pack_identity, const std::string& endpoint);
  WorkerHistory(const WorkerHistory&) = delete;
  WorkerHistory& operator=(const WorkerHistory&) = delete;

  /// Stays where it is; what it shows changes in take().
  const activation::HistoryView& view() const { return view_; }
  bool mapped() const { return mapped_.has_value(); }
  /// Takes in what the orchestrator says; between iterations only, on the predictors' thread. The answer, if it waits
  /// for one.
  std::optional<std::vector<std::byte>> take(const HistoryUpdate& update);

 private:
  Status map(uint64_t segment);

  const activation::EamcShape shape_;
  const uint64_t pack_identity_;
  const std::optional<std::filesystem::path> socket_;  ///< nothing: the orchestrator is on another host, or may be
  activation::ActivationHistory copy_;                 ///< of no entries while the orchestrator's is mapped
  std::optional<activation::HistoryMapping> mapped_;
  activation::HistoryView view_;
};

}  // namespace moestro::worker
