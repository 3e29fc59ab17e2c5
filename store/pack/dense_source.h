#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "store/pack/checkpoint.h"

namespace moestro::store {

/// The format in which a dense tensor is read: that of its tensor, or one that holds both of its tensors.
DType dense_source_dtype(const Checkpoint& checkpoint, const model::DenseTensor& wanted);

/// A dense tensor as it is packed, read from the checkpoint: the rows of it that are meant, in their order. Keys and
/// values of latents may be two tensors (DenseTensor::values_name); they are read as one.
class DenseSource {
 public:
  /// `band_bytes_max`: of a matrix whose rows are scattered in the checkpoint, so many bytes of rows are read at once.
  /// `band`: memory for them, which may serve one source after another.
  DenseSource(const Checkpoint& checkpoint, const model::DenseTensor& wanted, uint64_t band_bytes_max,
              std::vector<std::byte>& band);

  const SourceTensor& tensor() const { return tensor_; }  ///< its name and format; it may have other rows too
  uint64_t bytes() const { return rows() * row_bytes(); }
  /// The bytes [first, first + out.size()), whole values or blocks.
  Status read(uint64_t first, std::span<std::byte> out);

 private:
  uint64_t rows() const { return static_cast<uint64_t>(wanted_.shape.front()); }
  uint64_t row_bytes() const;
  uint64_t source_row(uint64_t row) const;
  Status read_by_rows(uint64_t first, std::span<std::byte> out);
  /// Bytes of tensor(), from the band where there is one.
  Status read_at(uint64_t at, std::span<std::byte> out);
  Status load_band(uint64_t at);
  /// A row of keys or values of latents.
  Status read_latent_row(uint64_t row);
  /// Rows of a tensor, in the format of tensor().
  Status read_rows(const SourceTensor& from, int64_t first, int64_t count, std::vector<std::byte>& out);

  const Checkpoint& checkpoint_;
  const model::DenseTensor& wanted_;
  SourceTensor tensor_;
  const uint64_t band_bytes_max_;
  std::vector<std::byte>& band_;             ///< its first band_bytes_ bytes
  uint64_t band_at_ = 0, band_bytes_ = 0;    ///< where they lie in the tensor
  std::vector<std::byte> row_, raw_, keys_;  ///< keys_: of one head, as they lie in the checkpoint
  int64_t keys_head_ = -1;
};

}  // namespace moestro::store
