#include "orchestrator/api/status_history.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

json::json_pointer pointer_of(std::string path) {
  std::ranges::replace(path, '.', '/');
  return json::json_pointer("/" + path);
}

/// Where kMembers stand in a status.
const auto& pointers() {
  static const auto all = [] {
    std::array<json::json_pointer, StatusHistory::kMembers.size()> made;
    std::ranges::transform(StatusHistory::kMembers, made.begin(), pointer_of);
    return made;
  }();
  return all;
}

/// Null where a status has no such member, or something above it is null.
json member_of(const json& status, const json::json_pointer& at) {
  return status.contains(at) ? status.at(at) : json();
}

double uptime_of(const json& sample) { return sample.at(0).get<double>(); }

/// `before`: the counts at the window's beginning; null: none.
json quantiles(const json& histogram, const json& before) {
  const auto bounds = histogram.at("bounds").get<std::vector<double>>();
  auto counts = histogram.at("counts").get<std::vector<double>>();
  for (size_t i = 0; i < std::min(counts.size(), before.size()); ++i) counts[i] -= before[i].get<double>();
  if (std::accumulate(counts.begin(), counts.end(), 0.0) <= 0) return nullptr;
  return {{"p50", quantile(bounds, counts, 0.5)}, {"p99", quantile(bounds, counts, 0.99)}};
}

/// What steps waited for most, if they waited for more than half of their time.
const char* bound_by(double seconds, double stalled, double dense, double kv) {
  if (2 * stalled <= seconds) return "compute";
  const double experts = stalled - dense - kv;
  if (experts >= dense && experts >= kv) return "experts";
  return dense >= kv ? "dense weights" : "kv";
}

/// Of the steps of one kind since `before`, which is null if there is none. Per second of computing, as a forecast's.
json speed(const json& steps, const json& before) {
  const auto of = [&](const char* what) {
    return steps.at(what).get<double>() - (before.is_null() ? 0 : before.at(what).get<double>());
  };
  const double tokens = of("tokens"), seconds = of("seconds"), stalled = of("stall_seconds");
  if (tokens <= 0 || seconds <= 0) return nullptr;
  return {{"tokens_per_s", tokens / seconds},
          {"step_tokens", tokens / of("count")},
          {"stalled", std::min(1.0, stalled / seconds)},
          {"bound", bound_by(seconds, stalled, of("dense_stall_seconds"), of("kv_stall_seconds"))}};
}

}  // namespace

double quantile(const std::vector<double>& bounds, const std::vector<double>& counts, double q) {
  double left = q * std::accumulate(counts.begin(), counts.end(), 0.0);
  for (size_t i = 0; i < bounds.size(); left -= counts[i++])
    if (counts[i] > 0 && left <= counts[i]) {
      const double low = i == 0 ? 0 : bounds[i - 1];
      return low + (bounds[i] - low) * left / counts[i];
    }
  return bounds.back();
}

void StatusHistory::add(const json& status) {
  json sample = json::array();
  for (const auto& at : pointers()) sample.push_back(member_of(status, at));
  samples_.push_back(std::move(sample));
  if (samples_.size() > kSamplesMax) samples_.pop_front();
}

json StatusHistory::report() const { return {{"members", kMembers}, {"samples", samples_}}; }

json StatusHistory::recent(const json& status) const {
  const double now = status.at("uptime_s").get<double>();
  const auto newest = std::find_if(samples_.rbegin(), samples_.rend(),
                                   [now](const json& s) { return uptime_of(s) <= now - kWindowSeconds; });
  const bool whole = newest != samples_.rend();
  json recent{{"seconds", whole ? now - uptime_of(*newest) : now}};
  constexpr std::array kNames{std::pair("ttft_s", "latency.ttft_s"), std::pair("tpot_s", "latency.tpot_s"),
                              std::pair("step_s", "steps.duration_s")};
  constexpr size_t kFirst = kMembers.size() - kNames.size();  // the histograms are the last members, in this order
  for (size_t i = 0; i < kNames.size(); ++i)
    recent[kNames[i].first] =
        quantiles(status.at(pointer_of(kNames[i].second)), whole ? newest->at(kFirst + i) : json());
  constexpr std::array kSpeeds{std::pair("prompts", "steps.prompts"), std::pair("decoding", "steps.decoding")};
  for (size_t i = 0; i < kSpeeds.size(); ++i)  // just before the histograms
    recent[kSpeeds[i].first] =
        speed(status.at(pointer_of(kSpeeds[i].second)), whole ? newest->at(kFirst - kSpeeds.size() + i) : json());
  return recent;
}

}  // namespace moestro::orchestrator
