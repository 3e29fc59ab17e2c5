#include "services/worker/service/worker_history.h"

#include "common/log.h"

namespace moestro::worker {
namespace {
constexpr std::chrono::milliseconds kHandedOut{1000};  ///< it is there already: nobody has to make it
}

WorkerHistory::WorkerHistory(const activation::EamcShape& shape, uint64_t pack_identity, const std::string& endpoint)
    : shape_(shape),
      pack_identity_(pack_identity),
      socket_(activation::history_socket(endpoint)),
      copy_(shape, 0),
      view_(copy_.view()) {}

Status WorkerHistory::map(uint64_t segment) {
  if (mapped_ && mapped_->segment() == segment) return Status::ok();
  if (!socket_) return unavailable("the orchestrator's address is not of this host");
  MOESTRO_ASSIGN_OR_RETURN(
      auto mapped, activation::HistoryMapping::receive(*socket_, {segment, pack_identity_, shape_}, kHandedOut));
  view_ = mapped.view();
  mapped_ = std::move(mapped);
  copy_ = activation::ActivationHistory(shape_, 0);
  log::info("history: that of the orchestrator is mapped, {} prompts and {} answers", view_.prompts.size(),
            view_.answers.size());
  return Status::ok();
}

std::optional<std::vector<std::byte>> WorkerHistory::take(const HistoryUpdate& update) {
  if (update.segment != 0) {
    const Status how = map(update.segment);
    if (!how.is_ok()) log::warn("history: this worker has a copy of its own: {}", how.message());
    return write_history_reader(update.segment, how);
  }
  // What predictors look at stands until all of its successor is there.
  activation::ActivationHistory fresh(shape_, 0);
  const Status applied = update.apply(update.reset ? fresh : copy_);
  if (!applied.is_ok()) log::warn("a change of the history is refused: {}", applied.message());
  if (update.reset && applied.is_ok()) {
    copy_ = std::move(fresh);
    view_ = copy_.view();
    mapped_.reset();
  }
  return std::nullopt;
}

}  // namespace moestro::worker
