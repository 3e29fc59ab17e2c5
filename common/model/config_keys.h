#pragma once
#include <string_view>

namespace moestro::model {

/// Keys of config.json that do not change what a text decoder computes at inference: training, generation defaults,
/// bookkeeping.
bool is_harmless_key(std::string_view key);

}  // namespace moestro::model
