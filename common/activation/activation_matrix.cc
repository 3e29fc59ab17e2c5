#include "common/activation/activation_matrix.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/check.h"

namespace moestro::activation {

ActivationMatrix::ActivationMatrix(int64_t layers, int64_t experts)
    : layers_(layers), experts_(experts), cells_(static_cast<size_t>(layers * experts)) {}

bool ActivationMatrix::add(MoeLayerId layer, ExpertId expert, uint32_t tokens) {
  if (layer.value >= layers_ || expert.value >= experts_) return false;
  cells_[static_cast<size_t>(layer.value * experts_ + expert.value)] += tokens;
  return true;
}

bool ActivationMatrix::add(std::span<const ActivationCount> counts) {
  bool all = true;
  for (const ActivationCount& c : counts) all = add(c.layer, c.expert, c.tokens) && all;
  return all;
}

std::span<const uint32_t> ActivationMatrix::row(MoeLayerId layer) const {
  MOESTRO_CHECK(layer.value < layers_, "a row of the matrix");
  return std::span(cells_).subspan(static_cast<size_t>(layer.value * experts_), static_cast<size_t>(experts_));
}

uint64_t ActivationMatrix::total() const { return std::accumulate(cells_.begin(), cells_.end(), uint64_t{0}); }

void ActivationMatrix::clear() { std::fill(cells_.begin(), cells_.end(), 0); }

void count_routes(std::span<const int32_t> routes, int64_t layers, int64_t step_tokens, int64_t top_k, int64_t first,
                  int64_t last, std::vector<uint32_t>& scratch, std::vector<ActivationCount>& out) {
  for (int64_t layer = 0; layer < layers; ++layer) {
    const auto chosen = routes.subspan(static_cast<size_t>((layer * step_tokens + first) * top_k),
                                       static_cast<size_t>((last - first) * top_k));
    for (const int32_t e : chosen) {
      if (static_cast<size_t>(e) >= scratch.size()) scratch.resize(static_cast<size_t>(e) + 1);
      ++scratch[static_cast<size_t>(e)];
    }
    for (size_t e = 0; e < scratch.size(); ++e)
      if (const uint32_t n = std::exchange(scratch[e], 0); n > 0)
        out.push_back({MoeLayerId(static_cast<uint32_t>(layer)), ExpertId(static_cast<uint32_t>(e)), n});
  }
}

}  // namespace moestro::activation
