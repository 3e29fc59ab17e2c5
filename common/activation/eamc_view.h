#pragma once
// The collection of activation matrices (EAMC of MoE-Infinity, section 4) on the reader's side: memory of this process,
// or of another process that may change it at any moment (history_layout.h). So what is read of an entry counts only if
// the entry's version has not changed. An entry that changes is ignored until the reader has read it again, so old and
// new are never mixed.
//
// An entry is a request's matrix with every row normalised, so that long and short requests weigh the same: a cell is
// the chance that a token of the request uses the expert, in 1/255.

#include <algorithm>
#include <span>

#include "common/activation/history_layout.h"

namespace moestro::activation {

struct EamcShape {
  int32_t layers = 0, experts = 0, top_k = 0;
  size_t cells() const { return static_cast<size_t>(layers) * static_cast<size_t>(experts); }
  friend bool operator==(const EamcShape&, const EamcShape&) = default;
};

class EamcView {
 public:
  static constexpr size_t kBlock = kEamcBlock;
  static constexpr uint64_t kNoVersion = UINT64_MAX;  ///< of an entry that cannot be used

  /// `counters` and `arrays` outlive the view. Readers stay within the arrays, whatever they contain.
  EamcView(const EamcShape& shape, int32_t capacity, const EamcCounters* counters, const std::byte* arrays);

  /// Different for every memory. If a view is assigned, nothing that was known of the previous memory is valid any
  /// more.
  uint64_t id() const { return id_; }
  const EamcShape& shape() const { return shape_; }
  int32_t capacity() const { return capacity_; }
  size_t stride() const { return layout_.stride; }

  /// Changes that are counted here are visible to all later reads.
  uint64_t changes() const { return counters_->changes.load(std::memory_order_acquire); }
  int32_t size() const {
    return static_cast<int32_t>(
        std::min(counters_->size.load(std::memory_order_acquire), static_cast<uint32_t>(capacity_)));
  }
  /// An entry's version, to be taken before it is read; kNoVersion while it is being written.
  uint64_t version(int32_t entry) const;
  /// Whether everything that was read of the entry since version() belongs to this version.
  bool holds(int32_t entry, uint64_t version) const;
  /// Copies cells of an entry that has this version, starting at cell `first`. False: the version has changed.
  bool copy(int32_t entry, uint64_t version, size_t first, std::span<uint8_t> out) const;

  // For eamc_kernels.h, which may read what is being written.
  /// One expert's cell of every entry; stride() of them.
  const uint8_t* column(int32_t layer, int32_t expert) const {
    return at<uint8_t>(layout_.by_column) + cell(layer, expert) * layout_.stride;
  }
  /// 1 / the length of rows [0, layer] of every entry; 0 where they are zero.
  const float* inverse_norms(int32_t layer) const {
    return at<float>(layout_.inverse_norms) + static_cast<size_t>(layer) * layout_.stride;
  }
  /// [layer][expert] of one entry.
  const uint8_t* cells(int32_t entry) const {
    return at<uint8_t>(layout_.by_entry) + static_cast<size_t>(entry) * shape_.cells();
  }

 private:
  template <typename T>
  const T* at(uint64_t offset) const {
    return reinterpret_cast<const T*>(arrays_ + offset);
  }
  size_t cell(int32_t layer, int32_t expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts) + static_cast<size_t>(expert);
  }
  const std::atomic<uint64_t>& version_word(int32_t entry) const {
    return at<std::atomic<uint64_t>>(layout_.versions)[entry];
  }

  uint64_t id_;
  EamcShape shape_;
  int32_t capacity_;
  EamcLayout layout_;
  const EamcCounters* counters_;
  const std::byte* arrays_;
};

/// A history as predictors see it: prompts and answers apart.
struct HistoryView {
  EamcView prompts, answers;
};

}  // namespace moestro::activation
