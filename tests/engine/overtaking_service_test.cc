// A worker that has a plan under way when one comes that overtakes it.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <semaphore>
#include <thread>

#include "services/worker/service/worker_service.h"
#include "tests/engine/engine_bench.h"
#include "tests/engine/played_orchestrator.h"

namespace moestro::worker {
namespace {

using engine::testing::Bench;
using engine::testing::BenchOptions;
using engine::testing::TempDir;
using std::chrono::milliseconds;
using testing::message;
using testing::PlayedOrchestrator;

/// Its first expert is given out when the test says so.
class GatedSource final : public store::BlobSource {
 public:
  struct Gate {
    std::binary_semaphore reached{0}, open{0};
    std::atomic<bool> passed{false};
    std::atomic<int> lost_after{INT32_MAX};  ///< experts
    std::atomic<bool>* store_gone = nullptr;
  };
  GatedSource(std::unique_ptr<store::BlobSource> inner, Gate& gate) : inner_(std::move(inner)), gate_(gate) {}
  const store::Manifest& manifest() const override { return inner_->manifest(); }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight) override {
    if (manifest().blobs[blob].kind != store::BlobKind::kExpert) return inner_->try_pin(blob, weight);
    if (!gate_.passed.exchange(true)) {
      gate_.reached.release();
      gate_.open.acquire();
    }
    if (gate_.lost_after.fetch_sub(1) <= 0) return std::nullopt;
    return inner_->try_pin(blob, weight);
  }
  Status fetch(std::span<const uint32_t>, store::WantedBy) override {
    *gate_.store_gone = true;
    return unavailable("the store is gone");
  }
  Result<store::Lease> next_arrival(milliseconds timeout) override { return inner_->next_arrival(timeout); }
  void cancel_fetches() override { inner_->cancel_fetches(); }
  Counters counters() const override { return inner_->counters(); }

 private:
  void unpin(uint32_t) override {}
  std::unique_ptr<store::BlobSource> inner_;
  Gate& gate_;
};

BenchOptions parking(int64_t overtaking_tokens_max) {
  BenchOptions options;
  options.engine.overtaking_tokens_max = overtaking_tokens_max;
  return options;
}

class OvertakingService : public ::testing::Test {
 protected:
  explicit OvertakingService(int64_t overtaking_tokens_max)
      : bench_(engine::testing::any_fixture(), parking(overtaking_tokens_max),
               [this](std::unique_ptr<store::BlobSource> inner) {
                 return std::make_unique<GatedSource>(std::move(inner), gate_);
               }),
        orchestrator_(dir_.path()) {
    gate_.store_gone = &store_gone_;
    ServiceOptions options;
    options.name = "w", options.device = "cpu", options.orchestrator = orchestrator_.endpoint();
    auto service = WorkerService::create(
        options, bench_.engine(), [this] { return store_gone_ ? unavailable("the store is gone") : Status::ok(); });
    MOESTRO_CHECK(service.is_ok(), service.status().message());
    service_ = std::move(*service);
    thread_ = std::thread([this] { end_ = service_->run(stop_); });
    registered_ = orchestrator_.register_worker()->overtaking_tokens_max();
  }
  ~OvertakingService() override {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  /// Plan 1 is in its first layer, and the worker has what was sent since.
  void begin(const std::function<void()>& meanwhile) {
    orchestrator_.send_plan(1, 2);
    gate_.reached.acquire();
    meanwhile();
    orchestrator_.send_plan(99, 2, /*parent=*/0);  // not a plan: answered by the thread that has the socket
    EXPECT_EQ(answered(), 99u);
    gate_.open.release();
  }
  void send_overtaking(uint64_t plan) {
    orchestrator_.send_plan(plan, 5, -1, 1, static_cast<uint32_t>(plan), /*overtakes=*/true);
  }
  /// The plan that is answered next.
  uint64_t answered() {
    const auto* m = orchestrator_.next(wire::WorkerBody::StepResult);
    if (m == nullptr) return 0;
    const auto* result = m->body_as_StepResult();
    parks_ = result->parks();
    error_ = result->error() == nullptr ? "" : result->error()->str();
    return result->plan();
  }

  TempDir dir_;
  std::atomic<bool> store_gone_{false};
  GatedSource::Gate gate_;
  Bench bench_;
  PlayedOrchestrator orchestrator_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<WorkerService> service_;
  std::thread thread_;
  Status end_;
  uint32_t registered_ = 0, parks_ = 0;
  std::string error_;
};

class WithOvertaking : public OvertakingService {
 protected:
  WithOvertaking() : OvertakingService(16) {}
};
class WithoutOvertaking : public OvertakingService {
 protected:
  WithoutOvertaking() : OvertakingService(0) {}
};

TEST_F(WithOvertaking, APlanThatOvertakesIsAnsweredFirst) {
  EXPECT_EQ(registered_, 16u);
  begin([&] { send_overtaking(2); });
  EXPECT_EQ(answered(), 2u);
  EXPECT_EQ(error_, "");
  EXPECT_EQ(parks_, 0u);
  EXPECT_EQ(answered(), 1u);
  EXPECT_EQ(error_, "");
  EXPECT_EQ(parks_, 1u);
  orchestrator_.send_plan(3, 2);
  send_overtaking(4);
  const uint64_t first = answered(), second = answered();
  EXPECT_EQ(first + second, 7u) << "in either order: the first may have ended by then";
}

TEST_F(WithOvertaking, APlanThatMayNotOvertakeIsRefusedAlone) {
  begin([&] { orchestrator_.send_plan(1, 5, -1, 1, 3, /*overtakes=*/true); });  // the sequence of plan 1
  EXPECT_EQ(answered(), 1u);
  EXPECT_NE(error_.find("which has sequence 1 too"), std::string::npos) << error_;
  EXPECT_EQ(answered(), 1u);
  EXPECT_EQ(error_, "");
}

TEST_F(WithOvertaking, NotBeforeWhatIsToBeForgotten) {
  begin([&] {
    flatbuffers::FlatBufferBuilder b;
    const std::vector<uint64_t> released = {7};
    orchestrator_.send(message(b, wire::WorkerBody::Release, wire::CreateRelease(b, b.CreateVector(released))));
    send_overtaking(2);
  });
  EXPECT_EQ(answered(), 1u) << "a release is not overtaken";
  EXPECT_EQ(answered(), 2u);
}

TEST_F(WithOvertaking, WithoutTheStoreBothAreLeftUnanswered) {
  gate_.lost_after = 0;
  begin([&] { send_overtaking(2); });
  thread_.join();
  EXPECT_EQ(end_.message(), "the store is gone");
}

TEST_F(WithoutOvertaking, PlansAreAnsweredInTheirOrder) {
  EXPECT_EQ(registered_, 0u);
  begin([&] { send_overtaking(2); });
  EXPECT_EQ(answered(), 1u);
  EXPECT_EQ(answered(), 2u);
  EXPECT_EQ(error_, "");
}

}  // namespace
}  // namespace moestro::worker
