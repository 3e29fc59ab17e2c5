#pragma once
// The collection of activation matrices on its owner's side: what past requests used, for a fixed number of requests.
// When it is full, a new matrix replaces the most similar entry. eamc_view.h says what an entry is, and how others read
// it while it changes.
//
// Cells are stored twice. By entry, they are read, written and sent. By layer, expert and entry, the few experts of a
// token are a few columns that a match reads from front to back, together with the norm of every entry's first rows.
//
// One thread owns it. Views may be read from any thread, and from other processes if the memory is shared.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/activation/eamc_view.h"
#include "common/status.h"

namespace moestro::activation {

class Eamc {
 public:
  /// Allocates its own memory.
  Eamc(const EamcShape& shape, int32_t capacity);
  /// Uses memory that outlives it, is all zero, and has the size that history_layout.h gives for one collection.
  Eamc(const EamcShape& shape, int32_t capacity, EamcCounters* counters, std::byte* arrays);

  /// Valid as long as this object. It may be read while this object changes.
  const EamcView& view() const { return view_; }
  const EamcShape& shape() const { return view_.shape(); }
  int32_t size() const { return view_.size(); }
  int32_t capacity() const { return view_.capacity(); }

  struct Change {
    int32_t entry = 0;
    bool replaced = false;
  };
  /// Adds a request's matrix. nullopt if the matrix is empty or has another shape, or the capacity is 0.
  std::optional<Change> insert(const ActivationMatrix& matrix);
  /// Sets an entry to cells() of another collection. kInvalidArgument: the wrong number of cells, or an entry beyond
  /// the next one.
  Status set(int32_t entry, std::span<const uint8_t> cells);
  void clear();

  /// [layer][expert] of one entry.
  std::span<const uint8_t> cells(int32_t entry) const;
  std::span<const uint8_t> row(int32_t entry, int32_t layer) const {
    return cells(entry).subspan(static_cast<size_t>(layer) * static_cast<size_t>(shape().experts),
                                static_cast<size_t>(shape().experts));
  }

  /// The entry whose cells are most similar by cosine; -1: there is none.
  int32_t most_similar(std::span<const uint8_t> cells) const;

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(kEamcBlock)); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  Eamc(const EamcShape& shape, int32_t capacity, Memory own);
  static Memory zeros(uint64_t bytes);
  void put(int32_t entry, std::span<const uint8_t> cells);
  void changed(int32_t size);
  template <typename T>
  T* at(uint64_t offset) {
    return reinterpret_cast<T*>(arrays_ + offset);
  }

  Memory own_;  ///< null: the memory belongs to another object
  EamcCounters* counters_;
  std::byte* arrays_;
  EamcView view_;
};

/// A matrix with normalised rows, in the form of an entry; all zero if the matrix is.
std::vector<uint8_t> normalised(const ActivationMatrix& matrix, int32_t top_k);

}  // namespace moestro::activation
