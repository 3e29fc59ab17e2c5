#include "common/model/model_spec.h"

#include <algorithm>

namespace moestro::model {

std::vector<int64_t> DenseTensor::source_shape() const {
  std::vector<int64_t> whole = shape;
  if (source_rows > 0) whole.front() = source_rows;
  if (!values_name.empty()) return {shape[0] / (key_rows + value_rows) * shape[1], key_rows};
  return whole;
}

std::vector<int64_t> DenseTensor::values_shape() const {
  return {shape[0] / (key_rows + value_rows) * value_rows, shape[1]};
}

int64_t ModelSpec::moe_layers() const {
  int64_t n = 0;
  for (const LayerSpec& layer : layers) n += layer.moe_index.has_value();
  return n;
}

bool ModelSpec::has_states() const {
  return std::ranges::any_of(layers, [](const LayerSpec& layer) { return layer.delta.has_value(); });
}

int64_t ModelSpec::encoder_layers() const {
  return std::ranges::count(layers, LayerSpec::Stack::kEncoder, &LayerSpec::stack);
}

int64_t ModelSpec::encoder_moe_layers() const {
  return std::ranges::count_if(layers, [](const LayerSpec& layer) {
    return layer.stack == LayerSpec::Stack::kEncoder && layer.moe_index.has_value();
  });
}

const MoeSpec& ModelSpec::moe() const {
  for (const LayerSpec& layer : layers)
    if (layer.moe_index) return layer.moe;
  check_failed(__FILE__, __LINE__, "a MoE layer", "describe_model gives at least one");
}

}  // namespace moestro::model
