#pragma once
// What the tasks of a layer cost. All schedules count alike.

#include "common/lanes/schedule.h"

namespace moestro::lanes {

/// Scores, softmax and sums of values. KV is read once, that of the rows themselves included.
inline Cost attend_cost(const LayerShape& layer, const MicroBatchShape& rows) {
  return {static_cast<double>(rows.context) * layer.attention_flops_per_position,
          static_cast<double>(rows.cached + rows.tokens) * layer.kv_bytes_per_token};
}

/// A product of `rows` rows with weights.
inline Cost product_cost(int64_t rows, double parameters, double weight_bytes) {
  return {2 * static_cast<double>(rows) * parameters, weight_bytes};
}

/// Attention with its projections.
inline Cost attention_cost(const LayerShape& layer, const MicroBatchShape& rows) {
  const Cost attend = attend_cost(layer, rows);
  const Cost projections = product_cost(rows.tokens, layer.attention_parameters, layer.attention_weight_bytes);
  return {attend.flops + projections.flops, attend.bytes + projections.bytes};
}

inline Cost router_cost(const LayerShape& layer, int64_t rows) {
  return product_cost(rows, layer.router_parameters, layer.router_weight_bytes);
}
inline Cost dense_mlp_cost(const LayerShape& layer, int64_t rows) {
  return product_cost(rows, layer.dense_parameters, layer.dense_weight_bytes);
}
inline Cost shared_expert_cost(const LayerShape& layer, int64_t rows) {
  return product_cost(rows, layer.shared_parameters, layer.shared_weight_bytes);
}
/// Of `experts` experts that have so many rows together.
inline Cost experts_cost(const LayerShape& layer, int32_t experts, int64_t rows) {
  return product_cost(rows, layer.expert_parameters, experts * layer.expert_bytes);
}

/// A layer's dense weights, where not all stay.
inline Task read_weights(const LayerShape& layer, int32_t index) {
  return {.lane = layer.streamed_by_link ? Lane::kHostToDevice : Lane::kStoreRead,
          .kind = TaskKind::kWeightRead,
          .layer = index,
          .cost = {0, layer.streamed_bytes}};
}

inline Cost embed_cost(const ModelShape& model, const StepShape& step) {
  return {0, static_cast<double>(step.tokens) * model.embed_bytes_per_token};
}
inline bool has_head(const StepShape& step) { return step.logit_rows > 0 || step.summed > 0; }
inline Cost head_cost(const ModelShape& model, const StepShape& step) {
  return product_cost(step.logit_rows, model.head_parameters, step.logit_rows > 0 ? model.head_weight_bytes : 0);
}

}  // namespace moestro::lanes
