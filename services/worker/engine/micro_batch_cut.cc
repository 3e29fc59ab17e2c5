#include "services/worker/engine/micro_batch_cut.h"

#include <algorithm>

#include "common/expert_layout.h"

namespace moestro::engine {

void MicroBatchCut::begin(const MicroBatchOptions& options, int64_t rows, int64_t blocks_max) {
  const bool usual = options.count == 0 && options.rows == 0;
  *this = MicroBatchCut();
  rows_all_ = std::max<int64_t>(1, rows);
  rows_max_ = usual ? std::max(MicroBatchOptions::kRowsUsual, ceil_div(rows, MicroBatchOptions::kCountUsual))
                    : options.rows;
  blocks_max_ = blocks_max;
  count_ = options.count;
  if (count_ > 0 && options.least > 0) count_ = std::clamp<int64_t>(rows / options.least, 1, count_);
}

/// A part is where a sequence's first row lies if the rows are cut into equal parts.
bool MicroBatchCut::before(int64_t rows, int64_t blocks) {
  const int64_t part = count_ * rows_before_ / rows_all_;
  const bool full = (rows_max_ > 0 && rows_ + rows > rows_max_) || (blocks_max_ > 0 && blocks_ + blocks > blocks_max_);
  const bool cuts = rows_before_ > 0 && (full || (count_ > 0 && part != part_));
  if (cuts) rows_ = blocks_ = 0, part_ = part;
  rows_ += rows, blocks_ += blocks, rows_before_ += rows;
  return cuts;
}

}  // namespace moestro::engine
