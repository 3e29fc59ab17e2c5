#pragma once
// The collection of activation matrices as its owner has it, and changes it: what past requests used, of a fixed number
// of them. When it is full, a new matrix takes the place of the entry most like it. What an entry is, and how others
// read it while it changes: eamc_view.h.
//
// The cells lie twice: by entry, to be read, written and sent; and by layer, expert and then entry, where a token's few
// experts are a few columns that a match reads from front to back, with the norm of every entry's first rows beside
// them.
//
// One thread owns it; views may be read from any, and from other processes where the memory is theirs, too.

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
  /// In memory of its own.
  Eamc(const EamcShape& shape, int32_t capacity);
  /// In memory that outlives it, is all zero, and holds what history_layout.h says of one collection.
  Eamc(const EamcShape& shape, int32_t capacity, EamcCounters* counters, std::byte* arrays);

  /// Stays where this stays. Reading by it is in order while this is changed.
  const EamcView& view() const { return view_; }
  const EamcShape& shape() const { return view_.shape(); }
  int32_t size() const { return view_.size(); }
  int32_t capacity() const { return view_.capacity(); }

  struct Change {
    int32_t entry = 0;
    bool replaced = false;
  };
  /// Takes in a request's matrix. Nothing: it is empty, of another shape, or the capacity is 0.
  std::optional<Change> insert(const ActivationMatrix& matrix);
  /// Sets an entry to what cells() of another collection says. kInvalidArgument: cells of another number, or an entry
  /// beyond the next.
  Status set(int32_t entry, std::span<const uint8_t> cells);
  void clear();

  /// [layer][expert] of one entry.
  std::span<const uint8_t> cells(int32_t entry) const;
  std::span<const uint8_t> row(int32_t entry, int32_t layer) const {
    return cells(entry).subspan(static_cast<size_t>(layer) * static_cast<size_t>(shape().experts),
                                static_cast<size_t>(shape().experts));
  }

  /// The entry whose cells are most like these, by their cosine; -1: there is none.
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

  Memory own_;  ///< null: somebody else's
  EamcCounters* counters_;
  std::byte* arrays_;
  EamcView view_;
};

/// A matrix with its rows normalised, as entries hold it; all zero if the matrix is.
std::vector<uint8_t> normalised(const ActivationMatrix& matrix, int32_t top_k);

}  // namespace moestro::activation
