#pragma once
// The activation history in a worker: the orchestrator's memory, mapped read-only, or, if that is not possible, a copy
// that messages keep up to date. Predictors read view() in both cases.

#include <filesystem>
#include <optional>
#include <string>

#include "common/activation/history.h"
#include "common/activation/history_mapping.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {

class WorkerHistory {
 public:
  /// Empty until the orchestrator at `endpoint` has sent something.
  WorkerHistory(const activation::EamcShape& shape, uint64_t pack_identity, const std::string& endpoint);
  WorkerHistory(const WorkerHistory&) = delete;
  WorkerHistory& operator=(const WorkerHistory&) = delete;

  /// The reference stays valid; its contents change in take().
  const activation::HistoryView& view() const { return view_; }
  bool mapped() const { return mapped_.has_value(); }
  /// Applies an update from the orchestrator. Only between iterations, on the predictors' thread. Returns the answer,
  /// if it expects one.
  std::optional<std::vector<std::byte>> take(const HistoryUpdate& update);

 private:
  Status map(uint64_t segment);

  const activation::EamcShape shape_;
  const uint64_t pack_identity_;
  const std::optional<std::filesystem::path> socket_;  ///< nullopt: the orchestrator is, or may be, on another host
  activation::ActivationHistory copy_;                 ///< empty while the orchestrator's memory is mapped
  std::optional<activation::HistoryMapping> mapped_;
  activation::HistoryView view_;
};

}  // namespace moestro::worker
