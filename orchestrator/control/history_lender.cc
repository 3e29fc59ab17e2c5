#include "orchestrator/control/history_lender.h"

#include <chrono>

#include "common/activation/history_mapping.h"
#include "common/log.h"

namespace moestro::orchestrator {

using activation::ActivationHistory;

HistoryLender::HistoryLender(const std::string& endpoint, const shm::FileAccess& access, Send send)
    : endpoint_(endpoint), access_(access), send_(std::move(send)) {}

std::unique_ptr<ActivationHistory> HistoryLender::make(uint64_t pack_identity, const activation::EamcShape& shape,
                                                       int32_t capacity) {
  server_.reset();
  segment_ = bytes_ = 0;
  readers_.clear();  // they keep the one of before
  // Differs from those of every earlier start: nanoseconds of wall time.
  const auto segment = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  auto shared = ActivationHistory::shared(shape, capacity, pack_identity, segment);
  const Status lent = shared.is_ok() ? lend(*shared) : shared.status();
  if (!lent.is_ok()) {
    log::warn("history: workers cannot map it, each keeps a copy of its own: {}", lent.message());
    return std::make_unique<ActivationHistory>(shape, capacity);
  }
  segment_ = segment, bytes_ = shared->memory()->size();
  return std::make_unique<ActivationHistory>(std::move(*shared));
}

Status HistoryLender::lend(const ActivationHistory& history) {
  const auto socket = activation::history_socket(endpoint_);
  if (!socket) return unavailable("workers come to " + endpoint_ + ", which is not of this host alone");
  MOESTRO_ASSIGN_OR_RETURN(server_, shm::DescriptorServer::listen(*socket, history.memory()->fd(), access_));
  return Status::ok();
}

void HistoryLender::joined(WorkerId worker, const ActivationHistory& history) {
  if (segment_ == 0) return send_all(worker, history);
  readers_[worker] = Reads::kAsked;
  (void)send_(worker, write_history_segment(segment_))
      .is_ok();  // who cannot be reached at all is noticed by its silence
}

void HistoryLender::answered(WorkerId worker, const std::string& name, const HistoryReader& answer,
                             const ActivationHistory* history) {
  const auto reader = readers_.find(worker);
  if (reader == readers_.end() || history == nullptr || answer.segment != segment_) return;
  if (answer.mapped) {
    reader->second = Reads::kMemory;
    return;
  }
  log::warn("control: worker {} cannot map the history, it is sent to it: {}", name, answer.why_not);
  send_all(worker, *history);
}

void HistoryLender::send_all(WorkerId worker, const ActivationHistory& history) {
  readers_[worker] = Reads::kMessages;
  for (const auto& message : write_history(history))
    if (const Status sent = send_(worker, message); !sent.is_ok())
      return log::warn("control: worker {} has no history: {}", worker.value, sent.message());
}

void HistoryLender::changed(const ActivationHistory& history, std::span<const HistoryEntry> changes) {
  std::vector<std::byte> message;
  for (const auto& [worker, reads] : readers_) {
    if (reads != Reads::kMessages) continue;
    if (message.empty()) message = write_history(history, changes);
    (void)send_(worker, message).is_ok();  // who misses one predicts a little worse
  }
}

HistoryReaders HistoryLender::figures() const {
  HistoryReaders figures{.shared_bytes = bytes_};
  for (const auto& [worker, reads] : readers_) {
    if (reads == Reads::kMemory) ++figures.by_memory;
    if (reads == Reads::kMessages) ++figures.by_messages;
  }
  return figures;
}

}  // namespace moestro::orchestrator
