#include "common/planner/virtual_run.h"

#include <gtest/gtest.h>

#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

using lanes::Lane;

constexpr double kLink = 20e9;

lanes::LaneRates a_gpu_behind_a_link() {
  lanes::LaneRates rates;
  rates[static_cast<size_t>(Lane::kCompute)] = lanes::LaneRate{.flops_per_s = 50e12, .bytes_per_s = 800e9};
  rates[static_cast<size_t>(Lane::kHostToDevice)] = lanes::LaneRate{.bytes_per_s = kLink, .interrupts = true};
  rates[static_cast<size_t>(Lane::kDeviceToHost)] = lanes::LaneRate{.bytes_per_s = kLink};
  rates[static_cast<size_t>(Lane::kHostCompute)] = lanes::LaneRate{.flops_per_s = 1e12, .bytes_per_s = 60e9};
  return rates;
}

VirtualRun run_of(lanes::Schedule& schedule, EvenRoutes& routes, const GroupWorkload& work) {
  const auto run = run_virtually(work, a_gpu_behind_a_link(), schedule, schedule, routes, nullptr);
  EXPECT_TRUE(run.is_ok()) << run.status().message();
  return run.is_ok() ? *run : VirtualRun{};
}

TEST(ModelShapeOfSizes, HasThePublishedNumbersOfMixtral) {
  const lanes::ModelShape shape = model_shape(mixtral_sizes());
  ASSERT_EQ(shape.layers.size(), 32u);
  const lanes::LayerShape& layer = shape.layers[7];
  EXPECT_TRUE(layer.sparse);
  EXPECT_EQ(layer.experts, 8);
  EXPECT_EQ(layer.expert_parameters, 3.0 * 4096 * 14336);
  EXPECT_EQ(layer.attention_parameters, 4096.0 * (2 * 4096 + 2 * 1024));
  EXPECT_EQ(layer.output_parameters, 4096.0 * 4096);
  EXPECT_EQ(layer.attention_weight_bytes, 2 * layer.attention_parameters);
  EXPECT_EQ(layer.kv_bytes_per_token, 2.0 * 1024 * 2);
  EXPECT_EQ(layer.qkv_bytes_per_token, 2.0 * (4096 + 2 * 1024));
  EXPECT_EQ(layer.attended_bytes_per_token, 2.0 * 4096);
  EXPECT_EQ(layer.shared_parameters, 0);
}

TEST(EvenRoutes, EveryRowHasItsExpertsAndEqualSeedsAreEqual) {
  EvenRoutes a(8, 2, 3), b(8, 2, 3);
  for (const int64_t rows : {1, 5, 256, 4096}) {
    a.set_rows(rows), b.set_rows(rows);
    int64_t sum = 0;
    int32_t last = -1;
    const auto chosen = a.choose(0, 0);
    const auto again = b.choose(0, 0);
    ASSERT_EQ(chosen.size(), again.size());
    for (size_t i = 0; i < chosen.size(); ++i) {
      EXPECT_EQ(chosen[i].rows, again[i].rows);
      EXPECT_GT(chosen[i].expert, last);
      EXPECT_LE(chosen[i].rows, rows);
      last = chosen[i].expert, sum += chosen[i].rows;
    }
    EXPECT_EQ(sum, 2 * rows);
  }
  EXPECT_EQ(a.foreseen(0).size(), 3u);
}

TEST(EvenRoutes, ResidentExpertsAreSpreadOverTheLayers) {
  EvenRoutes routes(8, 2, 8);
  const auto resident = [&](int32_t layer) {
    int count = 0;
    for (int32_t expert = 0; expert < 8; ++expert) count += routes.is_resident(layer, expert);
    return count;
  };
  EXPECT_EQ(resident(0) + resident(1), 0);
  routes.keep_resident(2.5);
  EXPECT_EQ(resident(0), 2);
  EXPECT_EQ(resident(1), 3);
  EXPECT_EQ(resident(2) + resident(3), 5);
  routes.keep_resident(8);
  EXPECT_EQ(resident(7), 8);
}

/// With many sequences every expert is used, so a decoding step cannot be shorter than the bytes over the link.
TEST(RunVirtually, ASlowLinkBoundsDecodingAndTheScheduleReachesIt) {
  const ModelSizes sizes = mixtral_sizes();
  EvenRoutes routes(8, 2, 2);
  const auto schedule = lanes::make_expert_pipeline_schedule(
      model_shape(sizes), {.dense_share = 1, .kv_share = 0, .expert_slots = 12}, routes);
  const GroupWorkload work{.prompt = 512, .generate = 3, .sequences = 64, .micro_batches = 8};
  const VirtualRun run = run_of(*schedule, routes, work);
  const double bytes = static_cast<double>(sizes.experts_bytes()) + 512 * 513 * sizes.kv_bytes_per_token();
  EXPECT_GT(run.decode_seconds, 2 * 0.995 * bytes / kLink);
  EXPECT_LT(run.decode_seconds, 2 * 1.05 * bytes / kLink);
  EXPECT_EQ(run.tokens, 3 * 64 * 8);
}

TEST(RunVirtually, AttendingOnTheHostPaysWhereMovingTheCacheCostsMore) {
  const lanes::ModelShape shape = model_shape(mixtral_sizes());
  const GroupWorkload work{.prompt = 1024, .generate = 3, .sequences = 36, .micro_batches = 14};
  EvenRoutes routes(8, 2, 8);
  const auto moving = lanes::make_expert_pipeline_schedule(
      shape, {.dense_share = 0, .kv_share = 0, .by_expert = false}, routes);
  const auto cgo = lanes::make_cgo_schedule(shape, {});
  const VirtualRun by_moving = run_of(*moving, routes, work);
  const VirtualRun on_host = run_of(*cgo, routes, work);
  EXPECT_LT(on_host.decode_seconds * 1.5, by_moving.decode_seconds);
  EXPECT_GT(on_host.busy_seconds[static_cast<int>(Lane::kHostCompute)], 0);
  EXPECT_EQ(by_moving.busy_seconds[static_cast<int>(Lane::kHostCompute)], 0);
}

TEST(RunVirtually, RefusesALaneWithoutARateAndCountsOfNothing) {
  const auto cgo = lanes::make_cgo_schedule(model_shape(mixtral_sizes()), {});
  EvenRoutes routes(8, 2, 0);
  lanes::LaneRates rates = a_gpu_behind_a_link();
  rates[static_cast<size_t>(Lane::kHostCompute)].reset();
  const auto refused = run_virtually({}, rates, *cgo, *cgo, routes, nullptr);
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_NE(refused.status().message().find("host compute"), std::string::npos);
  const auto none = run_virtually({.sequences = 0}, a_gpu_behind_a_link(), *cgo, *cgo, routes, nullptr);
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro::planner
