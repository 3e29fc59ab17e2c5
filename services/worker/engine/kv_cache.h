#pragma once
// The contents of the paged KV cache: blocks that are computed with, and behind them, on a device with a memory of its
// own, blocks in the host's, where contents wait for their next use. Which block belongs to whom is the scheduler's
// business; the cache knows how much of each block has been written, so that a plan which would read what nobody wrote
// is refused.

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
  /// In `memory`, which outlives it, and its host's side. kExhausted if there is not so much; the message says how to
  /// ask for less.
  static Result<KvCache> create(const model::ModelSpec& spec, const EngineOptions& options, kernels::Memory& memory);

  int64_t blocks() const { return blocks_; }
  /// Their ids follow on those of blocks().
  int64_t host_blocks() const { return host_blocks_; }
  size_t layers() const { return layers_.size(); }
  const kernels::KvView& layer(size_t index) const { return layers_[index]; }
  const kernels::AttentionShape& shape(size_t index) const { return shapes_[index]; }
  int64_t bytes() const { return buffers_.bytes(); }
  int64_t host_bytes() const { return host_buffers_.bytes(); }
  int64_t block_bytes(size_t layer) const { return block_bytes_[layer]; }
  /// Where a block of a layer lies, in the device's memory or in the host's.
  std::byte* block(size_t layer, uint32_t id) const {
    return id < blocks_ ? static_cast<std::byte*>(layers_[layer].data) + id * block_bytes_[layer]
                        : host_layers_[layer] + (id - blocks_) * block_bytes_[layer];
  }
  /// Of one position in one layer, scales included.
  double token_bytes(size_t layer) const { return static_cast<double>(block_bytes_[layer]) / kernels::kKvBlockTokens; }

  /// Written tokens of each block, those in host memory included.
  std::span<const uint8_t> filled() const { return filled_; }
  /// Records that positions [first, last) of a sequence with this block table are written now.
  void mark_written(std::span<const uint32_t> table, int64_t first, int64_t last);
  /// Records that what was written there is of no use: whoever reads it is refused.
  void mark_lost(std::span<const uint32_t> table, int64_t first, int64_t last);
  /// Records that a block has the contents of another; both in range. Copying them is the pass's business.
  void mark_copied(uint32_t from, uint32_t to) { filled_[to] = filled_[from]; }
  /// A new epoch: nothing is written.
  void forget_all();

 private:
  explicit KvCache(kernels::Memory& memory) : buffers_(memory), host_buffers_(memory.host_side()) {}
  kernels::Buffers buffers_, host_buffers_;
  int64_t blocks_ = 0, host_blocks_ = 0;
  std::vector<kernels::KvView> layers_;
  std::vector<std::byte*> host_layers_;
  std::vector<kernels::AttentionShape> shapes_;
  std::vector<int64_t> block_bytes_;
  std::vector<uint8_t> filled_;
};

}  // namespace moestro::engine
