#pragma once
// A control plane of its own, what owners of sequences hear from it, and a clock that stands still.

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>

#include "orchestrator/control/control_plane.h"
#include "tests/cli/temp_dir.h"
#include "tests/orchestrator/fake_worker.h"

namespace moestro::orchestrator::testing {

/// What a sequence's owner hears, in order.
class Heard {
 public:
  /// May be called when this is gone: the control plane outlives what a test has on its stack.
  Sink sink() {
    return [s = state_](SequenceEvent event) {
      const std::lock_guard lock(s->mutex);
      s->events.push_back(std::move(event));
      s->changed.notify_all();
    };
  }
  template <typename T>
  T next() {
    std::unique_lock lock(state_->mutex);
    auto& events = state_->events;
    MOESTRO_CHECK(state_->changed.wait_for(lock, kAnswerLimit, [&] { return !events.empty(); }),
                  "the owner hears nothing");
    MOESTRO_CHECK(std::holds_alternative<T>(events.front()), "the owner hears something else");
    T event = std::get<T>(std::move(events.front()));
    events.pop_front();
    return event;
  }
  bool nothing() const {
    const std::lock_guard lock(state_->mutex);
    return state_->events.empty();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<SequenceEvent> events;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class ControlPlaneTest : public ::testing::Test {
 protected:
  /// One step in flight: a test answers plan by plan.
  void start(size_t queue_max = 100, ControlOptions options = {}, size_t steps_in_flight = 1) {
    options.endpoint = endpoint_;
    options.model = "m";
    options.eos_ids = {0};
    options.queue_max = queue_max;
    options.steps_in_flight = steps_in_flight;
    options.clock = clock_;
    auto started = ControlPlane::start(options);
    MOESTRO_CHECK(started.is_ok(), started.status().message());
    control_ = std::move(*started);
  }
  SequenceRequest request(int64_t tokens_max = 3) {
    SequenceRequest r;
    r.id = control_->next_sequence_id();
    r.prompt = {5, 6, 7};
    r.tokens_max = tokens_max;
    return r;
  }
  SequenceId submit(Heard& heard, int64_t tokens_max = 3) {
    SequenceRequest r = request(tokens_max);
    const SequenceId id = r.id;
    EXPECT_TRUE(control_->submit(std::move(r), heard.sink()).is_ok());
    return id;
  }
  /// Returns once the control thread has taken all that was submitted before, and shows it in its figures.
  void settle() {
    FakeWorker stranger(endpoint_);
    for (const uint64_t seen = control_->snapshot().turns; control_->snapshot().turns < seen + 2;) {
      stranger.send_heartbeat();
      EXPECT_EQ(stranger.hear_refused().code, Code::kNotFound);
    }
  }
  /// A longer jump of the clock is a pause of this process, which does not count as silence.
  void pass(Nanos time) {
    for (Nanos passed{0}; passed < time; passed += std::chrono::milliseconds(250)) {
      clock_->advance(std::chrono::milliseconds(250));
      settle();
    }
  }
  void wait_until_no_worker() {
    while (control_->has_worker()) pass(std::chrono::milliseconds(250));
  }
  static PlanOutcome tokens(const Plan& plan) {  // 10, 11, ...: after position 2, 3, ...
    return compute(plan, [](const PlannedSequence&, int64_t position) { return static_cast<TokenId>(8 + position); });
  }

  test::TempDir dir_;
  const std::string endpoint_ = "ipc://" + (dir_ / "o.sock").string();
  const std::shared_ptr<TestClock> clock_ = std::make_shared<TestClock>();
  std::unique_ptr<ControlPlane> control_;
};

}  // namespace moestro::orchestrator::testing
