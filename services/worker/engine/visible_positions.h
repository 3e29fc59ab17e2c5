#pragma once
// What queries see of their sequence: a window of the last positions, and attention sinks before it (StreamingLLM, Xiao
// et al. 2023).
//
// Positions are those within what is seen, as in the paper: in the window, where queries and keys are rotated by their
// true positions, distances are the true ones; the sinks stand right before the window, so that sink j is sinks +
// window - 1 - j away. RoPE depends on distances alone: the keys of the sinks keep the positions they were written at,
// 0 to sinks - 1, and a query meets them rotated as if it stood at sinks + window - 1. So no distance exceeds what the
// model was trained for, however long the sequence.

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"

namespace moestro::engine {

/// Whether the model can do with a window (and sinks): says by name what stands against it.
Status check_visible(const VisiblePositions& asked, const model::ModelSpec& spec);

/// A layer's attention; the smaller of its own window and the one asked for.
kernels::AttentionShape attention_shape(const model::AttentionSpec& layer, const VisiblePositions& asked);

/// What the queries of all layers see at most.
VisiblePositions visible_in_all(const model::ModelSpec& spec, const VisiblePositions& asked);

/// Positions of one sequence. Where every layer has a window the cache may let go of what is out of sight, so its size
/// bounds nothing. With a window that was asked for the distances that a query meets are bounded, so the model's
/// context does not either.
int64_t positions_max(const EngineOptions& options, const model::ModelSpec& spec, int64_t kv_blocks);

/// Where a query at `position` stands for the sinks' keys.
constexpr int64_t sink_position(const kernels::AttentionShape& shape, int64_t position) {
  return shape.has_gap(position) ? shape.sinks + shape.window - 1 : position;
}

}  // namespace moestro::engine
