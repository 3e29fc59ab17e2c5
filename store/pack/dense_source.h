#pragma once
#include <cstdint>
#include <span>

#include "store/pack/checkpoint.h"

namespace moestro::store {

/// A dense tensor as it is packed, read from the checkpoint: the rows of it that are meant, in their order.
class DenseSource {
 public:
  DenseSource(const Checkpoint& checkpoint, const model::DenseTensor& wanted)
      : checkpoint_(checkpoint), wanted_(wanted), tensor_(checkpoint.tensor(wanted.source_name)) {}

  const SourceTensor& tensor() const { return tensor_; }  ///< its name and format; it may have other rows too
  uint64_t bytes() const { return rows() * row_bytes(); }
  /// The bytes [first, first + out.size()), whole values.
  Status read(uint64_t first, std::span<std::byte> out) const;

 private:
  uint64_t rows() const { return static_cast<uint64_t>(wanted_.shape.front()); }
  uint64_t row_bytes() const;
  uint64_t source_row(uint64_t row) const;

  const Checkpoint& checkpoint_;
  const model::DenseTensor& wanted_;
  const SourceTensor& tensor_;
};

}  // namespace moestro::store
