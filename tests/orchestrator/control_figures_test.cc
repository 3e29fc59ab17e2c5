// The figures of a control plane: when they have what was done, and what devices did.

#include "tests/orchestrator/control_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

TEST_F(ControlPlaneTest, TheFiguresHaveAnEndBeforeItsOwnerHearsOfIt) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  for (uint64_t round = 1; round <= 20; ++round) {
    Heard heard;
    submit(heard, 1);
    worker.answer(tokens(worker.hear_plan()));
    heard.next<Progress>();
    heard.next<Finished>();
    const ControlSnapshot s = control_->snapshot();
    ASSERT_EQ(std::tuple(s.running, s.kv_blocks_used, s.sampled_tokens), std::tuple(0U, 0U, round));
  }
}

TEST_F(ControlPlaneTest, TheSnapshotCountsDevicesApart) {
  start();
  FakeWorker worker(endpoint_);
  worker.join({.experts = {2, 4, 1}, .device_slots = 5, .device_slot_bytes = 100});
  Heard heard;
  submit(heard, 1);
  PlanOutcome outcome = tokens(worker.hear_plan());
  outcome.sequences[0].activations = {{MoeLayerId(0), ExpertId(1), 3},
                                      {MoeLayerId(1), ExpertId(0), 1},
                                      {MoeLayerId(1), ExpertId(2), 1},
                                      {MoeLayerId(7), ExpertId(0), 1}};
  worker.answer(outcome, 2);
  heard.next<Progress>();
  heard.next<Finished>();
  settle();
  const ControlSnapshot s = control_->snapshot();
  EXPECT_EQ(std::pair(s.expert_hits, s.dram_hits), std::pair(uint64_t{3}, uint64_t{0}));
  EXPECT_EQ(std::tuple(s.device.use.hits, s.device.use.misses, s.device.use.late, s.device.moved_bytes),
            std::tuple(6U, 4U, 2U, 500U));
  ASSERT_EQ(s.device_layers.size(), 2u);
  EXPECT_EQ(s.device_layers[1].hits, 3u);
  ASSERT_EQ(s.workers.size(), 1u);
  EXPECT_EQ(std::tuple(s.workers[0].device_slots, s.workers[0].device_resident, s.workers[0].recent.belady_hits),
            std::tuple(5U, 2U, 7U));
  EXPECT_EQ(control_->expert_shares().cells, (std::vector<float>{0, 1, 0, 0, 0.5F, 0, 0.5F, 0}));
}

TEST_F(ControlPlaneTest, AStepsAgeIsCountedFromTheOneBefore) {
  start();
  FakeWorker worker(endpoint_);
  worker.join();
  const auto age = [&] {
    settle();
    return control_->snapshot().workers.at(0).step_age_s;
  };
  clock_->advance(std::chrono::milliseconds(1000));
  EXPECT_EQ(age(), 0) << "it has nothing to do";
  Heard heard;
  submit(heard, 2);
  const Plan first = worker.hear_plan();
  settle();  // the control thread notes the time after it has sent the plan
  clock_->advance(std::chrono::milliseconds(700));
  EXPECT_NEAR(age(), 0.7, 1e-9);
  worker.answer(tokens(first));
  heard.next<Progress>();
  const Plan second = worker.hear_plan();
  settle();
  clock_->advance(std::chrono::milliseconds(200));
  EXPECT_NEAR(age(), 0.2, 1e-9);
  worker.answer(tokens(second));
  heard.next<Progress>();
  heard.next<Finished>();
  EXPECT_EQ(age(), 0);
}

TEST_F(ControlPlaneTest, AResultWithADeviceThatCannotBeFailsItsPlan) {
  start();
  FakeWorker worker(endpoint_);
  worker.join({.experts = {2, 4, 1}, .device_slots = 5, .device_slot_bytes = 100});
  for (const int layers : {0, 1, 3}) {
    Heard heard;
    submit(heard, 1);
    worker.answer(tokens(worker.hear_plan()), layers);
    const auto failed = heard.next<Failed>();
    EXPECT_EQ(failed.error.code(), Code::kInternal);
    EXPECT_NE(failed.error.message().find("layers"), std::string::npos) << failed.error.message();
  }
  Heard heard;
  submit(heard, 1);
  worker.answer(tokens(worker.hear_plan()), 2);
  heard.next<Progress>();
  heard.next<Finished>();
  settle();
  EXPECT_EQ(control_->snapshot().device.use.hits, 6u) << "only what can be is counted";
}

}  // namespace
}  // namespace moestro::orchestrator
