#pragma once
// The contents of the paged KV cache. Which block belongs to whom is the scheduler's business; the cache knows how much of each block
// has been written, so that a plan which would read what nobody wrote is refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "common/status.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"

namespace moestro::engine {

class KvCache {
 public:
  /// In `memory`, which outlives it. kExhausted if there is not so much; the message says how to ask for less.
  static Result<KvCache> create(const model::ModelSpec& spec, int64_t blocks, const EngineOptions& options, kernels::Memory& memory);

  int64_t blocks() const { return blocks_; }
  const kernels::KvView& layer(size_t index) const { return layers_[index]; }
  const kernels::AttentionShape& shape(size_t index) const { return shapes_[index]; }
  int64_t bytes() const { return buffers_.bytes(); }
  /// Of one position in one layer, scales included.
  double token_bytes(size_t layer) const { return static_cast<double>(block_bytes_[layer]) / kernels::kKvBlockTokens; }

  /// Written tokens of each block.
  std::span<const uint8_t> filled() const { return filled_; }
  /// Records that positions [first, last) of a sequence with this block table are written now.
  void mark_written(std::span<const uint32_t> table, int64_t first, int64_t last);
  /// Records that what was written there is of no use: whoever reads it is refused.
  void mark_lost(std::span<const uint32_t> table, int64_t first, int64_t last);
  /// Both in range.
  void copy_block(uint32_t from, uint32_t to);
  /// A new epoch: nothing is written.
  void forget_all();

 private:
  explicit KvCache(kernels::Memory& memory) : buffers_(memory) {}
  kernels::Buffers buffers_;
  int64_t blocks_ = 0;
  std::vector<kernels::KvView> layers_;
  std::vector<kernels::AttentionShape> shapes_;
  std::vector<int64_t> block_bytes_;
  std::vector<uint8_t> filled_;
};

}  // namespace moestro::engine
