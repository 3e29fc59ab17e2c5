#include "common/planner/schedule_name.h"

namespace moestro::planner {

std::string_view schedule_name(ScheduleName schedule) {
  switch (schedule) {
    case ScheduleName::kLayerwise: return "layerwise";
    case ScheduleName::kExpertPipeline: return "expert-pipeline";
    case ScheduleName::kCgo: return "cgo";
  }
  return "";
}

std::optional<ScheduleName> schedule_of(std::string_view name) {
  for (const ScheduleName schedule : kSchedules)
    if (schedule_name(schedule) == name) return schedule;
  return std::nullopt;
}

bool workers_run(ScheduleName schedule, Memories::Device device) {
  switch (schedule) {
    case ScheduleName::kLayerwise: return true;
    case ScheduleName::kExpertPipeline: return true;
    case ScheduleName::kCgo: return device == Memories::Device::kExpertsOnly;
  }
  return false;
}

}  // namespace moestro::planner
