#pragma once
// The collection of activation matrices (EAMC of MoE-Infinity, section 4): what past requests used, of a fixed number of them.
//
// An entry is a request's matrix with every row normalised, so that long and short requests weigh the same: a cell is the chance that a
// token of the request uses the expert, in 1/255. When the collection is full, a new matrix takes the place of the entry most like it.
//
// The cells lie twice: by entry, to be read, written and sent; and by layer, expert and then entry, where a token's few experts are a few
// columns that a match reads from front to back, with the norm of every entry's first rows beside them.
//
// Whoever owns it changes it between iterations; matchers and predictors on the same thread read it during them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/status.h"

namespace moestro::activation {

struct EamcShape {
  int32_t layers = 0, experts = 0, top_k = 0;
  size_t cells() const { return static_cast<size_t>(layers) * static_cast<size_t>(experts); }
  friend bool operator==(const EamcShape&, const EamcShape&) = default;
};

class Eamc {
 public:
  static constexpr int32_t kBlock = 64;  ///< columns are as long as a multiple of it; beyond size() they hold zeros

  Eamc(const EamcShape& shape, int32_t capacity);

  const EamcShape& shape() const { return shape_; }
  int32_t size() const { return size_; }
  int32_t capacity() const { return capacity_; }
  /// Grows with every change.
  uint64_t version() const { return version_; }
  /// The version that last changed this entry.
  uint64_t changed_at(int32_t entry) const { return changed_at_[static_cast<size_t>(entry)]; }

  struct Change {
    int32_t entry = 0;
    bool replaced = false;
  };
  /// Takes in a request's matrix. Nothing: it is empty, of another shape, or the capacity is 0.
  std::optional<Change> insert(const ActivationMatrix& matrix);
  /// Sets an entry to what cells() of another collection says. kInvalidArgument: cells of another number, or an entry beyond the next.
  Status set(int32_t entry, std::span<const uint8_t> cells);
  /// Empties it, for so many entries from here on.
  void reset(int32_t capacity);

  /// [layer][expert] of one entry.
  std::span<const uint8_t> cells(int32_t entry) const;
  std::span<const uint8_t> row(int32_t entry, int32_t layer) const {
    return cells(entry).subspan(static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts), static_cast<size_t>(shape_.experts));
  }
  /// One expert's cell of every entry; stride() of them.
  const uint8_t* column(int32_t layer, int32_t expert) const {
    return by_column_.data() + (static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts) + static_cast<size_t>(expert)) * stride_;
  }
  /// 1 / the length of rows [0, layer] of every entry; 0 where they are zero.
  const float* inverse_norms(int32_t layer) const { return inverse_norms_.data() + static_cast<size_t>(layer) * stride_; }
  size_t stride() const { return stride_; }
  /// Entries up to the end of the last block in use.
  size_t stride_used() const { return (static_cast<size_t>(size_) + kBlock - 1) / kBlock * kBlock; }

  /// The entry whose cells are most like these, by their cosine; -1: there is none.
  int32_t most_similar(std::span<const uint8_t> cells) const;

 private:
  void put(int32_t entry, std::span<const uint8_t> cells);

  EamcShape shape_;
  int32_t capacity_ = 0, size_ = 0;
  size_t stride_ = 0;
  uint64_t version_ = 0;
  std::vector<uint8_t> by_entry_, by_column_;
  std::vector<float> inverse_norms_;  ///< [layer][entry]
  std::vector<uint64_t> changed_at_;
};

/// A matrix with its rows normalised, as entries hold it; all zero if the matrix is.
std::vector<uint8_t> normalised(const ActivationMatrix& matrix, int32_t top_k);

}  // namespace moestro::activation
