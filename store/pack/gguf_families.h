#pragma once
// The families that GGUF files have names for.

#include <nlohmann/json_fwd.hpp>
#include <span>

#include "store/pack/gguf_config_reader.h"

namespace moestro::store {

struct GgufFamily {
  const char* arch;          ///< general.architecture
  const char* architecture;  ///< config.json
  /// Reads what the families do not have in common, after what they have.
  void (*read)(GgufConfigReader& in, nlohmann::json& config);
  bool has_latents = false;  ///< latent attention: its heads have no width of their own
};
std::span<const GgufFamily> gguf_families();

}  // namespace moestro::store
