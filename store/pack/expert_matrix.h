#pragma once
// One matrix of an expert in the checkpoint, read in our orientation whatever its form there is: a tensor of its own, a
// part of a tensor that holds all experts of a layer, rows in turn with another matrix', transposed, MXFP4.

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/expert_storage.h"
#include "store/pack/checkpoint.h"

namespace moestro::store {

/// Names of the two tensors that are an MXFP4 tensor: numbers of 4 bits [..., cols / 32, 16], low half of a byte first,
/// and exponents [..., cols / 32] of a factor 2^(exponent - 127) for each 32 numbers.
std::string mxfp4_blocks(const std::string& tensor);
std::string mxfp4_scales(const std::string& tensor);

class ExpertMatrix {
 public:
  /// A part, or its bias: a matrix of one column. All tensors that it needs exist.
  static ExpertMatrix of(const Checkpoint& checkpoint, const model::ExpertTensors& expert, model::ExpertPart part);
  static ExpertMatrix bias_of(const Checkpoint& checkpoint, const model::ExpertTensors& expert, model::ExpertPart part);

  /// Its name, and the format that read() gives: the tensor's; bf16 for MXFP4, whose values bf16 holds exactly.
  const SourceTensor& as_read() const { return as_read_; }
  /// Whether a few of its rows are many runs of few numbers in the checkpoint, so that many are better read at once.
  bool has_short_runs() const { return view_.col_step != 1; }

  struct Range {
    int64_t first = 0, count = 0;
  };
  /// The numbers of these rows and columns, row by row. MXFP4: columns in whole groups.
  Status read(Range rows, Range cols, std::span<std::byte> out);

 private:
  ExpertMatrix(const Checkpoint& checkpoint, const std::string& name, model::ExpertView view);
  Status read_numbers(int64_t first, int64_t count, std::byte* out);
  Status read_mxfp4(int64_t first, int64_t count, std::byte* out);
  template <class Use>
  Status for_lines(int64_t first, int64_t span, int64_t step, int64_t count, const Use& use);

  const Checkpoint& checkpoint_;
  const SourceTensor *tensor_ = nullptr, *scales_ = nullptr;  ///< scales: MXFP4 only
  SourceTensor as_read_;
  model::ExpertView view_;
  std::vector<std::byte> piece_, packed_, exponents_;
};

}  // namespace moestro::store
