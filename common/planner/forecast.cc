#include "common/planner/forecast.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::planner {
namespace {

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

/// Attention with its router.
Computing front_time(const LayerSizes& layer, const Rates& rates, const Step& step) {
  Computing c = attention_time(layer, rates, step);
  c.add(router_time(layer, rates, step.rows));
  return c;
}

Computing back_time(const ModelSizes& sizes, const LayerSizes& layer, const Rates& rates, double rows, double used) {
  Computing c;
  if (layer.sparse) c.add(experts_time(sizes, rates, rows, used));
  c.add(mlp_time(layer, rates, rows));
  return c;
}

/// Which layer comes next is known, so drive or link bring dense weights while others compute, as long as they keep up.
void add_streamed(StepForecast& f, const Rates& rates, const Residency& at) {
  const auto& rate = at.streamed_by_link ? rates.link_bytes_per_s : rates.drive_bytes_per_s;
  MOESTRO_CHECK(rate.has_value(), "dense weights are brought from somewhere of known speed");
  double seconds = at.streamed_bytes / *rate;
  if (at.streamed_by_link) seconds += at.streamed_layers * rates.link_latency_s;
  (at.streamed_by_link ? f.link_bytes : f.drive_bytes) += at.streamed_bytes;
  double& lane = at.streamed_by_link ? f.link_seconds : f.drive_seconds;
  lane += seconds;
  f.seconds = std::max(f.seconds, lane);
  f.least_seconds = std::max(f.least_seconds, lane);
  f.most_seconds += seconds;
}

/// An encoder's pass ends with what it leaves for this layer of the decoder.
void add_memory(StepForecast& f, const LayerSizes& layer, double count, const Rates& rates, const Step& step) {
  const Computing c = memory_time(layer, rates, step.rows);
  f.attention_seconds += count * c.seconds;
  f.compute_seconds += count * c.seconds, f.reading_seconds += count * c.reading;
  f.seconds += count * c.seconds, f.least_seconds += count * c.seconds, f.most_seconds += count * c.seconds;
}

}  // namespace

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kLink: return "link";
    case Lane::kDrive: return "drive";
    case Lane::kLinkOut: return "link out";
    case Lane::kHost: return "host";
  }
  return "";
}

double StepForecast::busy(Lane lane) const {
  switch (lane) {
    case Lane::kCompute: return compute_seconds;
    case Lane::kLink: return link_seconds;
    case Lane::kDrive: return drive_seconds;
    case Lane::kLinkOut: return link_out_seconds;
    case Lane::kHost: return host_seconds;
  }
  return 0;
}

Lane StepForecast::bound() const {
  Lane longest = Lane::kCompute;
  for (const Lane lane : kLanes)
    if (busy(lane) > busy(longest)) longest = lane;
  return longest;
}

void add_head(StepForecast& f, const ModelSizes& sizes, const Rates& rates, const Step& step) {
  const Computing c = head_time(sizes, rates, step);
  f.head_seconds = c.seconds;
  f.compute_seconds += c.seconds, f.reading_seconds += c.reading;
  f.seconds += c.seconds, f.least_seconds += c.seconds, f.most_seconds += c.seconds;
}

StepForecast forecast_step(const ModelSizes& sizes, const Rates& rates, const Residency& at, const Step& step) {
  StepForecast f;
  const auto all = static_cast<double>(sizes.experts);
  f.experts_used = distinct_experts(all, static_cast<double>(sizes.top_k), step.rows);
  const double certain = f.experts_used / all;
  const double foreseen = at.prefetch ? std::clamp(at.foreseen.value_or(certain), 0.0, 1.0) : 0;
  const bool sources = sizes.has_encoder() && step.prompt;
  each_run(sizes, [&](const LayerSizes& layer, double count) {
    if (sources && !layer.encoder) return add_memory(f, layer, count, rates, step);
    if (!sources && layer.encoder) return;
    const Computing first = front_time(layer, rates, step),
                    then = back_time(sizes, layer, rates, step.rows, f.experts_used);
    const Bringing b = layer.sparse ? bringing(sizes, rates, at, f.experts_used) : Bringing{};
    const double one = expert_seconds(sizes, rates, 1);
    const double least = std::max(first.seconds + then.seconds, b.longest());
    const auto waiting = [&](double late) {
      return std::max(least, first.seconds + std::max(then.seconds, b.arrives(late, one)));
    };
    f.seconds += count * waiting(1 - foreseen);
    f.least_seconds += count * least, f.most_seconds += count * waiting(1);
    f.compute_seconds += count * (first.seconds + then.seconds);
    f.reading_seconds += count * (first.reading + then.reading);
    f.attention_seconds += count * first.seconds, f.expert_seconds += count * then.seconds;
    f.link_seconds += count * b.link(), f.drive_seconds += count * b.drive();
    f.link_bytes += count * b.by_link * static_cast<double>(sizes.expert_bytes);
    f.drive_bytes += count * b.by_drive * static_cast<double>(sizes.expert_bytes);
  });
  add_head(f, sizes, rates, step);
  if (at.streamed_bytes > 0) add_streamed(f, rates, at);
  return f;
}

}  // namespace moestro::planner
