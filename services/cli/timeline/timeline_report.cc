#include "services/cli/timeline/timeline_report.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

double us(Nanos time) { return std::chrono::duration<double, std::micro>(time).count(); }
double ms(Nanos time) { return std::chrono::duration<double, std::milli>(time).count(); }
double seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }
double share(Nanos part, Nanos all) {
  return all.count() > 0 ? static_cast<double>(part.count()) / static_cast<double>(all.count()) : 0;
}

json total_json(const StallTotal& total, Nanos in_steps) {
  return {{"count", total.count}, {"time_us", us(total.time)}, {"share", share(total.time, in_steps)}};
}

json process_json(const ProcessSummary& process) {
  const StepShares& steps = process.steps;
  json lanes = json::array(), causes = json::object();
  for (const auto& [track, lane] : steps.lanes()) {
    if (!lane.seen || lane.name == "stall") continue;
    lanes.push_back({{"lane", lane.name},
                     {"busy_share", share(lane.busy, steps.in_steps())},
                     {"idle_share", share(steps.in_steps() - lane.busy, steps.in_steps())},
                     {"bubbles",
                      {{"count", lane.bubbles},
                       {"time_us", us(lane.bubbles_time)},
                       {"longest_us", us(lane.longest_bubble)}}}});
  }
  for (const auto& [cause, total] : process.stalls_by_cause) causes[cause] = total_json(total, steps.in_steps());
  json stalls = total_json(process.stalls, steps.in_steps());
  stalls["by_cause"] = causes;
  return {{"file", process.file},
          {"pid", process.pid},
          {"name", process.name},
          {"steps",
           {{"count", steps.steps()},
            {"time_us", us(steps.in_steps())},
            {"median_us", us(steps.step_time(0.5))},
            {"p99_us", us(steps.step_time(0.99))}}},
          {"lanes", lanes},
          {"stalls", stalls}};
}

std::string process_text(const ProcessSummary& process) {
  const StepShares& steps = process.steps;
  std::string text = one_line(process.name) + " (" + one_line(process.file) + ", pid " + std::to_string(process.pid) +
                     "): " + counted(steps.steps(), "step");
  if (steps.steps() == 0) return text + "\n";
  text += printed(", %.3f s, median %.3f ms, p99 %.3f ms\n", seconds(steps.in_steps()), ms(steps.step_time(0.5)),
                  ms(steps.step_time(0.99)));
  text += "  lane                 busy     idle    bubbles        time         longest\n";
  for (const auto& [track, lane] : steps.lanes())
    if (lane.seen && lane.name != "stall")
      text += printed("  %-16.40s %6.1f %% %6.1f %% %10llu %9.3f s %12.3f ms\n", one_line(lane.name).c_str(),
                      100 * share(lane.busy, steps.in_steps()),
                      100 * share(steps.in_steps() - lane.busy, steps.in_steps()),
                      static_cast<unsigned long long>(lane.bubbles), seconds(lane.bubbles_time),
                      ms(lane.longest_bubble));
  text += printed("  %s, %.3f s, %.1f %% of the time in steps", counted(process.stalls.count, "stall").c_str(),
                  seconds(process.stalls.time), 100 * share(process.stalls.time, steps.in_steps()));
  const char* before = ": ";
  for (const auto& [cause, total] : process.stalls_by_cause) {
    text += printed("%s%.40s %.0f %%", before, one_line(cause).c_str(), 100 * share(total.time, process.stalls.time));
    before = ", ";
  }
  return text + "\n";
}

}  // namespace

json timeline_json(const TimelineSummary& summary) {
  json processes = json::array(), longest = json::array();
  for (const ProcessSummary& process : summary.processes) processes.push_back(process_json(process));
  for (const auto& [process, stall] : summary.longest)
    longest.push_back({{"file", summary.processes[process].file},
                       {"pid", stall.pid},
                       {"name", summary.processes[process].name},
                       {"begin_us", us(stall.begin)},
                       {"at_us", us(stall.begin - summary.begin)},
                       {"length_us", us(stall.end - stall.begin)},
                       {"plan", stall.plan},
                       {"layer", stall.layer},
                       {"expert", stall.expert},
                       {"tier", stall.tier},
                       {"cause", stall.cause}});
  return {{"bubble_us_min", us(StepShares::kBubble)}, {"processes", processes}, {"longest_stalls", longest}};
}

std::string timeline_text(const TimelineSummary& summary) {
  std::string text;
  for (const ProcessSummary& process : summary.processes) text += process_text(process) + "\n";
  if (summary.longest.empty()) return text + "No stalls: no step waited for an expert.\n";
  text += "Longest stalls\n            at            for    layer   expert   tier    late because      process\n";
  for (const auto& [process, stall] : summary.longest)
    text += printed("  %10.6f s %11.3f ms %8lld %8lld   %-7.10s %-17.40s %.200s\n",
                    seconds(stall.begin - summary.begin), ms(stall.end - stall.begin),
                    static_cast<long long>(stall.layer), static_cast<long long>(stall.expert),
                    one_line(stall.tier).c_str(), one_line(stall.cause).c_str(),
                    one_line(summary.processes[process].name).c_str());
  return text;
}

}  // namespace moestro::cli
