#include "services/worker/engine/kv_cache.h"

#include <algorithm>
#include <numeric>

#include "common/lanes/schedule.h"
#include "common/model/mixer.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {

namespace {

Status too_many(int64_t blocks, const char* what, const char* flag) {
  return exhausted(std::string("no memory for ") + what + " of " + std::to_string(blocks * kernels::kKvBlockTokens) +
                   " tokens; ask for fewer with " + flag);
}

}  // namespace

/// From the places backwards, so that each layer's array of blocks meets the first place.
KvArea KvArea::of(const model::ModelSpec& spec, const EngineOptions& options, const KvShares& shares) {
  KvArea area;
  int64_t widest = 0, common = 1;
  for (const model::LayerSpec& layer : spec.layers) {
    const int64_t bytes = model::kv_block_bytes(layer.kv, options.kv_dtype);
    if (bytes == 0) continue;
    widest = std::max(widest, bytes);
    common = std::lcm(common, bytes);
  }
  // Two layers may be in two places at once, so each place is whole blocks of all of them.
  const int64_t place_bytes = ceil_div(shares.place_blocks * widest, common) * common;
  int64_t before = 0;  // bytes from the layer's first block to the places
  for (const model::LayerSpec& layer : spec.layers) {
    const int64_t bytes = model::kv_block_bytes(layer.kv, options.kv_dtype);
    if (bytes == 0) {  // it keeps no KV
      area.layers.push_back({.first = before});
      continue;
    }
    before = ceil_div(before + shares.resident * bytes, bytes) * bytes;
    area.layers.push_back({.first = before, .places = before / bytes, .place_blocks = place_bytes / bytes});
  }
  for (Layer& layer : area.layers) layer.first = before - layer.first;
  area.bytes = before + lanes::kKvPlaces * place_bytes;
  return area;
}

Result<KvCache> KvCache::create(const model::ModelSpec& spec, const EngineOptions& options, kernels::Memory& memory) {
  KvCache cache(memory);
  cache.blocks_ = ceil_div(options.kv_tokens, kernels::kKvBlockTokens);
  cache.host_blocks_ = ceil_div(options.kv_host_tokens, kernels::kKvBlockTokens);
  cache.filled_.resize(static_cast<size_t>(cache.blocks_ + cache.host_blocks_));
  for (const model::LayerSpec& layer : spec.layers) {
    cache.shapes_.push_back(attention_shape(layer.attention, options.visible));
    cache.latent_shapes_.push_back(layer.latent ? engine::latent_shape(*layer.latent) : kernels::LatentShape{});
    cache.block_bytes_.push_back(model::kv_block_bytes(layer.kv, options.kv_dtype));
  }
  const bool at_home = options.kv_home == KvHome::kDevice;
  MOESTRO_RETURN_IF_ERROR(at_home ? cache.make_layers(spec, options) : cache.make_area(spec, options));
  return cache;
}

Status KvCache::make_layers(const model::ModelSpec& spec, const EngineOptions& options) {
  on_device_ = blocks_;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    auto* data = buffers_.make<std::byte>(block_bytes_[l] * blocks_);
    if (data == nullptr && block_bytes_[l] > 0) return too_many(blocks_, "a KV cache", "--kv-tokens");
    auto* host = host_buffers_.make<std::byte>(block_bytes_[l] * host_blocks_);
    if (host == nullptr && host_blocks_ > 0 && block_bytes_[l] > 0)
      return too_many(host_blocks_, "KV blocks in host memory", "--kv-host-tokens");
    if (options.poison_kv && block_bytes_[l] > 0) {
      buffers_.memory().fill(data, 0xff, block_bytes_[l] * blocks_);
      host_buffers_.memory().fill(host, 0xff, block_bytes_[l] * host_blocks_);
    }
    layers_.push_back({.data = data, .dtype = options.kv_dtype, .blocks = blocks_});
    host_layers_.push_back(host);
  }
  return Status::ok();
}

Status KvCache::make_area(const model::ModelSpec& spec, const EngineOptions& options) {
  if (host_blocks_ > 0)
    return invalid_argument("--kv-host-tokens with --kv-home host: running sequences have theirs in host memory "
                            "already; take more --kv-tokens instead");
  MOESTRO_ASSIGN_OR_RETURN(const KvShares shares, share_kv(options, spec));
  on_device_ = shares.resident, place_blocks_ = shares.place_blocks;
  area_ = KvArea::of(spec, options, shares);
  auto* const data = buffers_.make<std::byte>(area_.bytes);
  if (data == nullptr)
    return too_many(shares.resident + lanes::kKvPlaces * shares.place_blocks, "the device's part of a KV cache",
                    "--kv-ring-tokens");
  if (options.poison_kv) buffers_.memory().fill(data, 0xff, area_.bytes);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const KvArea::Layer& of = area_.layers[l];
    layers_.push_back({.data = data + of.first, .dtype = options.kv_dtype,
                       .blocks = of.places + lanes::kKvPlaces * of.place_blocks});
    const int64_t home = blocks_ - on_device_;
    auto* const host = host_buffers_.make<std::byte>(block_bytes_[l] * home);
    if (host == nullptr && home > 0) return too_many(blocks_, "a KV cache in host memory", "--kv-tokens");
    if (options.poison_kv) host_buffers_.memory().fill(host, 0xff, block_bytes_[l] * home);
    host_layers_.push_back(host);
  }
  return Status::ok();
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
