#pragma once
// A routing trace in memory: the choices of each token of each request at every MoE layer. docs/request-trace.md
// describes the file (`--trace`, "moestro-routes", version 1).

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::tier {

struct RoutedToken {
  bool decode = false;
  int32_t position = 0;
  uint32_t first = 0;  ///< where its choices begin in Routes::choices
  int32_t token = -1;  ///< a number that stands for the token; -1: not recorded
};

struct RoutedRequest {
  uint64_t id = 0;
  std::vector<RoutedToken> tokens;  ///< in the order computed
};

struct Routes {
  std::string model;
  int32_t layers = 0, experts = 0, top_k = 0;
  std::vector<RoutedRequest> requests;  ///< in the order in which their first tokens were computed
  std::vector<uint16_t> choices;        ///< [token][layer][rank]
  std::vector<float> weights = {};  ///< gate weights, as `choices`; empty if some tokens lack them

  /// What `token` chose at `layer`: top_k experts.
  std::span<const uint16_t> chosen(const RoutedToken& token, int32_t layer) const {
    return std::span(choices).subspan(token.first + static_cast<size_t>(layer) * static_cast<size_t>(top_k),
                                      static_cast<size_t>(top_k));
  }
  /// The gate weights of those, if the trace has any.
  std::span<const float> weights_of(const RoutedToken& token, int32_t layer) const {
    return std::span(weights).subspan(token.first + static_cast<size_t>(layer) * static_cast<size_t>(top_k),
                                      static_cast<size_t>(top_k));
  }
};

/// Reads a trace, plain or .zst, a line at a time. kInvalidArgument names the file, its first bad line, and the error.
/// A last line without a line break is ignored, because its worker was killed.
Result<Routes> read_routes(const std::filesystem::path& path);

/// Appends the requests of `more` to `routes`, with new ids. kInvalidArgument if the shape differs.
Status append_routes(Routes& routes, const Routes& more);

}  // namespace moestro::tier
