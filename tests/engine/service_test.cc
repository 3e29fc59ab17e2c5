// The worker's loop against a socket that plays the orchestrator.

#include "services/worker/service/worker_service.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <semaphore>
#include <thread>

#include "tests/engine/engine_bench.h"
#include "tests/engine/played_orchestrator.h"

namespace moestro::worker {
namespace {

using engine::testing::Bench;
using engine::testing::TempDir;
using std::chrono::milliseconds;
using testing::message;
using testing::PlayedOrchestrator;

class ServiceTest : public ::testing::Test {
 protected:
  explicit ServiceTest(const Bench::Wrap& wrap = {}, milliseconds leave_silence = milliseconds(50))
      : leave_silence_(leave_silence), bench_(engine::testing::any_fixture(), {}, wrap), orchestrator_(dir_.path()) {
    ServiceOptions options;
    options.name = "w", options.device = "cpu", options.orchestrator = orchestrator_.endpoint();
    options.heartbeat = milliseconds(20), options.register_retry = milliseconds(100);
    options.leave_silence = leave_silence_;
    options.idle = [this] { idle_.release(); };
    auto service = WorkerService::create(
        options, bench_.engine(), [this] { return store_gone_ ? unavailable("the store is gone") : Status::ok(); });
    MOESTRO_CHECK(service.is_ok(), service.status().message());
    service_ = std::move(*service);
    thread_ = std::thread([this] { end_ = service_->run(stop_); });
  }
  ~ServiceTest() override {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  const wire::WorkerMessage* next(wire::WorkerBody type) { return orchestrator_.next(type); }
  uint64_t register_worker() { return orchestrator_.register_worker()->kv_epoch(); }
  void send(const std::vector<std::byte>& bytes) { orchestrator_.send(bytes); }
  void send_plan(uint64_t plan, int32_t first_token, int32_t parent = -1) {
    orchestrator_.send_plan(plan, first_token, parent);
  }

  const milliseconds leave_silence_;
  TempDir dir_;
  std::atomic<bool> store_gone_{false};
  std::counting_semaphore<> idle_{0};
  Bench bench_;
  PlayedOrchestrator orchestrator_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<WorkerService> service_;
  std::thread thread_;
  Status end_;
};

TEST_F(ServiceTest, RegistersAnswersPlansAndDrains) {
  register_worker();
  ASSERT_NE(next(wire::WorkerBody::Heartbeat), nullptr);
  send_plan(1, 2);
  const auto* m = next(wire::WorkerBody::StepResult);
  ASSERT_NE(m, nullptr);
  const auto* result = m->body_as_StepResult();
  EXPECT_EQ(result->plan(), 1u);
  ASSERT_EQ(result->sequences()->size(), 1u);
  EXPECT_EQ(result->sequences()->Get(0)->error_code(), 0u);
  EXPECT_EQ(result->sequences()->Get(0)->sampled()->Get(0)->score()->best()->size(), 2u);
  EXPECT_EQ(result->device(), nullptr) << "it computes in host memory";
  flatbuffers::FlatBufferBuilder b;
  send(message(b, wire::WorkerBody::Drain, wire::CreateDrain(b)));
  thread_.join();
  EXPECT_TRUE(end_.is_ok()) << end_.message();
}

TEST_F(ServiceTest, SaysThatItIsIdleWhileNoPlanComes) {
  register_worker();
  for (int again = 0; again < 2; ++again) ASSERT_TRUE(idle_.try_acquire_for(std::chrono::seconds(20)));
}

TEST_F(ServiceTest, SaysGoodbyeWhenItIsToStop) {
  register_worker();
  stop_.store(true);
  const auto* m = next(wire::WorkerBody::Leaving);
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->body_as_Leaving()->code(), 0u);
  thread_.join();
  EXPECT_TRUE(end_.is_ok()) << end_.message();
}

class LeavingTest : public ServiceTest {
 protected:
  LeavingTest() : ServiceTest({}, std::chrono::hours(1)) {}
  /// The next heartbeat that asks to leave.
  bool hear_ask() {
    while (const auto* m = next(wire::WorkerBody::Heartbeat))
      if (m->body_as_Heartbeat()->asks_to_leave()) return true;
    return false;
  }
};

TEST_F(LeavingTest, ToldToStopItComputesUntilTheOrchestratorLetsItGo) {
  register_worker();
  ASSERT_NE(next(wire::WorkerBody::Heartbeat), nullptr) << "it knows that it is registered";
  stop_.store(true);
  flatbuffers::FlatBufferBuilder stay, go;
  for (uint64_t plan = 1; plan <= 2; ++plan) {
    ASSERT_TRUE(hear_ask());
    stay.Clear();
    send(message(stay, wire::WorkerBody::Registered, wire::CreateRegistered(stay, 7)));
    send_plan(plan, 2);
    ASSERT_NE(next(wire::WorkerBody::StepResult), nullptr);
  }
  send(message(go, wire::WorkerBody::Drain, wire::CreateDrain(go)));
  const auto* m = next(wire::WorkerBody::Leaving);
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->body_as_Leaving()->code(), 0u);
  thread_.join();
  EXPECT_TRUE(end_.is_ok()) << end_.message();
  EXPECT_FALSE(service_->attach_anew());
}

TEST_F(ServiceTest, SaysGoodbyeAlsoBeforeItKnowsThatItIsRegistered) {
  ASSERT_NE(next(wire::WorkerBody::RegisterWorker), nullptr);
  stop_.store(true);
  ASSERT_NE(next(wire::WorkerBody::Leaving), nullptr);
  thread_.join();
  EXPECT_TRUE(end_.is_ok()) << end_.message();
}

TEST_F(ServiceTest, SaysWhetherItIsToAttachAnew) {
  register_worker();
  flatbuffers::FlatBufferBuilder b;
  send(message(b, wire::WorkerBody::Drain, wire::CreateDrain(b, /*attach_anew=*/true)));
  thread_.join();
  EXPECT_TRUE(end_.is_ok()) << end_.message();
  EXPECT_TRUE(service_->attach_anew());
}

TEST_F(ServiceTest, AnswersWhatItCannotRunAndGoesOn) {
  register_worker();
  send(std::vector<std::byte>(50, std::byte{0x5a}));  // not a message: no answer, no harm
  send_plan(1, 2, /*parent=*/0);
  const auto* tree = next(wire::WorkerBody::StepResult);
  ASSERT_NE(tree, nullptr);
  EXPECT_EQ(tree->body_as_StepResult()->error_code(), static_cast<uint32_t>(Code::kUnsupported));
  send_plan(2, 1 << 29);
  const auto* bad = next(wire::WorkerBody::StepResult);
  ASSERT_NE(bad, nullptr);
  EXPECT_NE(bad->body_as_StepResult()->sequences()->Get(0)->error_code(), 0u);
  send_plan(3, 2);
  const auto* good = next(wire::WorkerBody::StepResult);
  ASSERT_NE(good, nullptr);
  EXPECT_EQ(good->body_as_StepResult()->sequences()->Get(0)->error_code(), 0u);
}

TEST_F(ServiceTest, RegistersAgainInANewEpochWhenItIsForgotten) {
  const uint64_t first = register_worker();
  ASSERT_NE(next(wire::WorkerBody::Heartbeat), nullptr);
  flatbuffers::FlatBufferBuilder b;
  const auto text = b.CreateString("not registered; register again");
  send(message(b, wire::WorkerBody::Refused, wire::CreateRefused(b, static_cast<uint32_t>(Code::kNotFound), text)));
  EXPECT_NE(register_worker(), first) << "nothing of the old cache may be relied on";
  send_plan(1, 2);
  EXPECT_NE(next(wire::WorkerBody::StepResult), nullptr);
}

TEST_F(ServiceTest, EndsWhenItIsRefused) {
  ASSERT_NE(next(wire::WorkerBody::RegisterWorker), nullptr);
  flatbuffers::FlatBufferBuilder b;
  const auto text = b.CreateString("another model is served here");
  send(message(b, wire::WorkerBody::Refused,
               wire::CreateRefused(b, static_cast<uint32_t>(Code::kInvalidArgument), text)));
  thread_.join();
  EXPECT_NE(end_.message().find("another model"), std::string::npos);
}

TEST_F(ServiceTest, EndsWhenTheStoreIsGone) {
  register_worker();
  store_gone_ = true;
  const auto* m = next(wire::WorkerBody::Leaving);
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->body_as_Leaving()->code(), static_cast<uint32_t>(Code::kUnavailable));
  EXPECT_EQ(m->body_as_Leaving()->message()->str(), "the store is gone");
  thread_.join();
  EXPECT_EQ(end_.message(), "the store is gone");
}

/// A store that goes while a step waits for its experts, or just before it asks for them.
class LostSource final : public store::BlobSource {
 public:
  LostSource(std::unique_ptr<store::BlobSource> inner, bool refuses_fetch, std::atomic<bool>& gone)
      : inner_(std::move(inner)), refuses_fetch_(refuses_fetch), gone_(gone) {}
  const store::Manifest& manifest() const override { return inner_->manifest(); }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight = {}) override {
    if (manifest().blobs[blob].kind == store::BlobKind::kDense) return inner_->try_pin(blob);
    return std::nullopt;
  }
  Status fetch(std::span<const uint32_t>, store::WantedBy) override {
    gone_ = refuses_fetch_;
    return refuses_fetch_ ? unavailable("the store is gone") : Status::ok();
  }
  Result<store::Lease> next_arrival(std::chrono::milliseconds) override {
    gone_ = true;
    return io_error("the store is gone");
  }
  void cancel_fetches() override {}
  Counters counters() const override { return {}; }

 private:
  void unpin(uint32_t) override {}
  std::unique_ptr<store::BlobSource> inner_;
  const bool refuses_fetch_;
  std::atomic<bool>& gone_;
};

class ServiceWithALostStore : public ServiceTest, public ::testing::WithParamInterface<bool> {
 protected:
  ServiceWithALostStore() : ServiceTest([this](std::unique_ptr<store::BlobSource> inner) {
    return std::make_unique<LostSource>(std::move(inner), GetParam(), store_gone_);
  }) {}
};

TEST_P(ServiceWithALostStore, LeavesThePlanUnansweredAndEnds) {
  register_worker();
  send_plan(1, 2);
  thread_.join();
  EXPECT_EQ(end_.message(), "the store is gone")
      << "its sequences run again elsewhere, or here when it is started again";
  for (auto incoming = orchestrator_.router().receive(); incoming.is_ok() && incoming->has_value();
       incoming = orchestrator_.router().receive())
    EXPECT_NE(wire::GetWorkerMessage((*incoming)->body.data())->body_type(), wire::WorkerBody::StepResult);
}

/// Every blob is there; to pin one takes a while, as a step of a large model does.
class SlowHits final : public store::BlobSource {
 public:
  explicit SlowHits(std::unique_ptr<store::BlobSource> inner) : inner_(std::move(inner)) {}
  const store::Manifest& manifest() const override { return inner_->manifest(); }
  std::optional<store::Lease> try_pin(uint32_t blob, store::UseWeight weight) override {
    if (manifest().blobs[blob].kind == store::BlobKind::kExpert) std::this_thread::sleep_for(milliseconds(3));
    return inner_->try_pin(blob, weight);
  }
  Status fetch(std::span<const uint32_t> blobs, store::WantedBy by) override { return inner_->fetch(blobs, by); }
  Result<store::Lease> next_arrival(std::chrono::milliseconds timeout) override {
    return inner_->next_arrival(timeout);
  }
  void cancel_fetches() override { inner_->cancel_fetches(); }
  Counters counters() const override { return inner_->counters(); }

 private:
  void unpin(uint32_t) override {}
  std::unique_ptr<store::BlobSource> inner_;
};

class ServiceWithSlowHits : public ServiceTest {
 protected:
  ServiceWithSlowHits()
      : ServiceTest(
            [](std::unique_ptr<store::BlobSource> inner) { return std::make_unique<SlowHits>(std::move(inner)); }) {}
};

TEST_F(ServiceWithSlowHits, LooksAfterTheStoreWhilePlanFollowsPlan) {
  register_worker();
  constexpr int kPlans = 100;  // of 3 ms at least
  for (uint64_t plan = 1; plan <= kPlans; ++plan) send_plan(plan, 2);
  store_gone_ = true;
  thread_.join();
  EXPECT_EQ(end_.message(), "the store is gone");
  int answered = 0;
  for (auto incoming = orchestrator_.router().receive(); incoming.is_ok() && incoming->has_value();
       incoming = orchestrator_.router().receive())
    answered += wire::GetWorkerMessage((*incoming)->body.data())->body_type() == wire::WorkerBody::StepResult;
  EXPECT_LT(answered, kPlans) << "it looked only when it had nothing else to do";
}

INSTANTIATE_TEST_SUITE_P(When, ServiceWithALostStore, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "asking" : "waiting"; });

}  // namespace
}  // namespace moestro::worker
