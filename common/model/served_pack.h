#pragma once
#include <filesystem>

#include "common/status.h"

namespace moestro::model {

/// kUnsupported, by name, if a pack's model is of a kind that is not served (check_decoder_only). What is wrong with
/// its config.json is said by those who open the pack.
Status check_served(const std::filesystem::path& pack);

}  // namespace moestro::model
