#include "services/cli/plan/schedule_report.h"

#include <algorithm>

#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

using planner::Arrangement;
using planner::ScheduleName;
using planner::ScheduleOption;

std::string name_of(ScheduleName schedule) { return std::string(planner::schedule_name(schedule)); }

std::string at_once_text(const PlanReport& r, const Arrangement& a) {
  const auto sequences = static_cast<long long>(std::min(a.sequences(), r.options.sequences));
  return a.micro_batches == 1 ? printed("%lld", sequences)
                              : printed("%lld in %lld", sequences, static_cast<long long>(a.micro_batches));
}

/// What `up` would be told to use, and what it would not.
std::string mark(const PlanReport& r, const ScheduleOption& option) {
  if (!option.runs)
    return "a forecast only: of the published system, which brings weights in another way than workers do";
  return option.arrangement.schedule == r.plan.choice.arrangement.schedule ? "chosen" : "";
}

std::string arrangement_text(const PlanReport& r) {
  const Arrangement& a = r.plan.choice.arrangement;
  const auto percent = [](double share) { return printed("%.0f %%", 100 * share); };
  if (a.schedule == ScheduleName::kCgo && r.plan.choice.runs)
    return "the KV cache is in host memory, and the host attends";
  if (a.schedule == ScheduleName::kCgo)
    return percent(a.dense_share) + " of all weights stay on the device; the KV cache is in host memory";
  if (a.schedule != ScheduleName::kExpertPipeline) return "";
  std::string text;
  if (a.slots > 0) text = counted(static_cast<uint64_t>(a.slots), "slot") + " for experts that come and go";
  if (r.memory.memories.device == planner::Memories::Device::kWhole)
    text += "; on the device: " + percent(a.dense_share) + " of the dense weights, " + percent(a.kv_share) +
            " of the KV cache";
  else if (r.memory.memories.device_has_kv())
    text += "on the device: " + percent(a.kv_share) + " of the KV cache";
  return text;
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds < 0.1) return printed("%.3g ms", 1e3 * seconds);
  return seconds < 120 ? printed("%.3g s", seconds) : seconds < 7200 ? printed("%.1f min", seconds / 60)
                                                                    : printed("%.1f h", seconds / 3600);
}

std::string rate_text(double per_s) { return printed(per_s < 100 ? "%.3g" : "%.0f", per_s); }

std::string schedules_text(const PlanReport& r) {
  std::string text = printed("%-16s %11s %10s %10s %10s   tokens/s; time for all\n", "schedule", "at once",
                             "prompt", "decode", "all");
  for (const ScheduleOption& option : r.plan.search.options) {
    std::string line = printed("%-16s %11s %10s %10s %10s   ", name_of(option.arrangement.schedule).c_str(),
                               at_once_text(r, option.arrangement).c_str(),
                               rate_text(option.prompt.tokens_per_s()).c_str(),
                               rate_text(option.decode.tokens_per_s()).c_str(), seconds_text(option.seconds()).c_str());
    line += mark(r, option);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (const planner::LeftOut& left : r.plan.search.left_out)
    text += printed("%-16s is left out: ", name_of(left.schedule).c_str()) + left.why + "\n";
  const std::string more = arrangement_text(r);
  return text + "below: " + name_of(r.plan.choice.arrangement.schedule) + (more.empty() ? "" : "; ") + more + "\n";
}

std::string bubbles_text(const PlanReport& r) {
  // Of no interest where something else is faster anyway.
  const auto pipeline = r.plan.search.options.begin();
  if (pipeline->arrangement.schedule != ScheduleName::kExpertPipeline) return "";
  const std::string of = printed("%lld", static_cast<long long>(pipeline->arrangement.micro_batches)) +
                         (pipeline->arrangement.micro_batches == 1 ? " micro-batch" : " micro-batches");
  std::string text = "\nexpert-pipeline, " + of +
                     ": what has to arrive in a layer of a decoding step, and in what time\n";
  for (const planner::Inequality& i : pipeline->bubbles)
    text += printed("%10s for %10s  %s\n", seconds_text(i.computing_s).c_str(), seconds_text(i.bringing_s).c_str(),
                    (i.what + (i.short_s() > 0 ? ": short of " + seconds_text(i.short_s()) : "")).c_str());
  if (std::ranges::all_of(pipeline->bubbles, [](const planner::Inequality& i) { return i.short_s() == 0; }))
    return text + "nothing is waited for\n";
  return text + (pipeline->bubble_free
                     ? printed("nothing would be waited for with %lld micro-batches of as many rows\n",
                               static_cast<long long>(*pipeline->bubble_free))
                     : std::string("more micro-batches do not change that\n"));
}

}  // namespace moestro::cli
