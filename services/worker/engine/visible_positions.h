#pragma once
// Which positions queries see: a window of the last positions, and attention sinks before it (StreamingLLM, Xiao et al.
// 2023).
//
// As in the paper, positions count within the visible part. In the window, queries and keys are rotated by their true
// positions, so distances are the true ones. The sinks count as directly before the window, so sink j is at distance
// sinks + window - 1 - j. RoPE depends only on distances: the sinks' keys keep the positions at which they were
// written, 0 to sinks - 1, and for them a query is rotated to position sinks + window - 1. So no distance exceeds what
// the model was trained for, however long the sequence is.

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"

namespace moestro::engine {

/// Checks that the model can be used with a window (and sinks); an error names the reason.
Status check_visible(const VisiblePositions& asked, const model::ModelSpec& spec);

/// A layer's attention, with the smaller of its own window and the requested one.
kernels::AttentionShape attention_shape(const model::AttentionSpec& layer, const VisiblePositions& asked);

/// A layer's latent attention, which sees all positions.
kernels::LatentShape latent_shape(const model::LatentSpec& layer);

/// The most that queries see in all layers.
VisiblePositions visible_in_all(const model::ModelSpec& spec, const VisiblePositions& asked);

/// The maximum number of positions of a sequence. If every layer has a window, the cache releases blocks that are out
/// of sight, so its size is no bound. With a requested window, distances are bounded, so the model's context is no
/// bound either.
int64_t positions_max(const EngineOptions& options, const model::ModelSpec& spec, int64_t kv_blocks);

/// The position of a query at `position` for the sinks' keys.
constexpr int64_t sink_position(const kernels::AttentionShape& shape, int64_t position) {
  return shape.has_gap(position) ? shape.sinks + shape.window - 1 : position;
}

}  // namespace moestro::engine
