#pragma once
// How long the tasks of a step take whose rows are cut into micro-batches, for the closed form and for virtual lanes.

#include "common/lanes/virtual_driver.h"
#include "common/planner/arrangement.h"

namespace moestro::planner {

/// Of one phase of a plan. What it is made of outlives it.
class GroupTimes final : public lanes::TaskTimes {
 public:
  GroupTimes(const PlanInput& input, const Arrangement& arrangement, const Placement& placement,
             const PhaseSteps& steps);

  Nanos duration(const lanes::Task& task) const override;
  /// The lanes that the machine has.
  lanes::LaneRates lanes() const;

  // Seconds.
  double attention(const LayerSizes& layer) const { return attention_time(layer, rates_, steps_.micro).seconds; }
  double router(const LayerSizes& layer) const { return router_time(layer, rates_, steps_.micro.rows).seconds; }
  double mlp(const LayerSizes& layer, double rows) const { return mlp_time(layer, rates_, rows).seconds; }
  double qkv(const LayerSizes& layer) const;     ///< cgo: before the host attends
  double output(const LayerSizes& layer) const;  ///< cgo: after it has
  double attend(const LayerSizes& layer) const;  ///< cgo: on the host. Beside an emulated device, this machine's
  double expert(double rows) const { return expert_seconds(sizes_, rates_, rows); }
  double around_experts() const { return planner::around_experts(rates_); }
  double read() const { return read_; }          ///< of an expert that the device lacks, if nothing else is read
  double drive_read() const { return drive_read_; }    ///< of it, the time for which the drive is busy, on average
  double drive_bytes() const { return drive_bytes_; }  ///< of it, what comes from the drive, on average
  double link(double bytes) const;               ///< of a copy

  /// Experts of a layer that stay where they are computed, on average.
  double resident() const { return resident_; }
  int64_t slots() const { return slots_; }       ///< for the others
  /// Of a layer's experts, those that come before its routers have chosen, on average: all of them where the schedule
  /// says so, and where the device decides, what is used and foreseen.
  double ahead() const { return ahead_; }
  double hidden_bytes() const { return device_decides() ? 4 : 2; }  ///< of a number that attention takes or gives
  /// cgo: of a layer's bytes, what a step brings, of a device that decides which experts it holds.
  double missing_bytes(const LayerSizes& layer) const;
  /// Workers' devices decide which experts they hold, and how many layers' dense weights.
  bool device_decides() const { return in_.memories.device != Memories::Device::kWhole; }
  bool has_link() const { return in_.memories.device != Memories::Device::kHost; }

 private:
  const PlanInput& in_;
  const ModelSizes& sizes_;
  const Rates& rates_;
  const PhaseSteps& steps_;
  double resident_ = 0, ahead_ = 0, read_ = 0, drive_read_ = 0, drive_bytes_ = 0;
  int64_t slots_ = 1;
};

/// A step in closed form: the longest lane of each layer, or what a layer has to wait for. For expert-pipeline and cgo;
/// prompts of cgo are computed by the expert pipeline with layers ahead.
StepForecast forecast_group(const PlanInput& input, const Arrangement& arrangement, const Placement& placement,
                            const PhaseSteps& steps);

}  // namespace moestro::planner
