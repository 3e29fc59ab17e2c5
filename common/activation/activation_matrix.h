#pragma once
// Activation counts of a request: rows are MoE layers, columns experts.

#include <cstdint>
#include <span>
#include <vector>

#include "common/ids.h"

namespace moestro::activation {

/// One non-zero cell.
struct ActivationCount {
  MoeLayerId layer;
  ExpertId expert;
  uint32_t tokens = 0;
  friend bool operator==(const ActivationCount&, const ActivationCount&) = default;
};

class ActivationMatrix {
 public:
  ActivationMatrix() = default;
  ActivationMatrix(int64_t layers, int64_t experts);

  int64_t layers() const { return layers_; }
  int64_t experts() const { return experts_; }
  /// False, and nothing counted, if the cell is outside the matrix (counts come from peers).
  bool add(MoeLayerId layer, ExpertId expert, uint32_t tokens);
  bool add(std::span<const ActivationCount> counts);
  std::span<const uint32_t> row(MoeLayerId layer) const;
  uint64_t total() const;
  void clear();

 private:
  int64_t layers_ = 0, experts_ = 0;
  std::vector<uint32_t> cells_;
};

/// The non-zero cells of routes[layer][token][rank] = expert, over the tokens [first, last) of a step of `step_tokens`;
/// appended to `out` by layer, then expert. `scratch` holds one row and is left zero.
void count_routes(std::span<const int32_t> routes, int64_t layers, int64_t step_tokens, int64_t top_k, int64_t first,
                  int64_t last, std::vector<uint32_t>& scratch, std::vector<ActivationCount>& out);

}  // namespace moestro::activation
