#include "services/cli/bench/engine_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/config/units.h"
#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

using Json = nlohmann::ordered_json;
using Figure = std::function<double(const EngineRun&)>;

struct Spread {
  double min = 0, median = 0, max = 0;
};

Spread spread(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {values.front(), (values[(n - 1) / 2] + values[n / 2]) / 2, values.back()};
}
Spread spread(const std::vector<EngineRun>& runs, const Figure& figure) {
  std::vector<double> values;
  for (const EngineRun& r : runs) values.push_back(figure(r));
  return spread(values);
}

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }
double tokens_rate(const EngineRun& r) { return ratio(r.tokens, r.seconds); }
double bytes_rate(const EngineRun& r) { return ratio(r.weight_bytes, r.seconds); }
double operations_rate(const EngineRun& r) { return ratio(r.operations, r.seconds); }

double rate_of(const EngineRun& run, const LimitKind& kind) {
  const auto found = run.limits.find(kind.name);
  return found == run.limits.end() ? 0 : found->second;
}

/// What a run made of the limits that are called this way, in the order in which they are first met.
struct Share {
  const LimitKind* first;
  Figure figure;
};
std::vector<Share> shares_of(const EngineBenchReport& report) {
  std::vector<Share> shares;
  for (const LimitKind& kind : report.limits) {
    if (std::ranges::any_of(shares, [&](const Share& s) { return s.first->share == kind.share; })) continue;
    shares.push_back({&kind, [&report, &kind](const EngineRun& r) {
                        double best = 0;
                        for (const LimitKind& other : report.limits)
                          if (other.share == kind.share) best = std::max(best, rate_of(r, other));
                        return ratio(kind.unit == "bytes/s" ? bytes_rate(r) : operations_rate(r), best);
                      }});
  }
  return shares;
}

Json to_json(const Spread& s) { return {{"min", s.min}, {"median", s.median}, {"max", s.max}}; }

Json shares_json(const EngineBenchReport& report, const EngineBenchResult& result) {
  Json shares = Json::object();
  for (const Share& share : shares_of(report)) shares[share.first->share] = to_json(spread(result.runs, share.figure));
  return shares;
}

Json result_json(const EngineBenchReport& report, const EngineBenchResult& result, bool limits) {
  const EngineCase& c = result.what;
  Json json = {{"what", c.prefill ? "prefill" : "decode"},
               {"tokens", c.tokens},
               {"batch", c.batch},
               {"depth", c.depth},
               {"runs", result.runs.size()}};
  const auto field = [&](const Figure& figure) { return to_json(spread(result.runs, figure)); };
  const auto per_token = [&](const Figure& figure) {
    return field([&](const EngineRun& r) { return ratio(figure(r), r.tokens); });
  };
  json["tokens_per_s"] = field(tokens_rate);
  json["weight_bytes_per_token"] = field([](const EngineRun& r) { return ratio(r.weight_bytes, r.tokens); });
  json["flop_per_token"] = field([](const EngineRun& r) { return ratio(r.operations, r.tokens); });
  json["weight_bytes_per_s"] = field(bytes_rate);
  json["flop_per_s"] = field(operations_rate);
  json["moved_bytes_per_token"] = per_token([](const EngineRun& r) { return r.moved_bytes; });
  json["stalled_seconds_per_token"] = per_token([](const EngineRun& r) { return r.stalled_seconds; });
  json["experts_per_token"] = {
      {"hits", per_token([](const EngineRun& r) { return r.tier.hits; })},
      {"late", per_token([](const EngineRun& r) { return r.tier.late; })},
      {"misses", per_token([](const EngineRun& r) { return r.tier.misses; })},
      {"on_cpu", per_token([](const EngineRun& r) { return r.host_experts; })},
      {"prefetched", per_token([](const EngineRun& r) { return r.tier.prefetched; })},
      {"prefetched_used", per_token([](const EngineRun& r) { return r.tier.prefetched_used; })}};
  json["expert_hits"] = field([](const EngineRun& r) { return r.expert_hits; });
  json["expert_misses"] = field([](const EngineRun& r) { return r.expert_misses; });
  if (limits) json["shares"] = shares_json(report, result);
  return json;
}

/// A limit over all runs of all cases that measured it.
Spread limit(const EngineBenchReport& report, const Figure& figure) {
  std::vector<double> values;
  for (const EngineBenchResult& result : report.results)
    for (const EngineRun& r : result.runs)
      if (const double v = figure(r); v > 0) values.push_back(v);
  return spread(values);
}

struct Limit {
  const LimitKind& kind;
  Spread spread;
};

std::vector<Limit> all_limits(const EngineBenchReport& report) {
  std::vector<Limit> all;
  for (const LimitKind& kind : report.limits)
    all.push_back({kind, limit(report, [&](const EngineRun& r) { return rate_of(r, kind); })});
  return all;
}

std::string percent(double share) { return share > 0 ? printed("%6.1f %%", 100 * share) : printed("%8s", "-"); }

std::string case_text(const EngineBenchReport& report, const EngineBenchResult& result) {
  if (result.runs.empty()) return "";
  const auto median = [&](const Figure& figure) { return spread(result.runs, figure).median; };
  const Spread tokens = spread(result.runs, tokens_rate);
  std::string text =
      printed("%-16s %9.1f %9.1f %9.1f %9.2f %9.3f ", case_name(result.what).c_str(), tokens.min, tokens.median,
              tokens.max, 1e-6 * median([](const EngineRun& r) { return ratio(r.weight_bytes, r.tokens); }),
              1e-9 * median([](const EngineRun& r) { return ratio(r.operations, r.tokens); }));
  for (const Share& share : shares_of(report))
    if (!share.first->column[0].empty()) text += percent(median(share.figure));
  return text + "\n";
}

}  // namespace

Json engine_report_json(const EngineBenchOptions& o, const EngineBenchReport& report) {
  Json json = {{"pack", o.pack},
               {"model", report.model},
               {"experts", report.experts},
               {"threads", report.threads},
               {"isa", kernels::isa_name(report.isa)},
               {"instructions", kernels::instructions_by_precision(report.isa, o.deterministic)},
               {"deterministic", o.deterministic},
               {"step_tokens", report.step_tokens},
               {"kv_tokens", report.kv_tokens},
               {"kv_dtype", o.kv_dtype},
               {"kv_sinks", o.kv_sinks},
               {"kv_window", o.kv_window},
               {"device", o.device},
               {"cache", o.cache},
               {"predict", o.predict},
               {"schedule", o.schedule},
               {"micro_batches", o.micro_batches},
               {"kv_home", o.kv_home},
               {"kv_resident_tokens", o.kv_resident_tokens},
               {"kv_ring_tokens", o.kv_ring_tokens},
               {"prompts_at_once", o.prompts_at_once},
               {"cuda_graphs", o.cuda_graphs},
               {"cublas", o.cublas}};
  if (o.capacity_factor) json["capacity_factor"] = *o.capacity_factor;
  if (o.mixed != "off") json["mixed"] = o.mixed;
  if (o.limits) {
    json["streamed_bytes"] = report.stream_bytes;
    json["limits"] = Json::object();
    for (const Limit& l : all_limits(report)) {
      Json& one = json["limits"][l.kind.name] = to_json(l.spread);
      one["unit"] = l.kind.unit;
      one["how"] = l.kind.how;
    }
  }
  json["results"] = Json::array();
  for (const EngineBenchResult& result : report.results)
    if (!result.runs.empty()) json["results"].push_back(result_json(report, result, o.limits));
  return json;
}

std::string engine_report_text(const EngineBenchOptions& o, const EngineBenchReport& report) {
  const std::string window =
      o.kv_window == 0 ? ""
                       : ", window " + std::to_string(o.kv_window) + " and " + std::to_string(o.kv_sinks) + " sinks";
  std::string text = printed("%s: experts %s, KV %s%s, %s, %d threads%s, steps of %lld tokens, %zu repeats\n",
                             report.model.c_str(), report.experts.c_str(), o.kv_dtype.c_str(), window.c_str(),
                             std::string(kernels::isa_name(report.isa)).c_str(), report.threads,
                             o.deterministic ? ", deterministic" : "",
                             static_cast<long long>(report.step_tokens), report.results.front().runs.size());
  text += "products with " + kernels::instructions_by_precision(report.isa, o.deterministic) + "\n";
  std::array<std::string, 2> heads{
      printed("%-16s %9s %9s %9s %9s %9s ", "", "tokens/s", "", "", "MB", "GFLOP"),
      printed("%-16s %9s %9s %9s %9s %9s ", "", "min", "median", "max", "a token", "a token")};
  for (const Share& share : shares_of(report))
    for (size_t line = 0; line < heads.size() && !share.first->column[0].empty(); ++line)
      heads[line] += printed("%8s", share.first->column[line].c_str());
  for (const std::string& head : heads) text += head + "\n";
  for (const EngineBenchResult& result : report.results) text += case_text(report, result);
  if (!o.limits) return text;
  text += "limits of the " + std::string(o.device.starts_with("cuda") ? "device" : "host") +
          ", measured in turns with the above, over " +
          config::readable_size(static_cast<uint64_t>(report.stream_bytes)) + " of its memory\n";
  for (const Limit& l : all_limits(report))
    text +=
        printed("%-16s %9.1f %9.1f %9.1f %-8s %s\n", l.kind.name.c_str(), 1e-9 * l.spread.min, 1e-9 * l.spread.median,
                1e-9 * l.spread.max, l.kind.unit == "bytes/s" ? "GB/s" : "GFLOP/s", l.kind.how.c_str());
  return text;
}

}  // namespace moestro::cli
