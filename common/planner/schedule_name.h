#pragma once
// The schedules by name, and which of them workers run.

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/planner/placement.h"

namespace moestro::planner {

enum class ScheduleName : uint8_t { kLayerwise, kExpertPipeline, kCgo };
inline constexpr ScheduleName kSchedules[] = {ScheduleName::kLayerwise, ScheduleName::kExpertPipeline,
                                              ScheduleName::kCgo};

std::string_view schedule_name(ScheduleName schedule);  ///< "layerwise", "expert-pipeline", "cgo"
std::optional<ScheduleName> schedule_of(std::string_view name);

/// Whether workers run the schedule on such a device.
bool workers_run(ScheduleName schedule, Memories::Device device);

}  // namespace moestro::planner
