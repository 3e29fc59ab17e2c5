#pragma once
// Which numbers of a checkpoint's tensors are an expert's matrices.

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"

namespace moestro::model {

enum class ExpertPart : uint8_t { kGate, kUp, kDown };

/// A matrix [rows, cols] in our orientation. Its number (r, c) is number first + r * row_step + c * col_step of a
/// tensor of this shape. The steps are such that either rows or columns are runs of adjacent numbers.
struct ExpertView {
  std::vector<int64_t> shape;  ///< of the tensor's numbers
  int64_t rows = 0, cols = 0;
  int64_t first = 0, row_step = 0, col_step = 1;
};

ExpertView view_of(const ModelDescription& model, const ExpertTensors& expert, ExpertPart part);
/// The same of a part's bias: cols is 1.
ExpertView bias_view_of(const ModelDescription& model, const ExpertTensors& expert, ExpertPart part);

/// Names the experts' tensors as if they were apart (ExpertStorage::perhaps_apart).
void take_experts_apart(ModelDescription& model);

}  // namespace moestro::model
