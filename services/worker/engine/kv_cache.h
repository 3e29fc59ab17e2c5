#pragma once
// The contents of the paged KV cache: the blocks that are used in computation, and, on a device with its own memory,
// further blocks in host memory whose contents wait for their next use. Where the home of the cache is host memory,
// all its blocks but the first few lie there, and the device has places for those that are in use (kv_shares.h,
// kv_ring.h). The scheduler owns the assignment of blocks.
// The cache knows how much of each block has been written, so that a plan that would read unwritten data is refused.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "common/status.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "services/worker/engine/engine_options.h"
#include "services/worker/engine/kv_shares.h"

namespace moestro::engine {

/// The memory that a cache whose home is host memory takes of the device: the resident blocks of each layer, then
/// places that all layers use in turn. Each layer sees one array of its own blocks, from its first resident block to
/// the end of the last place.
struct KvArea {
  struct Layer {
    int64_t first = 0;   ///< byte of its block 0
    int64_t places = 0;  ///< its block that is the first of the first place
    int64_t place_blocks = 0;  ///< from a place's first block to the next place's
  };
  std::vector<Layer> layers;
  int64_t bytes = 0;

  static KvArea of(const model::ModelSpec& spec, const EngineOptions& options, const KvShares& shares);
};

class KvCache {
 public:
  /// Allocates in `memory`, which outlives it, and in its host side. kExhausted if there is not enough memory; the
  /// message says how to ask for less.
  static Result<KvCache> create(const model::ModelSpec& spec, const EngineOptions& options, kernels::Memory& memory);

  int64_t blocks() const { return blocks_; }
  /// Their ids follow those of blocks().
  int64_t host_blocks() const { return host_blocks_; }
  size_t layers() const { return layers_.size(); }
  const kernels::KvView& layer(size_t index) const { return layers_[index]; }
  /// Blocks whose home is host memory, where the device has none of them for good: by their ids.
  kernels::KvView host_layer(size_t index) const {
    return {.data = host_layers_[index], .dtype = layers_[index].dtype, .blocks = blocks_ - on_device_};
  }
  const kernels::AttentionShape& shape(size_t index) const { return shapes_[index]; }
  const kernels::LatentShape& latent_shape(size_t index) const { return latent_shapes_[index]; }
  int64_t bytes() const { return buffers_.bytes(); }
  int64_t host_bytes() const { return host_buffers_.bytes(); }
  int64_t block_bytes(size_t layer) const { return block_bytes_[layer]; }
  /// Where a block of a layer lies, in the device's memory or in the host's: between steps, where its home is the
  /// host's.
  std::byte* block(size_t layer, uint32_t id) const {
    return id < on_device_ ? on_device(layer, id) : host_layers_[layer] + (id - on_device_) * block_bytes_[layer];
  }
  /// Blocks whose home is the device's memory; their ids come first.
  int64_t resident_blocks() const { return on_device_; }

  // Where the home is host memory: places on the device.

  bool has_places() const { return place_blocks_ > 0; }
  int64_t place_blocks() const { return place_blocks_; }
  /// A block of a place, as layer() counts.
  uint32_t place_block(size_t layer, int32_t place, int64_t index) const {
    const KvArea::Layer& l = area_.layers[layer];
    return static_cast<uint32_t>(l.places + place * l.place_blocks + index);
  }
  std::byte* on_device(size_t layer, uint32_t id) const {
    return static_cast<std::byte*>(layers_[layer].data) + id * block_bytes_[layer];
  }
  /// Bytes of one position in one layer, including scales.
  double token_bytes(size_t layer) const { return static_cast<double>(block_bytes_[layer]) / kernels::kKvBlockTokens; }

  /// Written tokens of each block, including blocks in host memory.
  std::span<const uint8_t> filled() const { return filled_; }
  /// Records that positions [first, last) of a sequence with this block table are written now.
  void mark_written(std::span<const uint32_t> table, int64_t first, int64_t last);
  /// Records that these contents are invalid: plans that read them are refused.
  void mark_lost(std::span<const uint32_t> table, int64_t first, int64_t last);
  /// Records that a block has the contents of another; both in range. The pass copies them.
  void mark_copied(uint32_t from, uint32_t to) { filled_[to] = filled_[from]; }
  /// Begins a new epoch: all blocks are empty.
  void forget_all();

 private:
  explicit KvCache(kernels::Memory& memory) : buffers_(memory), host_buffers_(memory.host_side()) {}
  Status make_layers(const model::ModelSpec& spec, const EngineOptions& options);
  Status make_area(const model::ModelSpec& spec, const EngineOptions& options);

  kernels::Buffers buffers_, host_buffers_;
  int64_t blocks_ = 0, host_blocks_ = 0;
  int64_t on_device_ = 0;     ///< blocks that block() finds on the device
  int64_t place_blocks_ = 0;
  KvArea area_;
  std::vector<kernels::KvView> layers_;
  std::vector<std::byte*> host_layers_;
  std::vector<kernels::AttentionShape> shapes_;  ///< of no heads for layers of another kind
  std::vector<kernels::LatentShape> latent_shapes_;
  std::vector<int64_t> block_bytes_;
  std::vector<uint8_t> filled_;
};

}  // namespace moestro::engine
