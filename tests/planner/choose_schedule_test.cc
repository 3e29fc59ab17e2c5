// The search over schedules: what it chooses against a grid of arrangements, what it refuses, and how long it takes.

#include "common/planner/choose_schedule.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>

#include "common/planner/group_times.h"
#include "common/planner/plan.h"
#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGibi = uint64_t{1} << 30;

constexpr Precisions kSmallWeights{.experts = DType::kInt4, .dense = DType::kInt8, .kv = DType::kBF16};

/// Of 94 layers with 128 experts.
ModelSizes large_sizes(const Precisions& precisions) {
  const nlohmann::json config = {{"architectures", {"Qwen3MoeForCausalLM"}},
                                 {"hidden_size", 4096},
                                 {"num_hidden_layers", 94},
                                 {"num_attention_heads", 64},
                                 {"num_key_value_heads", 4},
                                 {"head_dim", 128},
                                 {"vocab_size", 151936},
                                 {"max_position_embeddings", 40960},
                                 {"intermediate_size", 12288},
                                 {"moe_intermediate_size", 1536},
                                 {"num_experts_per_tok", 8},
                                 {"num_experts", 128},
                                 {"norm_topk_prob", true},
                                 {"decoder_sparse_step", 1},
                                 {"mlp_only_layers", nlohmann::json::array()},
                                 {"torch_dtype", "bfloat16"}};
  auto model = model::describe_model(config.dump(), "");
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  auto sizes = model_sizes(*model, precisions);
  EXPECT_TRUE(sizes.is_ok()) << sizes.status().message();
  return std::move(sizes).value();
}

struct Hardware {
  const char* name;
  Memories memories;
  double bytes_per_s, operations_per_s, link, drive, host_bytes_per_s, host_operations_per_s;
};
constexpr Hardware kHardware[] = {
    {"T4", {Memories::Device::kWhole, 15 * kGibi, 192 * kGibi, {}}, 256e9, 52e12, 12e9, 3e9, 60e9, 1.3e12},
    {"L4", {Memories::Device::kWhole, 22 * kGibi, 128 * kGibi, {}}, 240e9, 97e12, 25e9, 5e9, 80e9, 2e12},
    {"RTX 3090", {Memories::Device::kWhole, 22 * kGibi, 256 * kGibi, {}}, 750e9, 57e12, 25e9, 1e9, 100e9, 2e12},
    {"H100", {Memories::Device::kWhole, 76 * kGibi, 500 * kGibi, {}}, 2.7e12, 790e12, 50e9, 6e9, 50e9, 1e12},
    {"a CPU with a drive", {Memories::Device::kHost, 0, 48 * kGibi, {}}, 80e9, 1.6e12, 0, 3e9, 0, 0},
};

PlanInput input(const Hardware& hardware, const ModelSizes& sizes, const Workload& workload) {
  PlanInput in;
  in.sizes = sizes, in.workload = workload, in.memories = hardware.memories;
  in.rates = rates_of(hardware.bytes_per_s, hardware.operations_per_s);
  if (sizes.precisions.experts == DType::kInt4)
    in.rates.experts = ProductCurve::roofline(0.56, hardware.bytes_per_s, hardware.operations_per_s);
  if (hardware.link > 0) {
    in.rates.link_bytes_per_s = hardware.link, in.rates.link_latency_s = 10e-6;
    in.rates.host_bytes_per_s = hardware.host_bytes_per_s;
    in.rates.host_operations_per_s = hardware.host_operations_per_s;
  }
  in.rates.drive_bytes_per_s = hardware.drive;
  in.needs = {.dense_bytes = sizes.dense_bytes, .workspace_bytes = kGibi / 2, .process_bytes = kGibi / 4,
              .expert_bytes = sizes.expert_bytes, .slot_bytes = sizes.expert_bytes, .experts = sizes.all_experts()};
  return in;
}

/// The fastest of a grid of arrangements, each as forecast_arrangement() has it.
ScheduleOption best_of_grid(const PlanInput& in, int64_t* tried) {
  std::optional<ScheduleOption> best;
  const auto consider = [&](const Arrangement& a) {
    auto option = forecast_arrangement(in, a);
    if (!option.is_ok()) return;
    ++*tried;
    if (!best || option->seconds() < best->seconds()) best = std::move(*option);
  };
  const int64_t all = in.workload.sequences;
  const bool gpu = in.memories.device == Memories::Device::kWhole;
  for (const int64_t rows : {1, 4, 16, 64, 128, 256})
    if (rows <= all) consider({.rows = rows});
  for (const int64_t m : {1, 4, 8, 16, 32})
    for (const int64_t rows : {1, 16, 64, 128}) {
      if (m * rows > all) continue;
      if (!gpu && (m == 1 || rows < 16)) continue;  // workers: as layerwise, or cut into fewer
      for (const int64_t slots : {in.sizes.top_k, 2 * in.sizes.experts})
        for (const bool ahead : {true, false})
          for (const double kv : {1.0, 0.5, 0.0})
            if (gpu || kv == 1) consider({ScheduleName::kExpertPipeline, m, rows, /*dense_share=*/1, kv, slots, ahead});
      Arrangement cgo{ScheduleName::kCgo, m, rows, 0, 0, 0, true};
      if (!gpu) continue;
      cgo.dense_share = largest_weight_share(in, cgo);
      consider(cgo);
    }
  EXPECT_TRUE(best.has_value());
  return *best;
}

TEST(ChooseSchedule, IsWithin5PercentOfTheBestOfAGrid) {
  const ModelSizes mixtral = mixtral_sizes(), large = large_sizes(kSmallWeights);
  const Workload workloads[] = {{.prompt = 512, .generate = 32, .sequences = 960},
                                {.prompt = 128, .generate = 128, .sequences = 256},
                                {.prompt = 2000, .generate = 64, .sequences = 64},
                                {.prompt = 100, .generate = 100, .sequences = 1}};
  int64_t tried = 0;
  std::string chosen;
  for (const Hardware& hardware : kHardware)
    for (const ModelSizes* sizes : {&mixtral, &large})
      for (const Workload& workload : workloads) {
        if (sizes == &large && &workload != &workloads[1]) continue;
        const PlanInput in = input(hardware, *sizes, workload);
        const auto search = search_schedules(in);
        ASSERT_TRUE(search.is_ok()) << hardware.name << ": " << search.status().message();
        const ScheduleOption& choice = search->options.front();
        const ScheduleOption best = best_of_grid(in, &tried);
        const auto name = [](const ScheduleOption& o) {
          const Arrangement& a = o.arrangement;
          return std::string(schedule_name(a.schedule)) + " " + std::to_string(a.micro_batches) + " x " +
                 std::to_string(a.rows) + ", r_w " + std::to_string(a.dense_share) + ", r_c " +
                 std::to_string(a.kv_share) + ", slots " + std::to_string(a.slots) + (a.ahead ? ", ahead" : "");
        };
        EXPECT_LE(choice.seconds(), 1.05 * best.seconds())
            << hardware.name << ", " << workload.sequences << " sequences: " << name(choice) << "; the grid: "
            << name(best);
        chosen += std::string(schedule_name(choice.arrangement.schedule)) + " ";
      }
  EXPECT_GT(tried, 1000);
  EXPECT_THAT(chosen, HasSubstr("expert-pipeline"));
  EXPECT_THAT(chosen, HasSubstr("layerwise")) << "no schedule is always the best";
}

TEST(ChooseSchedule, OnlyWhatWorkersRunIsToBeUsed) {
  const PlanInput in = input(kHardware[1], mixtral_sizes(), {.prompt = 512, .generate = 32, .sequences = 960});
  const auto search = search_schedules(in);
  ASSERT_TRUE(search.is_ok()) << search.status().message();
  EXPECT_EQ(search->options.size(), 3u);
  EXPECT_FALSE(search->options.front().runs) << "no GPU's worker runs it";
  const auto choice = choose_schedule(in);
  ASSERT_TRUE(choice.is_ok()) << choice.status().message();
  EXPECT_TRUE(choice->runs);
  EXPECT_TRUE(workers_run(choice->arrangement.schedule, in.memories.device));
  PlanInput pinned = in;
  pinned.schedule = ScheduleName::kCgo;
  EXPECT_EQ(choose_schedule(pinned).status().code(), Code::kUnsupported);
  const auto plan = make_plan(pinned);
  ASSERT_TRUE(plan.is_ok()) << "it can be forecast";
  EXPECT_EQ(plan->choice.arrangement.schedule, ScheduleName::kCgo);
  EXPECT_EQ(plan->search.options.size(), 1u);
}

TEST(ChooseSchedule, OneSequenceIsComputedLayerByLayer) {
  const auto choice = search_schedules(input(kHardware[2], mixtral_sizes(), {.prompt = 512, .generate = 32}));
  ASSERT_TRUE(choice.is_ok()) << choice.status().message();
  EXPECT_EQ(choice->options.front().arrangement.sequences(), 1);
  EXPECT_EQ(choice->options.front().arrangement.schedule, ScheduleName::kLayerwise);
}

TEST(ChooseSchedule, AsManySequencesRunAsFit) {
  PlanInput in =
      input(kHardware[1], mixtral_sizes(kSmallWeights), {.prompt = 512, .generate = 128, .sequences = 1000});
  in.schedule = ScheduleName::kLayerwise;
  in.memories.device_bytes = 8 * kGibi;
  const auto search = search_schedules(in);
  ASSERT_TRUE(search.is_ok()) << search.status().message();
  const ScheduleOption& all = search->options.front();
  Arrangement more = all.arrangement;
  EXPECT_GT(more.rows, 16);
  EXPECT_LT(more.rows, 100) << "640 positions of 128 KiB each";
  while (place(in, more).is_ok()) ++more.rows;
  EXPECT_EQ(place(in, more).status().code(), Code::kExhausted);
  // The cache in host memory: many more.
  in.schedule = ScheduleName::kExpertPipeline;
  const auto pipeline = search_schedules(in);
  ASSERT_TRUE(pipeline.is_ok()) << pipeline.status().message();
  EXPECT_GT(pipeline->options.front().arrangement.sequences(), 3 * all.arrangement.rows);
  EXPECT_LT(pipeline->options.front().seconds(), all.seconds());
}

TEST(ChooseSchedule, LayerwiseRunsNoMoreSequencesThanAWorkersStep) {
  PlanInput in = input(kHardware[3], mixtral_sizes(kSmallWeights), {.prompt = 512, .generate = 128, .sequences = 1000});
  in.schedule = ScheduleName::kLayerwise;
  ASSERT_TRUE(place(in, {.rows = 512}).is_ok());
  const auto search = search_schedules(in);
  ASSERT_TRUE(search.is_ok()) << search.status().message();
  EXPECT_LE(search->options.front().arrangement.rows, 256);
}

TEST(ChooseSchedule, SlotsAreNoMoreThanTheDeviceHasRoomFor) {
  PlanInput in = input(kHardware[1], mixtral_sizes(), {.prompt = 512, .generate = 32, .sequences = 960});
  in.schedule = ScheduleName::kExpertPipeline;
  for (const uint64_t gib : {9, 11, 13, 15}) {
    in.memories.device_bytes = gib * kGibi;
    const auto search = search_schedules(in);
    ASSERT_TRUE(search.is_ok()) << search.status().message();
    const ScheduleOption& choice = search->options.front();
    EXPECT_LE(choice.arrangement.slots, choice.placement.device_experts) << gib << " GiB";
  }
}

TEST(ChooseSchedule, EverySequenceOfAMicroBatchIsComputed) {
  PlanInput in = input(kHardware[3], mixtral_sizes(), {.prompt = 512, .generate = 32, .sequences = 10});
  in.rates = rates_of(/*bytes_per_s=*/1e18, /*operations_per_s=*/1e12);  // so that time is rows
  in.rates.link_bytes_per_s = in.rates.drive_bytes_per_s = 1e12;
  const auto seconds = [&](int64_t micro_batches, int64_t rows) {
    const auto option = forecast_arrangement(in, {ScheduleName::kExpertPipeline, micro_batches, rows, 1, 1, 8, true});
    EXPECT_TRUE(option.is_ok()) << option.status().message();
    return option.is_ok() ? option->decode.forecast.compute_seconds : 0;
  };
  EXPECT_GE(seconds(8, 2), 0.99 * seconds(10, 1)) << "10 sequences in 8 micro-batches";
}

TEST(ChooseSchedule, ADriveIsNeededIfTheLargestGroupLeavesNoRoomForExperts) {
  PlanInput in = input(kHardware[4], mixtral_sizes(), {.prompt = 512, .generate = 128, .sequences = 1});
  in.memories.host_bytes = 96 * kGibi;
  EXPECT_FALSE(may_need_drive(in));
  in.workload.sequences = 256;
  EXPECT_TRUE(may_need_drive(in));
  in.memories.arena_bytes = 90 * kGibi;  // enough for all weights, whatever the group
  EXPECT_FALSE(may_need_drive(in));
}

TEST(ChooseSchedule, WhatCannotFitOrBeForecastIsRefused) {
  PlanInput in = input(kHardware[1], mixtral_sizes(), {.sequences = 64});
  in.memories.device_bytes = kGibi;
  EXPECT_EQ(search_schedules(in).status().code(), Code::kExhausted);
  EXPECT_THAT(search_schedules(in).status().message(), HasSubstr("device memory of 1.00 GiB is too small; the least"));
  in = input(kHardware[1], mixtral_sizes(), {.sequences = 64});
  in.rates.host_bytes_per_s.reset();
  const auto search = search_schedules(in);
  ASSERT_TRUE(search.is_ok());
  ASSERT_EQ(search->left_out.size(), 1u);
  EXPECT_EQ(search->left_out[0].schedule, ScheduleName::kCgo);
  EXPECT_THAT(search->left_out[0].why, HasSubstr("host.memory_gbps"));
  in.schedule = ScheduleName::kCgo;
  EXPECT_EQ(search_schedules(in).status().code(), Code::kInvalidArgument);
  in = input(kHardware[4], mixtral_sizes(), {.sequences = 64});
  in.schedule = ScheduleName::kCgo;
  EXPECT_THAT(search_schedules(in).status().message(), HasSubstr("a device in addition"));
  in.schedule.reset(), in.rates.drive_bytes_per_s.reset();
  EXPECT_THAT(search_schedules(in).status().message(), HasSubstr("the drive's rate is missing"));
}

/// One micro-batch of the expert pipeline, everything on the device but experts, is what layerwise is with all experts
/// foreseen. So the two ways of forecasting can be compared with each other.
TEST(ChooseSchedule, ClosedFormAndVirtualLanesAgreeWhereTheyMeanTheSame) {
  for (const Hardware& hardware : kHardware) {
    PlanInput in = input(hardware, mixtral_sizes(), {.prompt = 256, .generate = 32, .sequences = 64});
    const auto layerwise = forecast_arrangement(in, {.rows = 32});
    // As many experts stay: closed forms know no slots that a schedule gives out.
    const int64_t slots = 2 * in.sizes.experts;
    if (hardware.link > 0) in.memories.device_bytes += static_cast<uint64_t>(slots) * in.sizes.expert_bytes;
    const auto lanes = forecast_arrangement(in, {ScheduleName::kExpertPipeline, 1, 32, 1, 1, slots, true});
    ASSERT_TRUE(layerwise.is_ok() && lanes.is_ok()) << layerwise.status().message() << lanes.status().message();
    EXPECT_NEAR(lanes->decode.forecast.seconds / layerwise->decode.forecast.seconds, 1, 0.12) << hardware.name;
    EXPECT_NEAR(lanes->prompt.forecast.seconds / layerwise->prompt.forecast.seconds, 1, 0.12) << hardware.name;
  }
}

/// An emulated device with a quarter of the experts, and room for the KV cache of 16 sequences.
PlanInput emulated(bool counts_kv, int64_t sequences) {
  PlanInput in = input(kHardware[1], mixtral_sizes(), {.prompt = 256, .generate = 128, .sequences = sequences});
  in.memories.device = Memories::Device::kExpertsOnly, in.memories.counts_kv = counts_kv;
  in.memories.device_bytes = in.sizes.experts_bytes() / 4 + in.sizes.kv_bytes(16, 384);
  in.memories.host_bytes = 400 * kGibi;
  in.rates.host_bytes_per_s.reset();
  return in;
}

TEST(ChooseSchedule, WorkersRunWhatIsChosen) {
  const PlanInput in = emulated(/*counts_kv=*/true, 256);
  const auto search = search_schedules(in);
  ASSERT_TRUE(search.is_ok()) << search.status().message();
  const ScheduleOption* const choice = chosen(*search);
  ASSERT_NE(choice, nullptr);
  EXPECT_NE(choice->arrangement.schedule, ScheduleName::kLayerwise);
  EXPECT_LT(choice->arrangement.kv_share, 1) << "its home is host memory";
  EXPECT_GE(choice->arrangement.rows, 16) << "which workers do not cut further";
  EXPECT_GT(choice->placement.device_experts, 0);
  const auto picked = choose_schedule(in);
  ASSERT_TRUE(picked.is_ok());
  EXPECT_EQ(picked->seconds(), choice->seconds());
}

TEST(ChooseSchedule, WorkersRunCgoWhereTheHostAttendsBesideAnEmulatedDevice) {
  PlanInput in = emulated(/*counts_kv=*/true, 256);
  in.schedule = ScheduleName::kCgo;
  const auto cgo = choose_schedule(in);
  ASSERT_TRUE(cgo.is_ok()) << cgo.status().message();
  EXPECT_TRUE(cgo->runs);
  EXPECT_EQ(cgo->arrangement.dense_share, 1) << "dense weights stay";
  EXPECT_EQ(cgo->arrangement.kv_share, 0) << "the host has all of the cache";
  EXPECT_GT(cgo->decode.forecast.host_seconds, 0);
  EXPECT_GT(cgo->decode.forecast.link_out_seconds, 0);
  EXPECT_EQ(cgo->prompt.forecast.host_seconds, 0) << "prompts run the expert pipeline";
  // Less crosses the link than with the pipeline, whose KV does.
  Arrangement pipeline = cgo->arrangement;
  pipeline.schedule = ScheduleName::kExpertPipeline;
  const auto moved = forecast_arrangement(in, pipeline);
  ASSERT_TRUE(moved.is_ok()) << moved.status().message();
  EXPECT_LT(cgo->decode.forecast.link_bytes, moved->decode.forecast.link_bytes);
  EXPECT_EQ(cgo->placement.device_experts, moved->placement.device_experts) << "places are for the prompts of both";

  const auto why = [](PlanInput other) {
    other.schedule = ScheduleName::kCgo;
    return search_schedules(other).status().message();
  };
  EXPECT_THAT(why(emulated(/*counts_kv=*/false, 256)), HasSubstr("--schedule cgo: the KV cache takes none"));
  in.no_host_attention = "the host does not attend with latent attention (MLA)";
  EXPECT_THAT(why(in), HasSubstr("--schedule cgo: the host does not attend with latent attention (MLA)"));
  in.kv_moves = false;
  EXPECT_THAT(why(in), HasSubstr("--schedule cgo: the home of the KV cache is the device"));
}

/// What the closed form leaves out is queues and order.
TEST(ChooseSchedule, ClosedFormAndVirtualLanesOfCgoOnAWorkersDeviceAreAlike) {
  const PlanInput in = emulated(/*counts_kv=*/true, 256);
  for (const int64_t micro_batches : {2, 4, 8}) {
    const Arrangement a{ScheduleName::kCgo, micro_batches, 256 / micro_batches, 1, 0, 0, true};
    const auto lanes = forecast_arrangement(in, a);
    ASSERT_TRUE(lanes.is_ok()) << lanes.status().message();
    const PhaseSteps steps = decode_steps(in.workload, a);
    const double closed = forecast_group(in, a, lanes->placement, steps).seconds;
    EXPECT_NEAR(lanes->decode.forecast.seconds / closed, 1, 0.25) << micro_batches;
  }
}

/// A worker's device whose memory has dense weights too, and of their layers at most this share.
PlanInput with_dense(double share, int64_t sequences) {
  PlanInput in = emulated(/*counts_kv=*/true, sequences);
  for (const LayerSizes& layer : in.sizes.layers)
    in.needs.dense_layer_bytes.push_back(static_cast<uint64_t>(layer_dense_bytes(in.sizes, layer)));
  in.memories.counts_dense = true, in.memories.dense_share = share;
  in.memories.device_bytes += in.needs.dense_bytes;
  return in;
}

TEST(ChooseSchedule, DenseWeightsThatTakeTurnsCrossTheLinkOnceAStep) {
  for (const ScheduleName schedule : {ScheduleName::kLayerwise, ScheduleName::kExpertPipeline}) {
    const Arrangement a{schedule, schedule == ScheduleName::kLayerwise ? 1 : 4, 16, 1, 1, 0, true};
    PlanInput all = with_dense(1, 64), none = with_dense(0, 64);
    // As many experts have room in both.
    const auto whole = forecast_arrangement(all, a), before = forecast_arrangement(none, a);
    ASSERT_TRUE(whole.is_ok() && before.is_ok()) << whole.status().message() << before.status().message();
    none.memories.device_bytes -= static_cast<uint64_t>(before->placement.device_experts -
                                                        whole->placement.device_experts) * none.sizes.expert_bytes;
    const auto turns = forecast_arrangement(none, a);
    ASSERT_TRUE(turns.is_ok()) << turns.status().message();
    ASSERT_EQ(turns->placement.device_experts, whole->placement.device_experts);
    EXPECT_EQ(whole->arrangement.dense_share, 1);
    EXPECT_EQ(turns->arrangement.dense_share, 0);
    EXPECT_EQ(turns->placement.streamed_layers, none.sizes.layers.size());
    const double bytes = static_cast<double>(turns->placement.streamed_bytes);
    EXPECT_NEAR(turns->decode.forecast.link_bytes - whole->decode.forecast.link_bytes, bytes, 0.01 * bytes);
    EXPECT_GE(turns->decode.forecast.seconds, whole->decode.forecast.seconds);
    EXPECT_GE(turns->decode.forecast.seconds, 0.99 * turns->decode.forecast.link_bytes / *none.rates.link_bytes_per_s);
  }
}

/// One copy of a layer serves all micro-batches, and comes while the layer before computes.
TEST(ChooseSchedule, ManySequencesHideDenseWeightsThatTakeTurns) {
  const auto seconds = [](double share, int64_t rows) {
    PlanInput in = with_dense(share, 4 * rows);
    in.memories.device_bytes += in.sizes.experts_bytes() + in.needs.dense_bytes + (uint64_t{64} << 30);
    *in.rates.link_bytes_per_s /= 4;
    const auto option = forecast_arrangement(in, {ScheduleName::kExpertPipeline, 4, rows, 1, 1, 0, true});
    EXPECT_TRUE(option.is_ok()) << option.status().message();
    EXPECT_EQ(option->placement.device_experts, option->placement.experts);
    return option.is_ok() ? option->decode.forecast.seconds : 0;
  };
  EXPECT_GT(seconds(0, 1) / seconds(1, 1), 1.4);
  EXPECT_LT(seconds(0, 128) / seconds(1, 128), 1.1);
}

TEST(ChooseSchedule, CgoDoesNotKnowOfDenseWeightsThatTakeTurns) {
  PlanInput in = with_dense(0.5, 256);
  in.schedule = ScheduleName::kCgo;
  EXPECT_THAT(search_schedules(in).status().message(), HasSubstr("dense weights take turns in the device's memory"));
  in.memories.dense_share = 1;
  EXPECT_TRUE(search_schedules(in).is_ok()) << search_schedules(in).status().message();
}

TEST(ChooseSchedule, WhatTakesNoMemoryIsNotMoved) {
  const auto search = search_schedules(emulated(/*counts_kv=*/false, 256));
  ASSERT_TRUE(search.is_ok()) << search.status().message();
  for (const ScheduleOption& option : search->options) EXPECT_EQ(option.arrangement.kv_share, 1);
}

TEST(ChooseSchedule, NothingMovesWhereKvMayNot) {
  PlanInput in = emulated(/*counts_kv=*/true, 256);
  in.kv_moves = false;
  const auto search = search_schedules(in);
  ASSERT_TRUE(search.is_ok()) << search.status().message();
  EXPECT_GT(search->candidates, 1);
  for (const ScheduleOption& option : search->options) EXPECT_EQ(option.arrangement.kv_share, 1);
}

TEST(ChooseSchedule, StatesAreOfTheSequencesThatRunAtOnce) {
  PlanInput in = emulated(/*counts_kv=*/true, 256);
  in.sizes.state_bytes = 1 << 20;
  const Needs needs = needs_of(in, {.rows = 16}), moved = needs_of(in, {ScheduleName::kExpertPipeline, 2, 16, 1, 0.5});
  EXPECT_EQ(needs.state_bytes, uint64_t{16} << 20);
  EXPECT_EQ(needs.kv_bytes, in.sizes.kv_bytes(16, 384)) << "by themselves";
  EXPECT_EQ(moved.state_bytes, uint64_t{32} << 20) << "they stay";
}

TEST(ChooseSchedule, OneSequenceIsLayerwise) {
  for (const bool counts_kv : {false, true}) {
    const auto choice = choose_schedule(emulated(counts_kv, 1));
    ASSERT_TRUE(choice.is_ok()) << choice.status().message();
    EXPECT_EQ(choice->arrangement.schedule, ScheduleName::kLayerwise);
  }
}

TEST(ChooseSchedule, AStepHasNoMoreTokensThanItMay) {
  PlanInput in = emulated(/*counts_kv=*/true, 256);
  in.workload.step_tokens = 1024;
  const Arrangement a{ScheduleName::kExpertPipeline, 4, 64, 1, 0, 0, true};
  EXPECT_EQ(prompt_steps(in.workload, a).all.rows, 4096) << "as many for each micro-batch";
  EXPECT_EQ(prompt_steps(in.workload, a).micro_batches, 4);
  in.workload.steps_grow = false;
  EXPECT_EQ(prompt_steps(in.workload, a).all.rows, 1024);
  EXPECT_EQ(prompt_steps(in.workload, a).micro_batches, 4) << "of 256 tokens: a prompt each";
  in.workload.step_tokens = 512;
  EXPECT_EQ(prompt_steps(in.workload, a).micro_batches, 2) << "a prompt is not cut";
  in.workload.step_tokens = 100;
  EXPECT_EQ(decode_steps(in.workload, a).all.rows, 100);
  EXPECT_EQ(needs_of(in, a).workspace_bytes, in.needs.workspace_bytes);
  in.workload.steps_grow = true;
  EXPECT_EQ(needs_of(in, a).workspace_bytes, 4 * in.needs.workspace_bytes) << "buffers for all rows";
  in.needs.pipeline_workspace_bytes = 3 * in.needs.workspace_bytes;
  EXPECT_EQ(needs_of(in, a).workspace_bytes, 12 * in.needs.workspace_bytes) << "and logits";
  EXPECT_EQ(needs_of(in, {.rows = 64}).workspace_bytes, in.needs.workspace_bytes);
}

/// Steps follow each other: what comes for the next one's first layer comes while the last one computes.
TEST(ChooseSchedule, FewLayersTakeTheirShareOfMany) {
  PlanInput in = emulated(/*counts_kv=*/true, 128);
  const Arrangement a{ScheduleName::kExpertPipeline, 4, 32, 1, 0, 0, true};
  const auto seconds = [&](size_t layers) {
    PlanInput some = in;
    some.sizes.layers.resize(layers), some.sizes.moe_layers = static_cast<int64_t>(layers);
    some.needs.experts = some.sizes.all_experts();
    some.memories.device_bytes = in.memories.device_bytes * layers / in.sizes.layers.size() + (uint64_t{1} << 30);
    const auto option = forecast_arrangement(some, a);
    EXPECT_TRUE(option.is_ok()) << option.status().message();
    return option.is_ok() ? option->decode.forecast.seconds - option->decode.forecast.head_seconds : 0;
  };
  EXPECT_NEAR(seconds(4) / seconds(8), 0.5, 0.05);
}

TEST(ChooseSchedule, APhaseHasTheRoomForTheExpertsOfItsStack) {
  PlanInput in;
  in.sizes = two_stacks(), in.rates = rates_of(100e9, 1e12);
  in.rates.link_bytes_per_s = 1e9;
  in.workload = {.prompt = 64, .generate = 8, .sequences = 4, .sources = true};
  in.needs = {.dense_bytes = in.sizes.dense_bytes, .expert_bytes = in.sizes.expert_bytes,
              .slot_bytes = in.sizes.expert_bytes, .experts = in.sizes.all_experts()};
  in.memories = {.device = Memories::Device::kExpertsOnly, .host_bytes = uint64_t{1} << 30};
  ASSERT_EQ(in.sizes.experts_on_the_way(true), 8);
  ASSERT_EQ(in.sizes.experts_on_the_way(false), 8);
  for (const uint64_t slots : {4, 8}) {
    in.memories.device_bytes = slots * in.sizes.expert_bytes;
    const auto option = forecast_arrangement(in, {.rows = 4});
    ASSERT_TRUE(option.is_ok()) << option.status().message();
    EXPECT_EQ(option->prompt.forecast.link_bytes > 0, slots < 8);
    EXPECT_EQ(option->decode.forecast.link_bytes > 0, slots < 8);
  }
}

TEST(ChooseSchedule, TakesLessThanASecondFor94LayersOf128Experts) {
  const PlanInput in =
      input(kHardware[1], large_sizes(kSmallWeights), {.prompt = 512, .generate = 128, .sequences = 2000});
  const auto begin = std::chrono::steady_clock::now();
  const auto plan = make_plan(in);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  std::printf("%lld candidates and what would help, in %.2f s\n", static_cast<long long>(plan->search.candidates),
              seconds);
  EXPECT_LT(seconds, 1);
  EXPECT_GT(plan->search.candidates, 1000);
}

}  // namespace
}  // namespace moestro::planner
