#include "common/planner/group_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/check.h"

namespace moestro::planner {
namespace {

using lanes::TaskKind;

Nanos nanos(double seconds) { return Nanos(std::llround(seconds * 1e9)); }

double output_parameters(const ModelSizes& sizes, const LayerSizes& layer) {
  return layer.output_width * static_cast<double>(sizes.hidden);
}

bool is_cgo(const Arrangement& a) { return a.schedule == ScheduleName::kCgo; }

/// What link and lanes carry for a layer, in seconds and bytes.
struct LayerLoad {
  double compute = 0, in = 0, out = 0, host = 0, drive = 0;
  double waits = 0;  ///< what the layer takes at least because tasks wait for one another
  double experts_used = 0, attention = 0, experts = 0, in_bytes = 0, drive_bytes = 0;
  double longest() const { return std::max({compute, in, out, host, drive, waits}); }
};

/// One phase of a candidate.
class GroupForecast {
 public:
  GroupForecast(const PlanInput& in, const Arrangement& a, const PhaseSteps& steps, const GroupTimes& times)
      : sizes_(in.sizes), a_(a), steps_(steps), times_(times), m_(static_cast<double>(steps.micro_batches)) {}

  LayerLoad pipeline(const LayerSizes& layer) const {
    LayerLoad load;
    const double front_each = times_.attention(layer) + times_.router(layer), front = m_ * front_each;
    move_cache(layer, load);
    if (const double streamed = (1 - a_.dense_share) * layer_dense_bytes(sizes_, layer); streamed > 0)
      bring(load, times_.link(streamed), streamed);
    const double mlp = times_.mlp(layer, steps_.all.rows);
    load.attention = front;
    if (!layer.sparse) return load.compute = front + mlp, load;
    const auto all = static_cast<double>(sizes_.experts);
    const double used = distinct_experts(all, static_cast<double>(sizes_.top_k), steps_.all.rows);
    const double each = times_.expert(steps_.all.rows * static_cast<double>(sizes_.top_k) / used);
    const double missing = std::max(times_.ahead(), used) * (1 - times_.resident() / all);
    load.experts_used = used, load.experts = used * each + mlp + times_.around_experts();
    load.compute = front + load.experts;
    bring(load, missing * times_.read(), missing * static_cast<double>(sizes_.expert_bytes));
    load.drive = missing * times_.drive_read(), load.drive_bytes = missing * times_.drive_bytes();
    if (missing > 0) {
      // What is not there when the routers have chosen comes while the others are computed.
      const auto slots = static_cast<double>(times_.slots());
      const double foreseen = times_.ahead() * (1 - times_.resident() / all);
      const double before = std::min(slots, std::max(foreseen, (front - front_each) / times_.read()));
      load.waits = front + std::max(0.0, missing - before) * times_.read() + each;
      if (before >= missing) load.waits = 0;
    }
    return load;
  }

  LayerLoad cgo(const LayerSizes& layer) const {
    LayerLoad load;
    const auto all = static_cast<double>(sizes_.experts);
    const double rows = steps_.micro.rows, width = layer.output_width;
    const double number = times_.hidden_bytes();
    const double sent = number * (layer.attention_parameters / static_cast<double>(sizes_.hidden) - width);
    const double pre = times_.qkv(layer), attend = times_.attend(layer);
    double post = times_.output(layer) + times_.router(layer) + times_.mlp(layer, rows);
    load.attention = m_ * (pre + times_.output(layer) + times_.router(layer));
    if (layer.sparse) {
      const double used = distinct_experts(all, static_cast<double>(sizes_.top_k), rows);
      const double experts =
          used * times_.expert(rows * static_cast<double>(sizes_.top_k) / used) + times_.around_experts();
      load.experts_used = distinct_experts(all, static_cast<double>(sizes_.top_k), steps_.all.rows);
      load.experts = m_ * (experts + times_.mlp(layer, rows));
      post += experts;
    }
    const double down = times_.link(rows * sent), up = times_.link(rows * number * width);
    const double streamed = times_.device_decides() ? times_.missing_bytes(layer)
                                                    : (1 - a_.dense_share) * layer_bytes(sizes_, layer);
    if (streamed > 0) bring(load, m_ * times_.link(streamed / m_), streamed);
    bring(load, m_ * up, m_ * rows * number * width);
    load.compute = m_ * (pre + post), load.host = m_ * attend, load.out = m_ * down;
    // A micro-batch passes all lanes; three of them are on their way at once.
    load.waits = m_ / std::min(m_, 3.0) * (pre + down + attend + up + post);
    return load;
  }

 private:
  static void bring(LayerLoad& load, double seconds, double bytes) { load.in += seconds, load.in_bytes += bytes; }
  void move_cache(const LayerSizes& layer, LayerLoad& load) const {
    const double moved = (1 - a_.kv_share) * layer.kv_bytes_per_token;
    if (moved <= 0) return;
    if (steps_.cached > 0) bring(load, m_ * times_.link(moved * steps_.cached), m_ * moved * steps_.cached);
    load.out += m_ * times_.link(moved * steps_.micro.rows);
  }

  const ModelSizes& sizes_;
  const Arrangement& a_;
  const PhaseSteps& steps_;
  const GroupTimes& times_;
  const double m_;
};

}  // namespace

GroupTimes::GroupTimes(const PlanInput& in, const Arrangement& a, const Placement& placement, const PhaseSteps& steps)
    : in_(in), sizes_(in.sizes), rates_(in.rates), steps_(steps) {
  const auto bytes = static_cast<double>(sizes_.expert_bytes);
  const int64_t room = has_link() ? placement.device_experts : placement.host_experts;
  const auto all = static_cast<double>(sizes_.experts);
  ahead_ = a.ahead ? all : 0;
  if (is_cgo(a) && !device_decides()) {  // of its prompts, which use the room for the layer at hand and the next
    resident_ = a.dense_share * all, ahead_ = all;
    slots_ = 2 * sizes_.experts;
  } else {
    const double used = used_share(sizes_, steps.all.rows);
    double staying = static_cast<double>(std::max<int64_t>(0, room - a.slots));
    if (device_decides()) {
      staying = staying_experts(room, sizes_.all_experts(), used);
      ahead_ = in.prefetch ? all * used * in.foreseen.value_or(used) : 0;
    }
    if (room >= sizes_.all_experts()) staying = static_cast<double>(sizes_.all_experts());
    slots_ = device_decides() ? room - static_cast<int64_t>(staying) : a.slots;
    slots_ = std::max<int64_t>(1, slots_);
    resident_ = staying / static_cast<double>(sizes_.moe_layers);
  }
  const bool from_drive = placement.needs_drive() && rates_.drive_bytes_per_s;
  if (from_drive) drive_bytes_ = has_link() ? (1 - placement.host_share()) * bytes : bytes;
  if (from_drive) drive_read_ = drive_bytes_ / *rates_.drive_bytes_per_s;
  // The drive reads some while the link brings others.
  read_ = has_link() ? std::max(link(bytes), drive_read_) : drive_read_;
}

double GroupTimes::link(double bytes) const {
  MOESTRO_CHECK(rates_.link_bytes_per_s.has_value(), "a device with its own memory has a link");
  return bytes / *rates_.link_bytes_per_s + rates_.link_latency_s;
}

double GroupTimes::qkv(const LayerSizes& layer) const {
  const double parameters = layer.attention_parameters - output_parameters(sizes_, layer);
  return std::max(rates_.floor_s, rates_.dense.seconds(steps_.micro.rows, parameters) +
                                      around_attention(layer, rates_, steps_.micro.rows));
}

double GroupTimes::output(const LayerSizes& layer) const {
  return std::max(rates_.floor_s, rates_.dense.seconds(steps_.micro.rows, output_parameters(sizes_, layer)));
}

/// Under even routing, as the pipeline counts them.
double GroupTimes::missing_bytes(const LayerSizes& layer) const {
  if (!layer.sparse) return 0;
  const auto all = static_cast<double>(sizes_.experts);
  const double used = distinct_experts(all, static_cast<double>(sizes_.top_k), steps_.all.rows);
  return std::max(ahead(), used) * (1 - resident() / all) * static_cast<double>(sizes_.expert_bytes);
}

double GroupTimes::attend(const LayerSizes& layer) const {
  if (device_decides()) return attending_time(layer, rates_, steps_.micro).seconds;
  const double rows = steps_.micro.rows, visible = rows * steps_.micro.context;
  MOESTRO_CHECK(rates_.host_bytes_per_s && rates_.host_operations_per_s, "a host that attends has rates");
  return std::max(visible * layer.pair_operations / *rates_.host_operations_per_s,
                  (steps_.cached + rows) * layer.kv_bytes_per_token / *rates_.host_bytes_per_s);
}

Nanos GroupTimes::duration(const lanes::Task& task) const {
  const LayerSizes* const layer = task.layer < 0 ? nullptr : &sizes_.layers[static_cast<size_t>(task.layer)];
  const bool all = task.micro_batch == lanes::kAllMicroBatches;
  const double rows = (all ? steps_.all : steps_.micro).rows;
  switch (task.kind) {
    case TaskKind::kEmbed: return nanos(rows * static_cast<double>(sizes_.hidden) * rates_.float_s);
    case TaskKind::kAttention: return nanos(attention(*layer));
    case TaskKind::kRouter: return nanos(router(*layer));
    case TaskKind::kDenseMlp:
    case TaskKind::kSharedExpert: return nanos(mlp(*layer, rows));
    case TaskKind::kExpertRead: return nanos(read());
    case TaskKind::kExpert: return nanos(expert(task.rows));
    case TaskKind::kLayerExperts: {
      const double used = std::max(1.0, task.cost.bytes / static_cast<double>(sizes_.expert_bytes));
      return nanos(used * expert(task.rows / used));
    }
    case TaskKind::kCombine: return nanos(around_experts());
    case TaskKind::kHead: return nanos(head_time(sizes_, rates_, steps_.all).seconds);
    case TaskKind::kWeightRead:
    case TaskKind::kKvLoad:
    case TaskKind::kKvSave:
    case TaskKind::kQkvSend:
    case TaskKind::kHiddenLoad: return nanos(link(task.cost.bytes));
    case TaskKind::kQkv: return nanos(qkv(*layer));
    case TaskKind::kAttend: return nanos(attend(*layer));
    case TaskKind::kOutput: return nanos(output(*layer));
  }
  return Nanos(0);
}

lanes::LaneRates GroupTimes::lanes() const {
  lanes::LaneRates lanes;
  const auto add = [&](lanes::Lane lane, bool interrupts) {
    lanes[static_cast<size_t>(lane)] = lanes::LaneRate{.interrupts = interrupts};
  };
  add(lanes::Lane::kCompute, false);
  add(lanes::Lane::kHostToDevice, true);  // on the CPU: from the drive
  if (has_link()) add(lanes::Lane::kDeviceToHost, false);
  if (rates_.host_bytes_per_s || (device_decides() && has_link())) add(lanes::Lane::kHostCompute, false);
  return lanes;
}

StepForecast forecast_group(const PlanInput& in, const Arrangement& a, const Placement& placement,
                            const PhaseSteps& steps) {
  const GroupTimes times(in, a, placement, steps);
  const GroupForecast forecast(in, a, steps, times);
  StepForecast f;
  const bool attends_on_host = is_cgo(a) && !steps.all.prompt;
  each_run(in.sizes, [&](const LayerSizes& layer, double count) {
    const LayerLoad load = attends_on_host ? forecast.cgo(layer) : forecast.pipeline(layer);
    f.seconds += count * load.longest();
    f.compute_seconds += count * load.compute, f.attention_seconds += count * load.attention;
    f.expert_seconds += count * load.experts, f.host_seconds += count * load.host;
    f.link_out_seconds += count * load.out, f.drive_seconds += count * load.drive;
    f.drive_bytes += count * load.drive_bytes;
    if (times.has_link()) f.link_seconds += count * load.in, f.link_bytes += count * load.in_bytes;
    f.experts_used = std::max(f.experts_used, load.experts_used);
  });
  f.reading_seconds = static_cast<double>(in.sizes.moe_layers) * f.experts_used *
                      in.rates.experts.reading(in.sizes.expert_parameters);
  f.least_seconds = f.most_seconds = f.seconds;
  add_head(f, in.sizes, in.rates, steps.all);
  return f;
}

}  // namespace moestro::planner
