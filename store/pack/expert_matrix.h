#pragma once
// One matrix of an expert in the checkpoint, read in our orientation whatever its form there is: a tensor of its own, a
// part of a tensor that holds all experts of a layer, rows in turn with another matrix', transposed.

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/expert_storage.h"
#include "store/pack/checkpoint.h"

namespace moestro::store {

class ExpertMatrix {
 public:
  /// A part, or its bias: a matrix of one column. All tensors that it needs exist.
  static ExpertMatrix of(const Checkpoint& checkpoint, const model::ExpertTensors& expert, model::ExpertPart part);
  static ExpertMatrix bias_of(const Checkpoint& checkpoint, const model::ExpertTensors& expert, model::ExpertPart part);

  const SourceTensor& tensor() const { return *tensor_; }
  /// Whether a few of its rows are many runs of few numbers in the checkpoint, so that many are better read at once.
  bool has_short_runs() const;

  struct Range {
    int64_t first = 0, count = 0;
  };
  /// The numbers of these rows and columns, row by row. Of blocks: columns in whole ones.
  Status read(Range rows, Range cols, std::span<std::byte> out);

 private:
  ExpertMatrix(const Checkpoint& checkpoint, const std::string& name, model::ExpertView view);
  int64_t bytes_of(int64_t numbers) const { return row_bytes(*tensor_->dtype, numbers); }
  Status read_numbers(int64_t first, int64_t count, std::byte* out);
  template <class Use>
  Status for_lines(int64_t first, int64_t span, int64_t step, int64_t count, const Use& use);

  const Checkpoint& checkpoint_;
  const SourceTensor* tensor_;
  model::ExpertView view_;
  std::vector<std::byte> piece_;
};

}  // namespace moestro::store
