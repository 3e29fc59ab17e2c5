#include "services/worker/engine/kv_cache.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {
namespace {
constexpr size_t kAlign = 64;
}

void KvCache::Free::operator()(void* p) const { std::free(p); }

Result<KvCache> KvCache::create(const model::ModelSpec& spec, int64_t blocks, const EngineOptions& options) {
  KvCache cache;
  cache.blocks_ = blocks;
  cache.filled_.resize(static_cast<size_t>(blocks));
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.kv.kind != model::KvSpec::Kind::kHeads) return unsupported("KV caches other than per-head keys and values");
    const kernels::AttentionShape shape = attention_shape(layer.attention, options.visible);
    const int64_t block_bytes = kernels::kv_block_bytes(shape, options.kv_dtype);
    const auto bytes = static_cast<size_t>(block_bytes * blocks);
    void* memory = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign);
    if (memory == nullptr)
      return exhausted("no memory for a KV cache of " + std::to_string(blocks * kernels::kKvBlockTokens) +
                       " tokens; ask for fewer with --kv-tokens");
    std::memset(memory, options.poison_kv ? 0xff : 0, bytes);  // also backs the pages now rather than in the first requests
    cache.memory_.emplace_back(memory);
    cache.layers_.push_back({.data = memory, .dtype = options.kv_dtype, .blocks = blocks});
    cache.shapes_.push_back(shape);
    cache.block_bytes_.push_back(block_bytes);
    cache.bytes_ += static_cast<int64_t>(bytes);
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

void KvCache::copy_block(uint32_t from, uint32_t to) {
  if (from == to) return;
  for (size_t i = 0; i < layers_.size(); ++i) {
    auto* base = static_cast<std::byte*>(layers_[i].data);
    std::memcpy(base + static_cast<int64_t>(to) * block_bytes_[i], base + static_cast<int64_t>(from) * block_bytes_[i],
                static_cast<size_t>(block_bytes_[i]));
  }
  filled_[to] = filled_[from];
}

void KvCache::forget_all() { std::fill(filled_.begin(), filled_.end(), 0); }

}  // namespace moestro::engine
