#pragma once
// Which experts are used: the map of /v1/moestro/status?experts=1, a line for each layer, or for a few of them.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "services/cli/top/frame.h"

namespace moestro::cli {

struct ExpertMap {
  size_t layers = 0, experts = 0;  ///< 0: there is no map
  std::vector<float> shares;       ///< of each layer's uses, layer by layer
};

/// Of any JSON: what is not as it should be is no map.
ExpertMap read_expert_map(const nlohmann::json& experts);

/// At most `rows` lines of layers, under one that says what they are. Each cell is the most used expert of those it
/// stands for. None if there is no map, or `columns` are too few for one.
std::vector<Line> expert_map_lines(const ExpertMap& map, size_t columns, size_t rows);

}  // namespace moestro::cli
