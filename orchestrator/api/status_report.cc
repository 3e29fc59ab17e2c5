#include "orchestrator/api/status_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/news.h"
#include "common/units.h"
#include "orchestrator/api/store_metrics.h"
#include "orchestrator/api/tier_metrics.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

constexpr double kSilentSeconds = 1;  ///< heartbeats come five times a second
constexpr double kLongStepSeconds = 30, kLongStepTimes = 5;  ///< a step beyond both, the one before counted, is stuck

/// "1 blob", "2 blobs".
std::string counted(uint64_t n, const char* what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// "90 s ago", "3 h ago".
std::string ago(double seconds) {
  constexpr double kMinute = 60, kHour = 3600;
  const auto in = [seconds](double unit, const char* name) {
    return std::to_string(static_cast<int>(seconds / unit)) + name;
  };
  return seconds < 2 * kMinute ? in(1, " s ago") : seconds < 2 * kHour ? in(kMinute, " min ago") : in(kHour, " h ago");
}

const char* state_of(const StatusSources& now) {
  if (now.draining) return "draining";
  if (!now.control.workers.empty()) return "serving";
  return now.had_worker ? "no_worker" : "starting";
}

const char* state_of(const ControlSnapshot::Worker& worker) {
  if (worker.age_s > kSilentSeconds) return "silent";
  return worker.plans_in_flight > 0 ? "busy" : "idle";
}

/// Large models on slow drives have slow steps, but not all at once.
bool is_stuck(const ControlSnapshot::Worker& worker) {
  return worker.step_age_s > std::max(kLongStepSeconds, kLongStepTimes * seconds_of(worker.last_step_us));
}

json workers_json(const StatusSources& now) {
  json workers = json::array();
  for (const auto& w : now.control.workers)
    workers.push_back({{"name", w.name},
                       {"model", now.model},
                       {"device", w.device},
                       {"state", state_of(w)},
                       {"outdated", w.outdated},
                       {"last_heard_s", w.age_s},
                       {"plans", w.plans},
                       {"plans_in_flight", w.plans_in_flight},
                       {"step_seconds", seconds_of(w.step_us)},
                       {"stall_seconds", seconds_of(w.stall_us)},
                       {"last_step_s", seconds_of(w.last_step_us)},
                       {"step_age_s", w.step_age_s},
                       {"expert_hits", w.expert_hits},
                       {"expert_misses", w.expert_misses},
                       {"kv_blocks", w.kv_blocks},
                       {"device_memory", device_status(w)}});
  return workers;
}

json totals_json(const StepTotals& of) {
  return {{"count", of.steps},
          {"tokens", of.tokens},
          {"seconds", seconds_of(of.step_us)},
          {"stall_seconds", seconds_of(of.stall_us)},
          {"dense_stall_seconds", seconds_of(of.dense_stall_us)},
          {"kv_stall_seconds", seconds_of(of.kv_stall_us)}};
}

json steps_json(const ControlSnapshot& c) {
  return {{"prompts", totals_json(c.prompt_steps)},
          {"decoding", totals_json(c.decoding_steps)},
          {"count", c.plans},
          {"seconds", seconds_of(c.step_us)},
          {"stall_seconds", seconds_of(c.stall_us)},
          {"parks", c.parks},
          {"parked_seconds", seconds_of(c.parked_us)},
          {"dense_read_bytes", c.dense_bytes},
          {"dense_stall_seconds", seconds_of(c.dense_stall_us)},
          {"kv_stall_seconds", seconds_of(c.kv_stall_us)},
          {"duration_s",
           {{"bounds", DurationHistogram::kBounds},
            {"counts", c.steps.counts},
            {"sum", c.steps.sum},
            {"count", c.steps.count}}}};
}

class Problems {
 public:
  void error(const std::string& what, const std::string& to_do) {
    list_.insert(list_.begin() + errors_++, entry("error", what, to_do));
  }
  void warning(const std::string& what, const std::string& to_do) { list_.push_back(entry("warning", what, to_do)); }
  json take() { return std::move(list_); }

 private:
  static json entry(const char* severity, const std::string& what, const std::string& to_do) {
    return {{"severity", severity}, {"what", what}, {"do", to_do}};
  }
  json list_ = json::array();
  int errors_ = 0;
};

void add_workers(const StatusSources& now, Problems& problems) {
  const std::string state = state_of(now);
  if (state == "draining")
    problems.warning("The server is shutting down: new requests are refused.", "Wait for its end.");
  if (state == "starting")
    problems.warning("No worker has come yet: weights are being loaded.", "Watch the logs of store and worker.");
  if (state == "no_worker")
    problems.error("No worker is there: the last one is gone, and requests wait for its successor.",
                   "Read the end of the worker's log.");
  for (const auto& w : now.control.workers)
    if (w.age_s > kSilentSeconds)
      problems.warning(
          "Worker " + w.name + " has not been heard for " + std::to_string(static_cast<int>(w.age_s)) + " s.",
          "Is it stopped, or its machine out of memory?");
  for (const auto& w : now.control.workers)
    if (w.outdated)
      problems.warning("The model's pack was replaced: worker " + w.name +
                           " has the version before, and ends what it has begun with that.",
                       "It takes the new one by itself. If not: read the logs of the other workers.");
  for (const auto& w : now.control.workers)
    if (is_stuck(w))
      problems.error("Worker " + w.name + " has computed one step for " +
                         std::to_string(static_cast<int>(w.step_age_s)) + " s: its requests wait.",
                     "Without a store it waits for experts; else read its log, and look at the drive.");
  if (const size_t there = now.control.waiting + now.control.running;
      now.queue_max > 0 && there * 8 >= now.queue_max * 7)
    problems.warning("The queue holds " + std::to_string(there) + " of " + std::to_string(now.queue_max) +
                         " sequences: the client with the most of them gets 429.",
                     "Send less, or add workers.");
  // Not full to the last block: those that run keep some to grow into.
  const ControlSnapshot& c = now.control;
  if (c.waiting > c.waiting_of_batches && c.kv_blocks_total > 0 && c.kv_blocks_used * 4 >= c.kv_blocks_total * 3)
    problems.warning(counted(c.waiting - c.waiting_of_batches, "sequence") +
                         " cannot start because the KV cache is full (" + std::to_string(c.kv_blocks_used) + " of " +
                         std::to_string(c.kv_blocks_total) + " blocks).",
                     "More --kv-tokens, or --kv-dtype bf16 or int8, if memory allows.");
}

void add_store(const StatusSources& now, Problems& problems) {
  if (!now.has_store) return;
  if (!now.store)
    return problems.error("The store does not answer: what is not in memory cannot be read.",
                          "Read the end of the store's log.");
  const StoreFigures& s = *now.store;
  if (s.unreadable > 0)
    problems.error(counted(s.unreadable, "blob") + " cannot be read: requests that need " +
                       (s.unreadable == 1 ? "it" : "them") + " fail.",
                   "moestro inspect PACK --verify names the file; restore it, then moestro store replace.");
  if (s.scrub_mismatches > 0 && is_news(s.memory_changed_s))
    problems.warning(counted(s.scrub_mismatches, "blob") + " changed in memory and had to be read again, the last " +
                         "one " + ago(s.memory_changed_s) + ".",
                     "Once: note it. Again: test the machine's memory.");
}

}  // namespace

json problems_of(const StatusSources& now, const json& more) {
  Problems problems;
  add_workers(now, problems);
  add_store(now, problems);
  const json stalled = more.value(json::json_pointer("/batches/stalled"), json());
  if (stalled.is_string())
    problems.error("The state of batches cannot be written: " + stalled.get<std::string>() + ".",
                   "Make room where the state is kept, repair its disk, or start its Redis; they go on by themselves.");
  for (const json& left : more.value(json::json_pointer("/batches/left_to_others"), json::array())) {
    const auto hosts = left["hosts"].get<std::vector<std::string>>();
    problems.warning(fmt::format("Other hosts serve another version of {} and run the lines of its batches{}{}.",
                                 left["model"].get<std::string>(), hosts.empty() ? "" : ": ", fmt::join(hosts, ", ")),
                     "Serve the same pack on all hosts that share the state. This one goes on when no host serves the "
                     "other version.");
  }
  return problems.take();
}

json health_report(const StatusSources& now) {
  json errors = json::array();
  for (const json& problem : problems_of(now, json::object()))
    if (problem["severity"] == "error") errors.push_back(problem["what"]);
  json body{{"status", errors.empty() ? "ok" : "degraded"}};
  if (!errors.empty()) body["problems"] = std::move(errors);
  return body;
}

json status_report(const StatusSources& now, const RequestMetrics& requests, const json& more) {
  const ControlSnapshot& c = now.control;
  json body{
      {"model", now.model},
      {"uptime_s", now.uptime_s},
      {"state", state_of(now)},
      {"problems", problems_of(now, more)},
      {"requests", {{"running", requests.running()}, {"ended", requests.results()}}},
      {"latency", requests.latencies()},
      {"sequences",
       {{"waiting", c.waiting},
        {"waiting_of_batches", c.waiting_of_batches},
        {"running", c.running},
        {"max", now.queue_max},
        {"preemptions", c.preemptions},
        {"quarantined", c.quarantined}}},
      {"tokens",
       {{"prompt", requests.total_prompt_tokens()},
        {"generated", c.sampled_tokens},
        {"prefix_cached", c.prefix_cached_tokens}}},
      {"kv_blocks",
       {{"used", c.kv_blocks_used},
        {"prefixes", c.prefix_blocks},
        {"total", c.kv_blocks_total},
        {"host", {{"used", c.kv_host_blocks_used}, {"total", c.kv_host_blocks_total}}}}},
      {"steps", steps_json(c)},
      {"forecast", now.forecast ? forecast_json(*now.forecast) : json()},
      {"tiers", tiers_status(c, now.store)},
      {"store", store_status(now.store)},
      {"workers", workers_json(now)},
      {"workers_lost", c.workers_lost},
      {"worker_restarts", c.worker_restarts},
      {"nonfinite_sequences", c.nonfinite_sequences},
      {"capacity_dropped", c.dropped_rows},
      {"mixed", mixed_status(c)},
  };
  if (now.experts) body["experts"] = experts_status(*now.experts);
  body.update(more);
  return body;
}

}  // namespace moestro::orchestrator
