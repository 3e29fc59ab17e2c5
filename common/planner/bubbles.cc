#include "common/planner/bubbles.h"

#include <algorithm>

#include "common/planner/group_times.h"

namespace moestro::planner {

std::vector<Inequality> bubbles(const PlanInput& in, const Arrangement& a, const Placement& placement) {
  const PhaseSteps steps = decode_steps(in.workload, a);
  const GroupTimes times(in, a, placement, steps);
  const auto layer = std::ranges::find_if(in.sizes.layers, &LayerSizes::sparse);
  const double m = static_cast<double>(steps.micro_batches), all = static_cast<double>(in.sizes.experts),
               top_k = static_cast<double>(in.sizes.top_k);
  const double used = distinct_experts(all, top_k, steps.all.rows), hot = std::min(top_k, used), others = used - hot;
  const double missing = 1 - times.resident() / all;
  const double expert = times.expert(steps.all.rows * top_k / used), read = missing * times.read();
  const auto streamed = [&](double parameters_bytes) {
    const double bytes = (1 - a.dense_share) * parameters_bytes;
    return bytes > 0 ? times.link(bytes) : 0;
  };
  const double gate = streamed(4 * layer->router_parameters),
               attention = streamed(in.sizes.weight_bytes(layer->attention_parameters));
  const double moved = (1 - a.kv_share) * layer->kv_bytes_per_token * steps.cached;
  const double cache = moved > 0 ? m * times.link(moved) : 0;
  const double attending = m * times.attention(*layer), front = attending + m * times.router(*layer);
  return {{"the router, while micro-batches attend", attending, cache + gate},
          {"the experts that are used most, before experts compute", front, cache + gate + hot * read},
          {"one expert more, while those compute", front + hot * expert, cache + gate + (hot + 1) * read},
          {"all other experts and the next layer's attention, while experts compute",
           front + used * expert, cache + gate + (hot + others) * read + attention}};
}

std::optional<int64_t> bubble_free_micro_batches(const PlanInput& in, Arrangement a, const Placement& placement,
                                                 int64_t most) {
  PlanInput any = in;  // of as many sequences as it takes
  for (int64_t m = 1; m <= most; ++m) {
    a.micro_batches = m;
    any.workload.sequences = std::max(in.workload.sequences, a.sequences());
    if (std::ranges::all_of(bubbles(any, a, placement), [](const Inequality& i) { return i.short_s() == 0; })) return m;
  }
  return std::nullopt;
}

}  // namespace moestro::planner
