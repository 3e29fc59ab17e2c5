#pragma once
// Where the expert pipeline cuts a step into micro-batches.

#include <cstdint>

#include "services/worker/engine/engine_options.h"

namespace moestro::engine {

class MicroBatchCut {
 public:
  /// Of a step of `rows` rows. `blocks_max`: KV blocks of a micro-batch; 0: any number.
  void begin(const MicroBatchOptions& options, int64_t rows, int64_t blocks_max);
  /// Whether a sequence with so many rows and KV blocks, which comes next, begins another micro-batch.
  bool before(int64_t rows, int64_t blocks);

 private:
  int64_t count_ = 0, rows_all_ = 1, rows_max_ = 0, blocks_max_ = 0;
  int64_t rows_before_ = 0;       ///< of the step
  int64_t rows_ = 0, blocks_ = 0; ///< of the micro-batch
  int64_t part_ = 0;              ///< of count_ equal parts of the rows: where it began
};

}  // namespace moestro::engine
