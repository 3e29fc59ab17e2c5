#include "common/planner/layer_times.h"

namespace moestro::planner {
namespace {

constexpr double kAttentionCalls = 12, kExpertCalls = 4, kHeadCalls = 3;  ///< operations around products
constexpr double kCrossCalls = 8;

}  // namespace

Computing attending_time(const LayerSizes& layer, const Rates& rates, const Step& step) {
  const double visible = layer.window > 0 ? std::min(step.context, static_cast<double>(layer.window)) : step.context;
  Computing c;
  const bool crosses = layer.memory_pair_operations > 0;
  const double pairs = visible * layer.pair_operations + step.memory * layer.memory_pair_operations;
  const double positions = visible + (crosses ? step.memory : 0);
  const double operations = step.rows * pairs / rates.attention_operations_per_s;
  const double reads = step.prompt ? 0 : step.rows * positions * layer.kv_bytes_per_token / rates.kv_bytes_per_s;
  c.add(std::max(operations, reads), reads);
  if (!step.prompt) c.add((crosses ? 2 : 1) * step.rows * rates.attention_sequence_s, 0);
  return c;
}

double around_attention(const LayerSizes& layer, const Rates& rates, double rows) {
  const double calls = layer.memory_pair_operations > 0 ? kAttentionCalls + kCrossCalls : kAttentionCalls;
  return rows * layer.row_floats * rates.float_s + calls * rates.call_s;
}

Computing attention_time(const LayerSizes& layer, const Rates& rates, const Step& step) {
  Computing c;
  c.product(rates.dense, step.rows, layer.attention_parameters);
  c.add(attending_time(layer, rates, step));
  c.add(around_attention(layer, rates, step.rows), 0);
  c.at_least(rates.floor_s);
  return c;
}

Computing memory_time(const LayerSizes& layer, const Rates& rates, double rows) {
  Computing c;
  c.product(rates.dense, rows, layer.memory_parameters);
  return c;
}

Computing router_time(const LayerSizes& layer, const Rates& rates, double rows) {
  Computing c;
  if (layer.sparse) c.product(rates.router, rows, layer.router_parameters);
  return c;
}

double around_experts(const Rates& rates) { return kExpertCalls * rates.call_s; }

double expert_seconds(const ModelSizes& sizes, const Rates& rates, double rows) {
  return std::max(rates.experts.seconds(rows, sizes.expert_parameters), rates.floor_s);
}

Computing experts_time(const ModelSizes& sizes, const Rates& rates, double rows, double used) {
  Computing c;
  const double each = expert_seconds(sizes, rates, rows * static_cast<double>(sizes.top_k) / used);
  c.add(used * each, used * rates.experts.reading(sizes.expert_parameters));
  c.add(around_experts(rates), 0);
  return c;
}

Computing mlp_time(const LayerSizes& layer, const Rates& rates, double rows) {
  Computing c;
  c.product(rates.dense, rows, layer.mlp_parameters);
  return c;
}

Computing head_time(const ModelSizes& sizes, const Rates& rates, const Step& step) {
  Computing c;
  c.product(rates.dense, step.logit_rows, sizes.head_parameters);
  const double logits = step.logit_rows * static_cast<double>(sizes.vocab);
  c.add(logits * rates.logit_s + step.rows * static_cast<double>(sizes.hidden) * rates.float_s, 0);
  c.add(kHeadCalls * rates.call_s, 0);
  return c;
}

}  // namespace moestro::planner
