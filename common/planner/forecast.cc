#include "common/planner/forecast.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::planner {
namespace {

constexpr double kAttentionCalls = 12, kExpertCalls = 4, kHeadCalls = 3;  ///< operations around products

/// Adds computing, and how much of it is reading.
struct Computing {
  double seconds = 0, reading = 0;
  void add(double time, double reads) { seconds += time, reading += std::min(time, reads); }
  void product(const ProductCurve& curve, double rows, double parameters) {
    if (parameters > 0 && rows > 0) add(curve.seconds(rows, parameters), curve.reading(parameters));
  }
  void at_least(double floor) { seconds = std::max(seconds, floor); }
};

Computing attention(const LayerSizes& layer, const Rates& rates, const Step& step) {
  const double visible = layer.window > 0 ? std::min(step.context, static_cast<double>(layer.window)) : step.context;
  Computing c;
  c.product(rates.dense, step.rows, layer.attention_parameters);
  const double operations = step.rows * visible * layer.pair_operations / rates.attention_operations_per_s;
  const double reads = step.prompt ? 0 : step.rows * visible * layer.kv_bytes_per_token / rates.kv_bytes_per_s;
  c.add(std::max(operations, reads), reads);
  if (!step.prompt) c.add(step.rows * rates.attention_sequence_s, 0);
  c.add(step.rows * layer.row_floats * rates.float_s + kAttentionCalls * rates.call_s, 0);
  c.at_least(rates.floor_s);
  if (layer.sparse) c.product(rates.router, step.rows, layer.router_parameters);
  return c;
}

Computing experts(const ModelSizes& sizes, const LayerSizes& layer, const Rates& rates, const Step& step,
                  double used) {
  Computing c;
  if (layer.sparse) {
    const double rows_each = step.rows * static_cast<double>(sizes.top_k) / used;
    const double each = rates.experts.seconds(rows_each, sizes.expert_parameters);
    c.add(used * std::max(each, rates.floor_s), used * rates.experts.reading(sizes.expert_parameters));
    c.add(kExpertCalls * rates.call_s, 0);
  }
  c.product(rates.dense, step.rows, layer.mlp_parameters);
  return c;
}

/// What link and drive bring for a layer.
struct Bringing {
  double by_link = 0, by_drive = 0;            ///< experts
  double link_each = 0, drive_each = 0;        ///< seconds
  double link() const { return by_link * link_each; }
  double drive() const { return by_drive * drive_each; }
  double longest() const { return std::max(link(), drive()); }
  /// Time until the last has come, of which this share begins only now; `computing`: of the one that comes last.
  double arrives(double late, double computing) const {
    const double through_link = std::min(1.0, late * by_link), from_drive = std::min(1.0, late * by_drive);
    const double one = through_link * link_each + from_drive * drive_each;  // drive and link after one another
    return std::max(late * longest(), one) + std::max(through_link, from_drive) * computing;
  }
};

Bringing bringing(const ModelSizes& sizes, const Rates& rates, const Residency& at, double used) {
  const auto bytes = static_cast<double>(sizes.expert_bytes);
  Bringing b;
  b.by_link = at.device_memory ? used * (1 - at.device_share) : 0;
  b.by_drive = (at.device_memory ? b.by_link : used) * (1 - at.host_share);
  if (b.by_link > 0) {
    MOESTRO_CHECK(rates.link_bytes_per_s.has_value(), "a device with its own memory has a link");
    b.link_each = bytes / *rates.link_bytes_per_s + rates.link_latency_s;
  }
  if (b.by_drive > 0) {
    MOESTRO_CHECK(rates.drive_bytes_per_s.has_value(), "experts are read from a drive of known speed");
    b.drive_each = bytes / *rates.drive_bytes_per_s;
  }
  return b;
}

void add_head(StepForecast& f, const ModelSizes& sizes, const Rates& rates, const Step& step) {
  Computing c;
  c.product(rates.dense, step.logit_rows, sizes.head_parameters);
  const double logits = step.logit_rows * static_cast<double>(sizes.vocab);
  c.add(logits * rates.logit_s + step.rows * static_cast<double>(sizes.hidden) * rates.float_s, 0);
  c.add(kHeadCalls * rates.call_s, 0);
  f.head_seconds = c.seconds;
  f.compute_seconds += c.seconds, f.reading_seconds += c.reading;
  f.seconds += c.seconds, f.least_seconds += c.seconds, f.most_seconds += c.seconds;
}

}  // namespace

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kLink: return "link";
    case Lane::kDrive: return "drive";
  }
  return "";
}

double StepForecast::busy(Lane lane) const {
  return lane == Lane::kCompute ? compute_seconds : lane == Lane::kLink ? link_seconds : drive_seconds;
}

Lane StepForecast::bound() const {
  Lane longest = Lane::kCompute;
  for (const Lane lane : {Lane::kLink, Lane::kDrive})
    if (busy(lane) > busy(longest)) longest = lane;
  return longest;
}

StepForecast forecast_step(const ModelSizes& sizes, const Rates& rates, const Residency& at, const Step& step) {
  StepForecast f;
  const auto all = static_cast<double>(sizes.experts);
  f.experts_used = distinct_experts(all, static_cast<double>(sizes.top_k), step.rows);
  const double certain = f.experts_used / all;
  const double foreseen = at.prefetch ? std::clamp(at.foreseen.value_or(certain), 0.0, 1.0) : 0;
  for (const LayerSizes& layer : sizes.layers) {
    const Computing first = attention(layer, rates, step), then = experts(sizes, layer, rates, step, f.experts_used);
    const Bringing b = layer.sparse ? bringing(sizes, rates, at, f.experts_used) : Bringing{};
    const double one = std::max(rates.experts.reading(sizes.expert_parameters), rates.floor_s);
    const double least = std::max(first.seconds + then.seconds, b.longest());
    const auto waiting = [&](double late) {
      return std::max(least, first.seconds + std::max(then.seconds, b.arrives(late, one)));
    };
    f.seconds += waiting(1 - foreseen), f.least_seconds += least, f.most_seconds += waiting(1);
    f.compute_seconds += first.seconds + then.seconds;
    f.reading_seconds += first.reading + then.reading;
    f.attention_seconds += first.seconds, f.expert_seconds += then.seconds;
    f.link_seconds += b.link(), f.drive_seconds += b.drive();
    f.link_bytes += b.by_link * static_cast<double>(sizes.expert_bytes);
    f.drive_bytes += b.by_drive * static_cast<double>(sizes.expert_bytes);
  }
  add_head(f, sizes, rates, step);
  return f;
}

}  // namespace moestro::planner
