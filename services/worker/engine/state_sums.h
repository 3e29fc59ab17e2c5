#pragma once
// Sums of a step's final hidden states, by sequence, for embeddings. Made in host memory from tiles of normed rows.
//
// A sum does not depend on how its sequence was cut into steps: each value is rounded to a multiple of 2^-30 first, and
// doubles of such values are added without error while a sum is below 2^23. The rounding moves a value by 2^-31 at
// most; values of 2^-7 and more are multiples already. Beyond 2^23 the sum is still right to 53 bits.

#include <cstdint>
#include <functional>
#include <vector>

#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

class StateSums {
 public:
  explicit StateSums(int64_t hidden) : hidden_(hidden) {}

  /// The normed states of rows [first, first + n), [n, hidden]; in host memory until the next call.
  using NormRows = std::function<const float*(int64_t first, int64_t n)>;
  /// Sums up what `batch` asks for, at most `tile_rows` rows at a time.
  void add(const StepBatch& batch, int64_t tile_rows, const NormRows& norm_rows);
  /// Gives the sums of add() to the outcomes of sequences that have not failed (`outcomes` and `failed`: one per
  /// sequence of the plan). Sequences with states that are not finite fail; returns how many.
  uint32_t finish(const StepBatch& batch, std::vector<Status>& failed, std::vector<SequenceOutcome>& outcomes);

 private:
  void add_rows(const float* rows, int64_t n, std::vector<double>& sum) const;

  int64_t hidden_;
  std::vector<std::vector<double>> sums_;  ///< one per entry of batch.summed_rows
};

}  // namespace moestro::engine
