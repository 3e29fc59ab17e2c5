#pragma once
// The time of a step under the layerwise schedule, in closed form: a roofline over memories. Every layer computes
// attention, then its router, then its experts, those that are there first. Meanwhile link and drive bring the experts
// that are missing. After the hierarchical roofline of MoE-Lightning, with the order of this schedule.

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/planner/layer_times.h"
#include "common/planner/model_sizes.h"
#include "common/planner/rates.h"

namespace moestro::planner {

/// Where the experts of a step are found.
struct Residency {
  bool device_memory = false;  ///< the device has a memory of its own, behind the link
  double device_share = 1;     ///< of the experts that a step uses, those in it
  double host_share = 1;       ///< of those that are not, the ones in host memory
  double streamed_bytes = 0;   ///< of dense weights that take turns in a memory: what each step reads
  double streamed_layers = 0;  ///< that they are of
  bool streamed_by_link = false;  ///< to the device's memory; false: to host memory, from the drive
  bool prefetch = true;
  /// Of the missing experts, those that are foreseen early enough to be brought during the layers before. nullopt: as
  /// many as are certain under even routing, which is the share of all experts that the step uses.
  std::optional<double> foreseen = {};
};

enum class Lane : uint8_t {
  kCompute,
  kLink,     ///< host memory to device
  kDrive,
  kLinkOut,  ///< device to host memory
  kHost,     ///< the host's processor, where it attends beside a device
};
inline constexpr Lane kLanes[] = {Lane::kCompute, Lane::kLink, Lane::kDrive, Lane::kLinkOut, Lane::kHost};
std::string_view lane_name(Lane lane);  ///< "compute", "link", "drive", "link out", "host"

struct StepForecast {
  double seconds = 0;
  double least_seconds = 0;  ///< if every missing expert were foreseen
  double most_seconds = 0;   ///< if none were
  /// For which each lane is busy.
  double compute_seconds = 0, link_seconds = 0, drive_seconds = 0, link_out_seconds = 0, host_seconds = 0;
  double attention_seconds = 0, expert_seconds = 0, head_seconds = 0;  ///< parts of compute_seconds
  double reading_seconds = 0;  ///< the part of compute_seconds that reading weights and KV cache once takes
  double experts_used = 0;     ///< of a layer, by at least one row
  double link_bytes = 0, drive_bytes = 0;

  Lane bound() const;  ///< the busiest lane
  double busy(Lane lane) const;
  /// Share of the time in which the lane has nothing to do.
  double idle(Lane lane) const { return seconds > 0 ? 1 - busy(lane) / seconds : 0; }
  /// Of the computing, most is reading weights and cache from memory.
  bool reads_bound() const { return reading_seconds >= compute_seconds / 2; }
};

/// Adds the head to a step that has its layers.
void add_head(StepForecast& forecast, const ModelSizes& sizes, const Rates& rates, const Step& step);

/// With an encoder, a step of prompts goes through its layers, and leaves a memory for the decoder's; any other goes
/// through the decoder's. The drive's rate must be there if experts are missing in host memory, and the link's if the
/// device has a memory.
StepForecast forecast_step(const ModelSizes& sizes, const Rates& rates, const Residency& residency, const Step& step);

}  // namespace moestro::planner
