#pragma once
// A matrix that a checkpoint holds as several tensors: values, scales, zero points. Read as rows of blocks
// (common/formats/blocks.h), it is one tensor like those of a GGUF file, and its bits stay what they are.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/model/quantisation.h"
#include "store/pack/safetensors.h"

namespace moestro::store {

/// Reads bytes of a tensor from its file.
using ReadTensor = std::function<Status(const SourceTensor& tensor, uint64_t first, std::span<std::byte> out)>;

/// Rows and columns of a matrix. Rows of stacked matrices are counted through.
struct MatrixRange {
  int64_t first_row = 0, rows = 0, first_col = 0, cols = 0;
};

class QuantisedMatrix {
 public:
  QuantisedMatrix(std::string name, DType dtype, int64_t rows, int64_t cols)
      : name_(std::move(name)), dtype_(dtype), rows_(rows), cols_(cols) {}
  virtual ~QuantisedMatrix() = default;

  DType dtype() const { return dtype_; }
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  /// Whether a few of its rows are many runs of few numbers in the checkpoint, so that many are better read at once.
  virtual bool has_short_runs() const { return false; }
  /// Whether no block can say its numbers, so that they are read as f32, which is exact.
  virtual bool is_widened() const { return false; }
  /// These rows, whole blocks of each. Any thread.
  virtual Status read_range(const ReadTensor& read, const MatrixRange& range, std::byte* out) const = 0;
  /// Bytes [first, first + out.size()) of all rows one after another, whole blocks.
  Status read_bytes(const ReadTensor& read, uint64_t first, std::span<std::byte> out) const;

 protected:
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  DType dtype_;
  int64_t rows_, cols_;
};

using SourceTensors = std::map<std::string, SourceTensor>;

/// Replaces the tensors that are a matrix of `shape` in quantised form by the matrix itself, under its name. Leaves a
/// matrix alone that the checkpoint does not hold so. Errors name the tensor that is missing or has another shape or
/// format than config.json says.
/// `read`: for the order of columns.
Status assemble_matrix(const model::Quantisation& quantisation, const std::string& name,
                       const std::vector<int64_t>& shape, const ReadTensor& read, SourceTensors& tensors);

/// Scales of activations and caches, beside quantised matrices: weights are computed with as they are, so nothing uses
/// them.
bool is_scale_of_activations(std::string_view name);

}  // namespace moestro::store
