#include "services/worker/engine/kv_cache.h"

#include <algorithm>

#include "common/model/mixer.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {

Result<KvCache> KvCache::create(const model::ModelSpec& spec, const EngineOptions& options, kernels::Memory& memory) {
  KvCache cache(memory);
  cache.blocks_ = ceil_div(options.kv_tokens, kernels::kKvBlockTokens);
  cache.host_blocks_ = ceil_div(options.kv_host_tokens, kernels::kKvBlockTokens);
  cache.filled_.resize(static_cast<size_t>(cache.blocks_ + cache.host_blocks_));
  const auto too_many = [](int64_t blocks, const char* what, const char* flag) {
    return exhausted(std::string("no memory for ") + what + " of " + std::to_string(blocks * kernels::kKvBlockTokens) +
                     " tokens; ask for fewer with " + flag);
  };
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.kv.kind == model::KvSpec::Kind::kCross) return unsupported("KV caches of another stack's positions");
    const int64_t block_bytes = model::kv_block_bytes(layer.kv, options.kv_dtype);
    auto* data = cache.buffers_.make<std::byte>(block_bytes * cache.blocks_);
    if (data == nullptr) return too_many(cache.blocks_, "a KV cache", "--kv-tokens");
    auto* host = cache.host_buffers_.make<std::byte>(block_bytes * cache.host_blocks_);
    if (host == nullptr && cache.host_blocks_ > 0)
      return too_many(cache.host_blocks_, "KV blocks in host memory", "--kv-host-tokens");
    if (options.poison_kv) {
      memory.fill(data, 0xff, block_bytes * cache.blocks_);
      memory.host_side().fill(host, 0xff, block_bytes * cache.host_blocks_);
    }
    cache.layers_.push_back({.data = data, .dtype = options.kv_dtype, .blocks = cache.blocks_});
    cache.host_layers_.push_back(host);
    cache.shapes_.push_back(attention_shape(layer.attention, options.visible));
    cache.latent_shapes_.push_back(layer.latent ? engine::latent_shape(*layer.latent) : kernels::LatentShape{});
    cache.block_bytes_.push_back(block_bytes);
  }
  return cache;
}

void KvCache::mark_written(std::span<const uint32_t> table, int64_t first, int64_t last) {
  for (int64_t p = first; p < last;) {
    const int64_t offset = p % kernels::kKvBlockTokens;
    const int64_t end = std::min(last, p - offset + kernels::kKvBlockTokens);
    uint8_t& filled = filled_[table[static_cast<size_t>(p / kernels::kKvBlockTokens)]];
    // Writing from a block's start means a new owner: what lay behind is the old one's.
    const auto reached = static_cast<uint8_t>(offset + end - p);
    filled = offset == 0 ? reached : std::max(filled, reached);
    p = end;
  }
}

void KvCache::mark_lost(std::span<const uint32_t> table, int64_t first, int64_t last) {
  for (int64_t p = first; p < last;) {
    const int64_t offset = p % kernels::kKvBlockTokens;
    uint8_t& filled = filled_[table[static_cast<size_t>(p / kernels::kKvBlockTokens)]];
    filled = std::min(filled, static_cast<uint8_t>(offset));
    p += kernels::kKvBlockTokens - offset;
  }
}

void KvCache::forget_all() { std::fill(filled_.begin(), filled_.end(), 0); }

}  // namespace moestro::engine
