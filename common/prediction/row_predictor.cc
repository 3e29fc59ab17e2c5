#include "common/prediction/row_predictor.h"

namespace moestro::prediction {

void RowPredictor::forecast(int32_t layer, Forecast& out) {
  for (int32_t target = 0; target < shape_.layers; ++target) {
    const std::span<float> cells = out.row(target);
    if (!row(layer, target, cells)) std::fill(cells.begin(), cells.end(), 0.0F);
  }
}

}  // namespace moestro::prediction
