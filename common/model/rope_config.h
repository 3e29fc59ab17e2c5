#pragma once
#include "common/model/config_reader.h"
#include "common/model/model_spec.h"

namespace moestro::model {

/// Reads the rotary embedding in either spelling: rope_theta and rope_scaling at the top (older files), or both inside
/// rope_parameters. `max_position` is max_position_embeddings. Errors go to `config`.
RopeSpec read_rope(ConfigReader& config, int64_t head_dim, int64_t max_position, double standard_theta);

/// The number of positions that a model can be served with: max_position_embeddings, or more if the scaling extends it
/// (dynamic: times its factor; yarn: its original length times its factor).
int64_t usable_positions(const RopeSpec& rope, int64_t max_position);

}  // namespace moestro::model
