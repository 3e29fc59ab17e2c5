#pragma once
// Makes the bytes of one blob from the checkpoint, a piece at a time, so memory is bounded for any size of model or
// tensor. (A dense matrix in 12 bits also needs its exceptions in memory: at most 5 bytes for each 128 numbers, and
// twice that while they are written.)

#include <functional>
#include <optional>
#include <vector>

#include "store/pack/checkpoint.h"
#include "store/pack/dense_source.h"
#include "store/pack/expert_matrix.h"
#include "store/pack/pack_plan.h"

namespace moestro::store {

/// One per thread. Holds scratch memory of about `scratch_bytes_max`, or one tile's sources if that is more.
class BlobBuilder {
 public:
  /// Called with consecutive runs of the blob's bytes, each a whole number of slices.
  using Sink = std::function<Status(std::span<const std::byte>)>;

  BlobBuilder(const Checkpoint& checkpoint, const PackPlan& plan, uint64_t scratch_bytes_max)
      : checkpoint_(checkpoint), plan_(plan), scratch_bytes_max_(scratch_bytes_max) {}

  Status build(uint32_t blob, const Sink& sink);

 private:
  /// The part of one of an expert's three matrices that belongs to a range of ffn: rows of gate and up, columns of
  /// down. Held in the checkpoint's format; down as f32 if its blocks become another format, because a tile may begin
  /// within a block.
  static constexpr int64_t kBands = 3;
  struct Band {
    ExpertMatrix matrix;
    DType to;  ///< in the pack
    bool is_down = false;
    DType dtype = DType::kF32;
    int64_t first = 0, count = 0;
    std::vector<std::byte> bytes = {};
  };

  Status build_dense(uint32_t blob, const Sink& sink);
  /// Kept from piece to piece of a tensor, with what it has read.
  DenseSource& dense_source(uint32_t tensor);
  Status fill_from_matrix(const PackedTensor& packed, DenseSource& source, uint64_t begin,
                          std::span<std::byte> out);
  Status fill_from_tensor(uint32_t tensor, uint64_t begin, std::span<std::byte> out);
  Status fill_as_it_is(const PackedTensor& packed, DenseSource& source, uint64_t begin, std::span<std::byte> out);
  Status build_expert(uint32_t blob, const Sink& sink);
  Status load_band(Band& band, const ExpertLayout& layout, const ExpertTile& tile, bool many);
  Status fill_rows(Band& band, const ExpertLayout& layout, const ExpertTile& tile, int64_t values, int64_t scales);
  Status fill_columns(Band& band, const ExpertLayout& layout, const ExpertTile& tile);
  Status fill_biases(const model::ExpertTensors& expert, const ExpertLayout& layout);
  /// A matrix of a tile. source_row(r) gives row r as `from`.
  template <class SourceRow>
  Status fill_part(const SourceTensor& tensor, DType from, DType to, int64_t rows, int64_t cols,
                   const SourceRow& source_row, std::byte* values, std::byte* parameters);
  Status fill_in_12_bits(const PackedTensor& packed, DenseSource& source, uint64_t begin,
                         std::span<std::byte> out);
  Status read_row_as_bf16(DenseSource& source, int64_t row, int64_t cols);
  Status convert_row(const SourceTensor& tensor, DType from, const std::byte* source, DType to, int64_t n,
                     std::byte* values, std::byte* scales);

  const Checkpoint& checkpoint_;
  const PackPlan& plan_;
  const uint64_t scratch_bytes_max_;
  std::vector<std::byte> piece_, source_, converted_;
  std::vector<float> work_;
  std::vector<uint16_t> wide_;
  std::vector<std::byte> dense_band_;  ///< of one dense tensor of a blob after another
  std::optional<DenseSource> dense_;
  uint32_t dense_tensor_ = 0;  ///< of `dense_`
  std::optional<bf16_in_12::Encoder> encoder_;  ///< of `encoded_`
  const PackedTensor* encoded_ = nullptr;
};

}  // namespace moestro::store
