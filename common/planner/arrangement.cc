#include "common/planner/arrangement.h"

#include <algorithm>
#include <cmath>

namespace moestro::planner {
namespace {

constexpr double kRingOfKv = 3;      ///< micro-batches whose KV cache is on the device: coming, in use, going
constexpr double kWeightBuffers = 2; ///< layers whose streamed weights are on the device
constexpr double kFloat = 4;

uint64_t whole(double bytes) { return static_cast<uint64_t>(std::ceil(std::max(0.0, bytes))); }

/// Hidden states of a step's rows that wait while others compute, and the rows that experts have written.
double waiting_rows_bytes(const PlanInput& in, const Arrangement& a) {
  const double others = prompt_steps(in.workload, a).all.rows - static_cast<double>(in.workload.step_tokens);
  return std::max(0.0, others) * static_cast<double>(in.sizes.hidden * (2 + in.sizes.top_k)) * kFloat;
}

/// Workers have buffers for all rows of a step. What no GPU's worker runs is counted as its paper has it: one
/// micro-batch of a step is computed at a time.
void grow_workspace(const PlanInput& in, const Arrangement& a, Needs& needs) {
  const bool published = a.schedule == ScheduleName::kCgo || a.dense_share < 1;
  if (in.memories.device == Memories::Device::kWhole && published) {
    needs.workspace_bytes += whole(waiting_rows_bytes(in, a));
    return;
  }
  if (a.schedule != ScheduleName::kLayerwise)
    needs.workspace_bytes = std::max(
        {needs.workspace_bytes, needs.pipeline_workspace_bytes,
         a.schedule == ScheduleName::kCgo ? needs.cgo_workspace_bytes : 0});
  needs.workspace_bytes *= static_cast<uint64_t>(step_tokens(in.workload, a) / in.workload.step_tokens);
}

/// A device whose memory does not have all of what is used again and again.
void stream(const PlanInput& in, const Arrangement& a, Needs& needs) {
  double dense = 0, largest = 0, kv_largest = 0;
  for (const LayerSizes& layer : in.sizes.layers) {
    dense += layer_dense_bytes(in.sizes, layer);
    largest = std::max(largest, a.schedule == ScheduleName::kCgo ? layer_bytes(in.sizes, layer)
                                                                 : layer_dense_bytes(in.sizes, layer));
    kv_largest = std::max(kv_largest, layer.kv_bytes_per_token);
  }
  const double streamed = 1 - a.dense_share;
  if (streamed > 0)
    needs.device_dense_bytes =
        whole(static_cast<double>(needs.dense_bytes) - streamed * dense + kWeightBuffers * streamed * largest);
  const double moved = 1 - a.kv_share, kv = static_cast<double>(needs.kv_bytes);
  if (moved <= 0) return;
  needs.host_kv_bytes = whole(moved * kv);
  // cgo moves none: the host attends. On a worker's device its prompts do, and so any micro-batch has a place.
  const bool gpu = in.memories.device == Memories::Device::kWhole;
  const double each = !gpu ? kRingOfKv : a.schedule == ScheduleName::kCgo
                                           ? 0 : std::min(kRingOfKv, static_cast<double>(a.micro_batches));
  const double tokens = static_cast<double>(a.rows * round_up(in.workload.kv_positions(), kKvTokensPerBlock));
  needs.kv_bytes = whole((1 - moved) * kv + moved * each * tokens * kv_largest);
}

/// Into at most so many micro-batches of whole sequences, which have about `rows_each` rows in a step.
PhaseSteps cut(PhaseSteps steps, int64_t micro_batches, double rows_each) {
  const auto sequences = static_cast<int64_t>(std::ceil(steps.all.rows / rows_each));
  steps.micro_batches = std::clamp<int64_t>(micro_batches, 1, std::max<int64_t>(1, sequences));
  const auto parts = static_cast<double>(steps.micro_batches);
  steps.micro = steps.all;
  steps.micro.rows /= parts, steps.micro.logit_rows /= parts;
  return steps;
}

}  // namespace

double layer_dense_bytes(const ModelSizes& sizes, const LayerSizes& layer) {
  return sizes.weight_bytes(layer.attention_parameters + layer.memory_parameters + layer.mlp_parameters) +
         kFloat * layer.router_parameters;
}

double layer_bytes(const ModelSizes& sizes, const LayerSizes& layer) {
  const uint64_t experts = layer.sparse ? static_cast<uint64_t>(sizes.experts) * sizes.expert_bytes : 0;
  return layer_dense_bytes(sizes, layer) + static_cast<double>(experts);
}

int64_t step_tokens(const Workload& w, const Arrangement& a) {
  return w.steps_grow ? a.micro_batches * w.step_tokens : w.step_tokens;
}

double used_share(const ModelSizes& sizes, double rows) {
  const auto all = static_cast<double>(sizes.experts);
  return distinct_experts(all, static_cast<double>(sizes.top_k), rows) / all;
}

double staying_experts(int64_t room, int64_t all, double used) {
  constexpr double kOnTheirWay = 3;
  if (room >= all) return static_cast<double>(all);
  return std::max(0.0, static_cast<double>(room) - kOnTheirWay * used);
}

PhaseSteps prompt_steps(const Workload& w, const Arrangement& a) {
  const auto prompt = static_cast<double>(w.prompt),
             sequences = static_cast<double>(std::min(a.sequences(), w.sequences));
  PhaseSteps steps;
  steps.tokens = prompt * static_cast<double>(w.sequences);
  double rows = std::min(static_cast<double>(step_tokens(w, a)), sequences * prompt);
  if (w.sources) rows = std::max(1.0, std::floor(rows / prompt)) * prompt;
  steps.all = {.rows = rows, .logit_rows = rows / prompt, .context = (prompt + 1) / 2, .prompt = true};
  if (w.sources) steps.all.logit_rows = 0, steps.all.context = prompt;  // each position sees all others
  steps.steps = std::max(1.0, steps.tokens / rows);
  steps = cut(steps, a.micro_batches, std::min(prompt, static_cast<double>(w.step_tokens)));
  // A prompt that is longer than a micro-batch comes in parts, each of which sees those before.
  if (steps.micro.rows < prompt) steps.cached = (prompt - steps.micro.rows) / 2;
  return steps;
}

PhaseSteps decode_steps(const Workload& w, const Arrangement& a) {
  const auto sequences = static_cast<double>(std::min(a.sequences(), w.sequences));
  PhaseSteps steps;
  steps.tokens = static_cast<double>(w.generate * w.sequences);
  const double rows = std::min(sequences, static_cast<double>(step_tokens(w, a)));
  const double before = w.sources ? 0 : static_cast<double>(w.prompt);
  const double context = before + (static_cast<double>(w.generate) + 1) / 2;
  steps.all = {.rows = rows, .logit_rows = rows, .context = context};
  if (w.sources) steps.all.memory = static_cast<double>(w.prompt);
  steps.steps = std::max(static_cast<double>(w.generate), steps.tokens / rows);
  steps = cut(steps, a.micro_batches, 1);
  steps.cached = steps.micro.rows * (context - 1);
  return steps;
}

Needs needs_of(const PlanInput& in, const Arrangement& a) {
  Needs needs = in.needs;
  const int64_t sequences = std::min(a.sequences(), in.workload.sequences);
  needs.kv_bytes = in.sizes.kv_bytes(sequences, in.workload.kv_positions());
  needs.state_bytes = static_cast<uint64_t>(sequences) * in.sizes.state_bytes;
  grow_workspace(in, a, needs);
  if (in.memories.device_has_kv()) stream(in, a, needs);
  return needs;
}

/// Layers take turns on a GPU with the schedule that its workers run; the others stream a share of each layer.
Result<Placement> place(const PlanInput& in, const Arrangement& a) {
  Memories memories = in.memories;
  if (memories.device == Memories::Device::kWhole && a.schedule != ScheduleName::kLayerwise)
    memories.counts_dense = false;
  return place(needs_of(in, a), memories);
}

double largest_weight_share(const PlanInput& in, Arrangement a) {
  const auto taken = [&](double share) {
    a.dense_share = share;
    const Needs n = needs_of(in, a);
    const double dense = static_cast<double>(n.device_dense_bytes.value_or(n.dense_bytes));
    const double experts = share * static_cast<double>(static_cast<uint64_t>(n.experts) * n.slot_bytes);
    return dense + experts + static_cast<double>(n.kv_bytes + n.state_bytes + n.workspace_bytes);
  };
  // What is taken grows evenly with the share.
  const auto there = static_cast<double>(in.memories.device_bytes);
  const double none = taken(0), all = taken(1);
  return all <= there ? 1 : std::clamp((there - none) / (all - none), 0.0, 1.0);
}

}  // namespace moestro::planner
