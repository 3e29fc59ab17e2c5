#pragma once
// The part of the store's arena that each model is guaranteed, and its maximum.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::box {

struct ModelShare {
  std::string model;
  uint64_t guaranteed = 0;
  std::optional<uint64_t> maximal;  ///< nullopt: no limit
};

/// "big=4GiB..12GiB,small=..2GiB,chat=1GiB": sizes as elsewhere in the configuration; either end may be left out.
/// kInvalidArgument quotes the wrong part.
Result<std::vector<ModelShare>> parse_model_shares(const std::string& text);

}  // namespace moestro::box
