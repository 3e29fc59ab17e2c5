#include "services/cli/timeline/timeline_summary.h"

#include <algorithm>

namespace moestro::cli {
namespace {

constexpr size_t kProcessesMax = 64, kCausesMax = 16;  ///< of a file; of a process

}  // namespace

Status TimelineSummary::add_file(const std::filesystem::path& path) {
  const size_t first = processes.size();
  MOESTRO_RETURN_IF_ERROR(
      read_timeline(path, [&](const TimelineEvent& event) { return add(path.string(), first, event); }));
  for (size_t i = first; i < processes.size(); ++i) processes[i].steps.finish();
  return Status::ok();
}

Status TimelineSummary::add(const std::string& file, size_t first_of_file, const TimelineEvent& event) {
  size_t i = first_of_file;
  while (i < processes.size() && processes[i].pid != event.pid) ++i;
  if (i == processes.size()) {
    if (i - first_of_file == kProcessesMax) return invalid_argument("more processes than a box has");
    processes.push_back({.file = file, .name = "process " + std::to_string(event.pid), .pid = event.pid});
  }
  ProcessSummary& process = processes[i];
  switch (event.kind) {
    case TimelineEvent::Kind::kProcessName: process.name = event.name; return Status::ok();
    case TimelineEvent::Kind::kTrackName: process.steps.name_lane(event.track, event.name); return Status::ok();
    case TimelineEvent::Kind::kSlice: break;
  }
  begin = std::min(begin, event.begin);
  if (process.steps.lane_name(event.track) == "stall") add_stall(i, event);
  return process.steps.add(event.track, event.plan, event.begin, event.end);
}

void TimelineSummary::add_stall(size_t process, const TimelineEvent& stall) {
  const Nanos length = stall.end - stall.begin;
  const auto add_to = [length](StallTotal& total) { ++total.count, total.time += length; };
  add_to(processes[process].stalls);
  auto& causes = processes[process].stalls_by_cause;
  const std::string cause = stall.cause.empty() || causes.size() == kCausesMax ? "unknown" : stall.cause;
  add_to(causes[cause]);
  const auto place = std::ranges::find_if(
      longest, [&](const LongStall& other) { return other.stall.end - other.stall.begin < length; });
  if (longest.size() == kLongStalls && place == longest.end()) return;
  longest.insert(place, {process, stall});
  if (longest.size() > kLongStalls) longest.pop_back();
}

}  // namespace moestro::cli
