#include "common/planner/virtual_run.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace moestro::planner {
namespace {

constexpr double kRounding = 1e-9;    ///< of sums of shares that are whole numbers
constexpr int64_t kDrawnRows = 256;  ///< with more rows, every expert has close to its share

/// One step after another.
class GroupRun {
 public:
  GroupRun(const GroupWorkload& work, const lanes::LaneRates& rates, EvenRoutes& routes, lanes::Timeline* timeline)
      : work_(work), driver_(rates), routes_(routes), timeline_(timeline) {}

  /// Each sequence has `rows` rows after `cached` positions. Returns its seconds.
  Result<double> step(lanes::StepMachine& machine, int64_t rows, int64_t cached) {
    const int64_t s = work_.sequences, context = rows * cached + rows * (rows + 1) / 2;
    micro_batches_.assign(static_cast<size_t>(work_.micro_batches), {s * rows, s * context, s * cached});
    routes_.set_rows(s * rows);
    machine.begin({.tokens = work_.micro_batches * s * rows,
                   .context = work_.micro_batches * s * context,
                   .logit_rows = work_.micro_batches * s,
                   .micro_batches = micro_batches_});
    if (timeline_ != nullptr) timeline_->begin_step(++plan_);
    MOESTRO_ASSIGN_OR_RETURN(const lanes::ExecutionTotals totals, driver_.run(machine, routes_, timeline_));
    if (timeline_ != nullptr) timeline_->end_step();
    for (int lane = 0; lane < lanes::kLaneCount; ++lane) busy_[lane] += totals.busy[lane];
    return seconds_of(totals.elapsed);
  }
  Nanos busy(int lane) const { return busy_[lane]; }

 private:
  const GroupWorkload& work_;
  lanes::VirtualDriver driver_;
  EvenRoutes& routes_;
  lanes::Timeline* timeline_;
  std::vector<lanes::MicroBatchShape> micro_batches_;
  Nanos busy_[lanes::kLaneCount] = {};
  uint64_t plan_ = 0;
};

}  // namespace

lanes::ModelShape model_shape(const ModelSizes& sizes, double hidden_bytes) {
  lanes::ModelShape shape{.layers = {},
                          .embed_bytes_per_token = hidden_bytes * static_cast<double>(sizes.hidden),
                          .head_parameters = sizes.head_parameters,
                          .head_weight_bytes = sizes.weight_bytes(sizes.head_parameters)};
  for (const LayerSizes& from : sizes.layers) {
    lanes::LayerShape layer;
    layer.sparse = from.sparse;
    layer.attention_parameters = from.attention_parameters;
    layer.attention_weight_bytes = sizes.weight_bytes(from.attention_parameters);
    layer.attention_flops_per_position = from.pair_operations;
    layer.output_parameters = from.output_width * static_cast<double>(sizes.hidden);
    layer.qkv_bytes_per_token =
        hidden_bytes * (from.attention_parameters / static_cast<double>(sizes.hidden) - from.output_width);
    layer.attended_bytes_per_token = hidden_bytes * from.output_width;
    layer.kv_bytes_per_token = from.kv_bytes_per_token;
    double& mlp = from.sparse ? layer.shared_parameters : layer.dense_parameters;
    double& mlp_bytes = from.sparse ? layer.shared_weight_bytes : layer.dense_weight_bytes;
    mlp = from.mlp_parameters, mlp_bytes = sizes.weight_bytes(from.mlp_parameters);
    if (from.sparse) {
      layer.router_parameters = from.router_parameters;
      layer.router_weight_bytes = 4 * from.router_parameters;
      layer.experts = static_cast<int32_t>(sizes.experts);
      layer.expert_parameters = sizes.expert_parameters;
      layer.expert_bytes = static_cast<double>(sizes.expert_bytes);
    }
    shape.layers.push_back(layer);
  }
  return shape;
}

EvenRoutes::EvenRoutes(int64_t experts, int64_t top_k, int32_t ahead, uint32_t seed)
    : top_k_(top_k), ahead_(static_cast<size_t>(std::clamp<int64_t>(ahead, 0, experts))), state_(seed) {
  numbers_.resize(static_cast<size_t>(experts));
  std::iota(numbers_.begin(), numbers_.end(), 0);
  drawn_ = numbers_;
  count_.resize(numbers_.size());
}

bool EvenRoutes::is_resident(int32_t layer, int32_t expert) const {
  const auto up_to = [&](int32_t layers) { return std::floor(resident_ * layers + kRounding); };
  return expert < up_to(layer + 1) - up_to(layer);
}

std::span<const lanes::RoutedExpert> EvenRoutes::choose(int32_t, int32_t) {
  const auto experts = static_cast<int64_t>(numbers_.size());
  routed_.clear();
  if (rows_ > kDrawnRows) {
    const auto each = static_cast<int32_t>((rows_ * top_k_ + experts / 2) / experts);
    for (const int32_t expert : numbers_) routed_.push_back({expert, std::max(each, 1)});
    return routed_;
  }
  std::ranges::fill(count_, 0);
  std::minstd_rand random(static_cast<uint32_t>(state_ = (state_ * 48271 + 11) % 2147483647));
  for (int64_t row = 0; row < rows_; ++row)
    for (int64_t i = 0; i < top_k_; ++i) {
      const auto left = static_cast<uint64_t>(experts - i);
      std::swap(drawn_[static_cast<size_t>(i)], drawn_[static_cast<size_t>(i) + random() % left]);
      ++count_[static_cast<size_t>(drawn_[static_cast<size_t>(i)])];
    }
  for (const int32_t expert : numbers_)
    if (const int32_t rows = count_[static_cast<size_t>(expert)]; rows > 0) routed_.push_back({expert, rows});
  return routed_;
}

Result<VirtualRun> run_virtually(const GroupWorkload& work, const lanes::LaneRates& rates, lanes::Schedule& prompt,
                                 lanes::Schedule& decode, EvenRoutes& routes, lanes::Timeline* timeline) {
  if (std::min({work.prompt, work.generate, work.sequences, work.micro_batches}) < 1)
    return invalid_argument("prompt, generate, sequences and micro_batches are at least 1");
  lanes::StepMachine prompts(prompt, lanes::kVirtualLanes), decodes(decode, lanes::kVirtualLanes);
  GroupRun group(work, rates, routes, timeline);
  VirtualRun run;
  MOESTRO_ASSIGN_OR_RETURN(run.prompt_seconds, group.step(prompts, work.prompt, 0));
  for (int64_t made = 1; made < work.generate; ++made) {
    MOESTRO_ASSIGN_OR_RETURN(const double seconds, group.step(decodes, 1, work.prompt + made - 1));
    run.decode_seconds += seconds;
  }
  run.tokens = work.generate * work.sequences * work.micro_batches;
  for (int lane = 0; lane < lanes::kLaneCount; ++lane) run.busy_seconds[lane] = seconds_of(group.busy(lane));
  return run;
}

}  // namespace moestro::planner
