#include "services/worker/engine/visible_positions.h"

#include <algorithm>
#include <string>

namespace moestro::engine {

Status check_visible(const VisiblePositions& asked, const model::ModelSpec& spec) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  if (asked.sinks < 0) return invalid_argument("--kv-sinks " + number(asked.sinks) + " is negative");
  if (asked.window < 0) return invalid_argument("--kv-window " + number(asked.window) + " is negative");
  if (asked.window == 0 && asked.sinks > 0)
    return invalid_argument("--kv-sinks " + number(asked.sinks) +
                            " without --kv-window: sinks are seen in addition to a window");
  if (asked.window == 0) return Status::ok();
  if (asked.sinks > spec.max_position || asked.window > spec.max_position ||
      asked.sinks + asked.window > spec.max_position)
    return invalid_argument("--kv-sinks " + number(asked.sinks) + " and --kv-window " + number(asked.window) +
                            " together are more than the model's context of " + number(spec.max_position) + " tokens");
  if (spec.rope.scaling == model::RopeSpec::Scaling::kDynamic)
    return unsupported(
        "--kv-window with dynamic scaling of RoPE: its frequencies depend on the length of the sequence");
  return Status::ok();
}

kernels::AttentionShape attention_shape(const model::AttentionSpec& layer, const VisiblePositions& asked) {
  int64_t window = asked.window > 0 ? asked.window : layer.sliding_window;
  if (layer.sliding_window > 0) window = std::min(window, layer.sliding_window);
  return {.heads = layer.heads, .kv_heads = layer.kv_heads, .head_dim = layer.head_dim, .window = window,
          .scale = static_cast<float>(layer.scale), .sinks = asked.sinks};
}

kernels::LatentShape latent_shape(const model::LatentSpec& layer) {
  return {.heads = layer.heads, .kv_rank = layer.kv_rank, .nope_dim = layer.nope_dim, .rope_dim = layer.rope_dim,
          .value_dim = layer.value_dim, .scale = static_cast<float>(layer.scale), .interleaved = layer.interleaved};
}

VisiblePositions visible_in_all(const model::ModelSpec& spec, const VisiblePositions& asked) {
  VisiblePositions visible{.sinks = asked.sinks};
  for (const model::LayerSpec& layer : spec.layers) {
    const int64_t window = attention_shape(layer.attention, asked).window;
    if (window == 0) return {};
    visible.window = std::max(visible.window, window);
  }
  return visible;
}

int64_t positions_max(const EngineOptions& o, const model::ModelSpec& spec, int64_t kv_blocks) {
  constexpr int64_t kStreamed = int64_t{1} << 24;
  const int64_t cache = visible_in_all(spec, o.visible).window > 0 ? kStreamed : kv_blocks * kernels::kKvBlockTokens;
  const int64_t most = o.visible.window > 0 ? kStreamed : std::min(spec.max_position, cache);
  return o.context_max > 0 ? std::min(o.context_max, most) : most;
}

}  // namespace moestro::engine
