#include "common/prediction/row_predictor.h"

#include <cmath>

namespace moestro::prediction {

void RowPredictor::forecast(int32_t layer, Forecast& out) {
  for (int32_t target = 0; target < shape_.layers; ++target) {
    const std::span<float> cells = out.row(target);
    if (!row(layer, target, cells)) std::fill(cells.begin(), cells.end(), 0.0F);
  }
}

void AnyToken::add(size_t expert, float p, int32_t tokens) {
  const float unused = 1 - std::min(std::max(p, 0.0F), 1.0F);
  out_[expert] *= tokens == 1 ? unused : std::pow(unused, static_cast<float>(tokens));
}

}  // namespace moestro::prediction
