#pragma once
// A worker as the control plane sees one: a socket that registers and answers plans as the test says. Belongs to one
// thread.

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/net/zmq_socket.h"
#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator::testing {

/// How long a test waits for what must come.
inline constexpr std::chrono::seconds kAnswerLimit{10};

/// A clock that tests move while the control thread reads it.
class TestClock final : public Clock {
 public:
  Nanos now() const override { return Nanos(now_.load()); }
  void advance(Nanos by) { now_.fetch_add(by.count()); }

 private:
  std::atomic<int64_t> now_{0};
};

class FakeWorker {
 public:
  struct Identity {
    std::string name = "w", model = "m";
    uint32_t protocol = kWorkerProtocol;
    uint64_t pack = 7, epoch = 1;
    uint32_t ranks = 1;
    WorkerLimits limits{
        .kv_blocks = 64, .kv_block_tokens = 4, .context_max = 64, .step_tokens_max = 64, .step_sequences_max = 16};
    activation::EamcShape experts{};
    bool wants_history = false;
    uint32_t device_slots = 0;
    uint64_t device_slot_bytes = 0;
    bool mixed = false;
    uint64_t tokenizer = 0;
  };
  struct Refused {
    Code code;
    std::string message;
  };

  explicit FakeWorker(const std::string& endpoint);

  void send_registration(const Identity& identity);
  void send_heartbeat(bool asks_to_leave = false);
  /// The last message. OK: it was asked to stop.
  void send_leaving(const Status& why = Status::ok());
  void send_bytes(const std::vector<std::byte>& bytes);
  /// `device_layers`: of a device, so many layers with 3 hits, 1 late and 1 other miss each, and a recent window of 8
  /// uses; -1: none.
  void answer(const PlanOutcome& outcome, int device_layers = -1);

  // What comes next; a failure of the test if it is something else, or if nothing comes.
  WorkerId hear_registered();
  Refused hear_refused();
  Plan hear_plan();
  /// Whether it is to attach anew.
  bool hear_drain();
  /// Whether it resets, and its entries.
  std::pair<bool, std::vector<HistoryEntry>> hear_history();
  /// The history's memory that it may map.
  uint64_t hear_history_segment();
  void answer_history_segment(uint64_t segment, bool mapped);
  /// The next plan, if one comes within `limit`.
  std::optional<Plan> try_plan(std::chrono::milliseconds limit);

  /// What it was told to forget between plans, as far as it has listened.
  const std::vector<ReleasedSequence>& released() const { return released_; }

  WorkerId join() { return join(Identity()); }
  WorkerId join(const Identity& identity) {
    send_registration(identity);
    return hear_registered();
  }

 private:
  std::optional<net::Bytes> next(std::chrono::milliseconds limit);
  net::DealerSocket socket_;
  std::vector<ReleasedSequence> released_;
};

inline constexpr size_t kHidden = 4;
/// The final hidden state of a token at a position.
std::array<double, kHidden> state(TokenId token, int64_t position);

/// The outcome of a plan: the token after position p of a sequence is next(sequence, p). Its log-probability is -0.25,
/// that of a scored prompt token -0.5; alternatives are the ids that follow, each 1 below the one before.
PlanOutcome compute(const Plan& plan, const std::function<TokenId(const PlannedSequence&, int64_t)>& next);

}  // namespace moestro::orchestrator::testing
