#include "services/cli/bench/serve/serve_report.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;

long long of(int64_t n) { return static_cast<long long>(n); }

/// Milliseconds, for that is what users compare.
Json to_json(const Distribution& d) {
  if (d.count == 0) return nullptr;
  return {
      {"mean", 1e3 * d.mean}, {"p50", 1e3 * d.p50}, {"p90", 1e3 * d.p90}, {"p99", 1e3 * d.p99}, {"max", 1e3 * d.max}};
}

Json bounds_json(const GoodputBounds& b, const LoadSummary& s) {
  Json report = {{"requests_per_s", s.good_per_s}, {"share", s.good_share}};
  const auto bound = [&](const char* name, const std::optional<double>& seconds) {
    if (seconds) report[name] = 1e3 * *seconds;
  };
  bound("ttft_ms", b.ttft_s), bound("tpot_ms", b.tpot_s), bound("e2e_ms", b.e2e_s);
  return report;
}

Json run_json(const ServeBenchOptions& o, const ServeRun& run) {
  const LoadSummary& s = run.summary;
  Json report = {{"rate", o.trace.empty() && std::isfinite(run.rate) ? Json(run.rate) : Json()},
               {"offered_requests_per_s", s.offered_rate > 0 ? Json(s.offered_rate) : Json()},
               {"requests", run.load.requests.size()},
               {"sent", s.sent},
               {"completed", s.done},
               {"refused", s.refused},
               {"failed", s.failed},
               {"unfinished", s.unfinished + s.unsent},
               {"interrupted", run.load.interrupted},
               {"seconds", s.seconds},
               {"prompt_tokens", s.prompt_tokens},
               {"output_tokens", s.output_tokens},
               {"requests_per_s", s.requests_per_s},
               {"prompt_tokens_per_s", s.prompt_tokens_per_s},
               {"output_tokens_per_s", s.output_tokens_per_s},
               {"steady_output_tokens_per_s", s.steady_tokens_per_s > 0 ? Json(s.steady_tokens_per_s) : Json()},
               {"ttft_ms", to_json(s.ttft_s)},
               {"tpot_ms", to_json(s.tpot_s)},
               {"itl_ms", to_json(s.itl_s)},
               {"e2e_ms", to_json(s.e2e_s)}};
  if (o.bounds.any()) report["goodput"] = bounds_json(o.bounds, s);
  report["tiers"] = run.tiers ? tier_use_json(*run.tiers) : Json();
  report["behind_schedule_ms"] = to_json(s.behind_s);
  report["in_flight_max"] = run.load.in_flight_max;
  report["other_length"] = s.other_length;
  report["cut_to_context"] = run.cut;
  report["refused_without_retry_after"] = s.refused_without_retry_after;
  report["generator_core_share"] = run.load.busy_share;
  if (o.idle > 0) report["idle_connections"] = {{"opened", run.load.idle_open}, {"lost", run.load.idle_lost}};
  report["failures"] = Json::object();
  for (const auto& [kind, failure] : run.load.failures)
    report["failures"][kind] = {{"count", failure.count}, {"example", failure.example}};
  return report;
}

std::string spread(const char* name, const Distribution& d) {
  if (d.count == 0) return printed("%-24s %10s\n", name, "-");
  return printed("%-24s %10.1f %10.1f %10.1f %10.1f %10.1f\n", name, 1e3 * d.mean, 1e3 * d.p50, 1e3 * d.p90,
                 1e3 * d.p99, 1e3 * d.max);
}

std::string failures_text(const ServeRun& run) {
  std::string text;
  for (const auto& [kind, failure] : run.load.failures)
    text += printed("  %s: %lld, such as: %.300s\n", kind.c_str(), of(failure.count), failure.example.c_str());
  if (run.summary.refused_without_retry_after > 0)
    text += printed("  %lld refusals had no Retry-After\n", of(run.summary.refused_without_retry_after));
  return text;
}

std::string goodput_text(const ServeBenchOptions& o, const LoadSummary& s) {
  if (!o.bounds.any()) return "";
  std::string bounds;
  const auto bound = [&](const char* name, const std::optional<double>& seconds) {
    if (seconds) bounds += printed("%s%s <= %.0f ms", bounds.empty() ? "" : ", ", name, 1e3 * *seconds);
  };
  bound("TTFT", o.bounds.ttft_s), bound("TPOT", o.bounds.tpot_s), bound("end to end", o.bounds.e2e_s);
  return printed("%-24s %10.2f requests/s, %.1f %% of those sent (%s)\n", "goodput", s.good_per_s, 100 * s.good_share,
                 bounds.c_str());
}

std::string run_text(const ServeBenchOptions& o, const ServeRun& run) {
  const LoadSummary& s = run.summary;
  std::string text = s.offered_rate > 0 ? printed("\noffered %.3g requests/s", s.offered_rate) : "\nall at once";
  if (o.concurrency > 0) text += printed(", at most %lld under way", of(o.concurrency));
  text += printed(": %zu requests, %lld completed, %lld refused, %lld failed", run.load.requests.size(), of(s.done),
                  of(s.refused), of(s.failed));
  if (run.load.interrupted) text += printed("; interrupted, %lld unfinished", of(s.unfinished + s.unsent));
  text += "\n" + failures_text(run);
  if (s.other_length > 0)
    text += printed("  %lld answers had another number of tokens than asked for\n", of(s.other_length));
  if (run.cut > 0) text += printed("  %lld requests were shortened to the context\n", of(run.cut));
  if (o.idle > 0)
    text += printed("  %lld idle connections in addition, %lld of them lost\n", of(run.load.idle_open),
                    of(run.load.idle_lost));
  text += printed("%-24s %10.2f requests/s in %.1f s, at most %lld under way\n", "throughput", s.requests_per_s,
                  s.seconds, of(run.load.in_flight_max));
  text += printed("%-24s %10.1f tokens/s in, %.1f out", "", s.prompt_tokens_per_s, s.output_tokens_per_s);
  text += (s.steady_tokens_per_s > 0 ? printed(", %.1f out while requests were being sent\n", s.steady_tokens_per_s)
                                     : "\n") +
          goodput_text(o, s);
  text += printed("%-24s %10s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99", "max");
  text += spread("time to first token", s.ttft_s) + spread("time per output token", s.tpot_s) +
          spread("inter-token latency", s.itl_s) + spread("end to end", s.e2e_s);
  text += spread("sent behind schedule", s.behind_s);
  if (run.tiers) text += tier_use_text(*run.tiers);
  return text + printed("%-24s %9.1f%% of a core\n", "the generator took", 100 * run.load.busy_share);
}

}  // namespace

Json serve_report_json(const ServeBenchOptions& o, const ServeBenchReport& report) {
  Json json = {{"model", report.model},        {"server", report.server},   {"arrivals", report.arrivals},
               {"vocab", report.vocab},        {"context", report.limits.context}, {"concurrency", o.concurrency},
               {"temperature", o.temperature}, {"runs", Json::array()}};
  for (const ServeRun& run : report.runs) json["runs"].push_back(run_json(o, run));
  return json;
}

std::string serve_report_text(const ServeBenchOptions& o, const ServeBenchReport& report) {
  std::string text = report.model + " on " + report.server + "; " + report.arrivals + "\n";
  for (const ServeRun& run : report.runs) text += run_text(o, run);
  return text;
}

}  // namespace moestro::cli
