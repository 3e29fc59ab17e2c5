#pragma once
#include <optional>

#include "common/model/config_reader.h"
#include "common/model/model_spec.h"

namespace moestro::model {

/// Of an architecture. partial_rotary: the share of a head that is rotated; nullopt: all of it, and no file may say
/// otherwise.
struct RopeDefaults {
  double theta = 10000.0;
  std::optional<double> partial_rotary = std::nullopt;
  bool factor_scales_latents = false;  ///< yarn's factor is also read by itself, where mscale_all_dim is given
  bool own_mscales = false;            ///< longrope has its factors of cos and sin by name (Phi-3.5-MoE)
};

/// Reads the rotary embedding in either spelling: rope_theta and rope_scaling at the top (older files), or both inside
/// rope_parameters. `max_position` is max_position_embeddings. Errors go to `config`.
RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_position, const RopeDefaults& defaults);

/// The number of positions that a model can be served with: max_position_embeddings, or more if the scaling extends it
/// (dynamic: times its factor; yarn: its original length times its factor).
int64_t usable_positions(const RopeSpec& rope, int64_t max_position);

}  // namespace moestro::model
