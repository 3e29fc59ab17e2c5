#pragma once
// The time of a whole run by the machine that runs steps, on lanes that have only rates. Slower than the closed form of
// forecast.h. It is for schedules whose queues and order decide, and for comparing them.

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "common/lanes/virtual_driver.h"
#include "common/planner/model_sizes.h"

namespace moestro::planner {

inline double seconds_of(Nanos time) { return std::chrono::duration<double>(time).count(); }

/// A model as schedules see it. `hidden_bytes`: of a number in hidden states.
lanes::ModelShape model_shape(const ModelSizes& sizes, double hidden_bytes = 2);

/// Experts as even routing chooses them: drawn where a micro-batch has few rows, else each has its share. Equal seeds
/// give equal choices. No expert is resident unless keep_resident() says so.
class EvenRoutes final : public lanes::VirtualRouter, public lanes::ExpertOutlook {
 public:
  /// `ahead`: experts of each layer that are brought before its routers choose.
  EvenRoutes(int64_t experts, int64_t top_k, int32_t ahead, uint32_t seed = 1);
  /// Rows of each micro-batch from now on.
  void set_rows(int64_t rows) { rows_ = rows; }
  /// So many experts of each layer on average are resident, as evenly over the layers as whole experts allow.
  void keep_resident(double each_layer) { resident_ = each_layer; }

  std::span<const lanes::RoutedExpert> choose(int32_t layer, int32_t micro_batch) override;
  bool is_resident(int32_t layer, int32_t expert) const override;
  std::span<const int32_t> foreseen(int32_t) override { return {numbers_.data(), ahead_}; }

 private:
  const int64_t top_k_;
  const size_t ahead_;
  uint64_t state_;
  int64_t rows_ = 1;
  double resident_ = 0;
  std::vector<int32_t> numbers_;  ///< of all experts, ascending
  std::vector<int32_t> drawn_, count_;
  std::vector<lanes::RoutedExpert> routed_;
};

/// A group of micro-batches whose sequences begin and end together.
struct GroupWorkload {
  int64_t prompt = 512, generate = 32;  ///< tokens of each sequence
  int64_t sequences = 1;                ///< of a micro-batch
  int64_t micro_batches = 1;
};

struct VirtualRun {
  double prompt_seconds = 0;       ///< all prompts are one step, which also generates the first token
  double decode_seconds = 0;
  int64_t tokens = 0;              ///< generated
  double busy_seconds[lanes::kLaneCount] = {};
  double seconds() const { return prompt_seconds + decode_seconds; }
  double tokens_per_s() const { return seconds() > 0 ? static_cast<double>(tokens) / seconds() : 0; }
};

/// Runs the group's prompts by one schedule and its decoding by another (or the same). kUnsupported: a schedule has
/// tasks on a lane without a rate. kInvalidArgument: a count is below 1. `timeline` may be null; each step is a plan.
Result<VirtualRun> run_virtually(const GroupWorkload& work, const lanes::LaneRates& rates, lanes::Schedule& prompt,
                                 lanes::Schedule& decode, EvenRoutes& routes, lanes::Timeline* timeline);

}  // namespace moestro::planner
