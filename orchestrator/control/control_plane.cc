#include "orchestrator/control/control_plane.h"

#include <sys/eventfd.h>

#include "orchestrator/control/control_loop.h"

namespace moestro::orchestrator {

Result<std::unique_ptr<ControlPlane>> ControlPlane::start(ControlOptions options) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::RouterSocket::bind(options.endpoint));
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return io_error("eventfd", errno);
  auto loop = std::make_unique<Loop>(std::move(options), std::move(socket), fd);
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::move(loop)));
}

ControlPlane::ControlPlane(std::unique_ptr<Loop> loop) : loop_(std::move(loop)), thread_([this] { loop_->run(); }) {}

ControlPlane::~ControlPlane() {
  loop_->stop();
  thread_.join();
}

Status ControlPlane::submit(SequenceRequest request, Sink sink) {
  return loop_->submit(std::move(request), std::move(sink));
}
void ControlPlane::cancel(SequenceId id, int64_t sampled) { loop_->cancel(id, sampled); }
std::chrono::seconds ControlPlane::retry_after() { return loop_->retry_after(); }
SequenceId ControlPlane::next_sequence_id() { return loop_->next_id(); }
ControlSnapshot ControlPlane::snapshot() const { return loop_->snapshot(); }
ExpertShares ControlPlane::expert_shares() const { return loop_->expert_shares(); }
int64_t ControlPlane::context_max() const { return loop_->context_max(); }
int64_t ControlPlane::source_max() const { return loop_->source_max(); }
KvRoom ControlPlane::kv_room() const { return loop_->kv_room(); }
bool ControlPlane::serves_mixed() const { return loop_->serves_mixed(); }
size_t ControlPlane::places() const { return loop_->places(); }
uint64_t ControlPlane::pack_version() const { return loop_->pack_version(); }
bool ControlPlane::has_worker() const { return loop_->has_worker(); }
bool ControlPlane::had_worker() const { return loop_->had_worker(); }
bool ControlPlane::draining() const { return loop_->draining(); }
size_t ControlPlane::queue_max() const { return loop_->queue_max(); }
size_t ControlPlane::sequences_max(const std::string& flow) const {
  return QueuePlaces::most_of(flow, loop_->queue_max());
}
void ControlPlane::history_kept(const Status& how) { loop_->history_kept(how); }
void ControlPlane::keep_history_now(std::chrono::milliseconds limit) { loop_->keep_history_now(limit); }
void ControlPlane::drain(std::chrono::milliseconds limit) { loop_->drain(limit); }

}  // namespace moestro::orchestrator
