#pragma once
// A memory that experts are brought to before they are used: a device's own (device_experts.h), or host memory
// (host_outlook.h). Foresight tells it what a step does and what is likely next.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/prediction/forecast.h"
#include "common/tier/device_tier.h"
#include "services/worker/device/expert_link.h"

namespace moestro::device {

/// All calls come from the engine's thread, layer after layer.
class ExpertTier {
 public:
  virtual ~ExpertTier() = default;

  virtual int32_t layers() const = 0;   ///< MoE layers
  virtual int32_t experts() const = 0;  ///< of a layer
  /// Whether it has room for every expert: then nothing is foreseen once all of them are there.
  virtual bool fits_all() const = 0;

  /// `scan`: most of its tokens belong to prompts. Returns a count that grows with everything that is brought.
  virtual uint64_t begin_step(PlanId plan, bool scan) = 0;
  /// A step that had begun goes on after `layer` (-1: before the first), when another has come between.
  virtual void resume_step(PlanId plan, bool scan, int32_t /*layer*/) { (void)begin_step(plan, scan); }
  /// A new sequence; `running`: the number of sequences, including it.
  virtual void sequence_began(int32_t /*running*/) {}
  /// The experts of `layer` that the step's routers have chosen, each once. The source of the engine has been told of
  /// them. False if one was missing: of this layer, or, where that is known only afterwards, of those since the
  /// previous call.
  virtual bool routed(MoeLayerId layer, std::span<const tier::DeviceTier::Wanted> wanted) = 0;
  /// What is likely next; `layer` -1: before the first. Returns whether anything is likely enough to be acted on.
  virtual bool forecast(int32_t layer, const prediction::Forecast& forecast) = 0;
  /// There are no forecasts for now.
  virtual void unforeseen() = 0;
  /// The step has failed. What it needed, the source of the engine has been told (BlobSource::cancel_fetches).
  virtual void abandon() {}

  // For the timeline.

  /// What has been brought since the last call.
  virtual void take_copied(std::vector<Copied>& /*out*/) {}
  struct Late {
    LateCause cause = LateCause::kNotForeseen;
    bool from_drive = false;  ///< host memory did not have it either
  };
  /// Why the expert was not there when routed() last named it, and it was not.
  virtual Late why_late(tier::Key key) const = 0;
  /// How many copies of the expert have ended. 0: nothing copies it.
  virtual uint32_t copies(tier::Key /*key*/) { return 0; }
};

}  // namespace moestro::device
