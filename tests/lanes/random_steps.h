#pragma once
// Random models, steps and routes for tests of schedules.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "common/lanes/virtual_driver.h"

namespace moestro::lanes::testing {

constexpr int32_t kModelExperts = 8;

/// The same choices whenever they are asked for. Some experts are chosen more often than others.
class RandomRoutes final : public VirtualRouter, public ExpertOutlook {
 public:
  RandomRoutes(uint32_t seed, const std::vector<MicroBatchShape>& micro_batches, int32_t ahead, bool some_resident,
               bool coldest = false)
      : seed_(seed), micro_batches_(micro_batches), ahead_(ahead), some_resident_(some_resident), coldest_(coldest) {}

  std::span<const RoutedExpert> choose(int32_t layer, int32_t micro_batch) override {
    std::minstd_rand random(mixed(layer, micro_batch));
    routed_.clear();
    for (int32_t e = 0; e < kModelExperts; ++e) {
      const auto rows = static_cast<int32_t>(random() % 4 / (1 + heat(layer, e) / 4)) *
                        static_cast<int32_t>(micro_batches_[static_cast<size_t>(micro_batch)].tokens);
      if (rows > 0 || (e + 1 == kModelExperts && routed_.empty())) routed_.push_back({e, std::max(rows, 1)});
    }
    return routed_;
  }
  bool is_resident(int32_t layer, int32_t expert) const override {
    return some_resident_ && mixed(layer, 100 + expert) % 4 == 0;
  }
  std::span<const int32_t> foreseen(int32_t layer) override {
    foreseen_.resize(kModelExperts);
    for (int32_t e = 0; e < kModelExperts; ++e) foreseen_[static_cast<size_t>(heat(layer, e))] = e;
    if (coldest_) std::ranges::reverse(foreseen_);
    return std::span(foreseen_).first(static_cast<size_t>(ahead_));
  }

 private:
  uint32_t mixed(int32_t layer, int32_t what) const {
    return (seed_ * 7919U + static_cast<uint32_t>(layer) * 104729U + static_cast<uint32_t>(what) * 1299709U) % 1000003U;
  }
  /// 0: the hottest.
  static int32_t heat(int32_t layer, int32_t expert) { return (expert * 3 + layer) % kModelExperts; }

  const uint32_t seed_;
  const std::vector<MicroBatchShape>& micro_batches_;
  const int32_t ahead_;
  const bool some_resident_;
  const bool coldest_;  ///< what is foreseen is what is chosen least
  std::vector<RoutedExpert> routed_;
  std::vector<int32_t> foreseen_;
};

struct RandomStep {
  explicit RandomStep(uint32_t seed) : random(seed) {
    const auto between = [this](uint32_t low, uint32_t high) { return low + random() % (high - low + 1); };
    for (uint32_t l = between(1, 5); l > 0; --l) {
      LayerShape& layer = model.layers.emplace_back();
      layer.sparse = random() % 4 != 0;
      layer.attention_parameters = between(1, 50), layer.attention_weight_bytes = 2 * layer.attention_parameters;
      layer.output_parameters = layer.attention_parameters / 3;
      layer.attention_flops_per_position = between(1, 8), layer.kv_bytes_per_token = between(1, 8);
      layer.qkv_bytes_per_token = between(1, 8), layer.attended_bytes_per_token = between(1, 8);
      layer.router_parameters = layer.router_weight_bytes = 1;
      if (!layer.sparse) layer.dense_parameters = layer.dense_weight_bytes = between(20, 200);
      else layer.experts = kModelExperts;
      if (layer.sparse && random() % 2 == 0) layer.shared_parameters = layer.shared_weight_bytes = between(5, 50);
      layer.expert_parameters = layer.expert_bytes = between(20, 200);
    }
    for (uint32_t b = between(1, 6); b > 0; --b) {
      const int64_t tokens = between(1, 5), cached = random() % 3 == 0 ? 0 : between(1, 12);
      micro_batches.push_back({tokens, tokens * (cached + 1), cached});
      step.tokens += tokens, step.context += tokens * (cached + 1);
    }
    step.logit_rows = random() % 2;
    step.micro_batches = micro_batches;
  }

  LaneRates rates() {
    LaneRates rates;
    for (auto& rate : rates)
      rate = LaneRate{.flops_per_s = 1e9 * (1 + random() % 20),
                      .bytes_per_s = 1e9 * (1 + random() % 20),
                      .overhead = Nanos(random() % 3),
                      .interrupts = random() % 2 == 0};
    return rates;
  }

  std::minstd_rand random;
  ModelShape model;
  std::vector<MicroBatchShape> micro_batches;
  StepShape step;
};

}  // namespace moestro::lanes::testing
