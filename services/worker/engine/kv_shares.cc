#include "services/worker/engine/kv_shares.h"

#include <algorithm>
#include <string>

#include "common/lanes/schedule.h"
#include "common/model/mixer.h"
#include "kernels/ops.h"
#include "services/worker/engine/kv_cache.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {
namespace {

constexpr int64_t kBlock = kernels::kKvBlockTokens;
constexpr int64_t kRingTokens = 8192;  ///< where the options do not say, and the cache has as many

std::string tokens(int64_t blocks) { return std::to_string(blocks * kBlock); }

/// What the queries of a step's largest chunk see. A block may be cut at both ends.
int64_t sequence_blocks(const EngineOptions& o, const model::ModelSpec& spec, int64_t blocks) {
  const int64_t all = ceil_div(positions_max(o, spec, blocks), kBlock);
  const VisiblePositions visible = visible_in_all(spec, o.visible);
  if (visible.window == 0) return all;
  const int64_t seen = ceil_div(visible.sinks, kBlock) + ceil_div(visible.window + o.step_tokens_max, kBlock) + 1;
  return std::min(all, seen);
}

Status check_group(const EngineOptions& o, const KvShares& s) {
  if (o.cut.rows > s.place_blocks)
    return invalid_argument("--micro-batch-rows " + std::to_string(o.cut.rows) + ": each sequence has at least " +
                            std::to_string(kBlock) + " tokens of KV on the device while it is computed, and a "
                            "micro-batch has room for " + tokens(s.place_blocks) + " there; take at most " +
                            std::to_string(s.place_blocks) + " rows, or more --kv-ring-tokens");
  const int64_t group = std::max<int64_t>(1, o.cut.count) * o.cut.rows;
  if (group > s.blocks)
    return invalid_argument("a group of --micro-batches " + std::to_string(o.cut.count) + " with --micro-batch-rows " +
                            std::to_string(o.cut.rows) + " has " + std::to_string(group) +
                            " sequences, which take at least " + tokens(group) + " tokens of KV; --kv-tokens is " +
                            tokens(s.blocks));
  return Status::ok();
}

}  // namespace

Status check_kv_in_host_memory(const model::ModelSpec& spec) {
  if (!spec.has_states()) return Status::ok();
  return unsupported("--kv-home host with layers of the gated delta rule, whose states stay on the device");
}

Result<KvShares> share_kv(const EngineOptions& o, const model::ModelSpec& spec) {
  MOESTRO_RETURN_IF_ERROR(check_kv_in_host_memory(spec));
  KvShares s{.blocks = ceil_div(o.kv_tokens, kBlock)};
  s.resident = ceil_div(o.kv_resident_tokens, kBlock);
  if (o.kv_resident_tokens < 0 || s.resident > s.blocks)
    return invalid_argument("--kv-resident-tokens " + std::to_string(o.kv_resident_tokens) + " of --kv-tokens " +
                            std::to_string(o.kv_tokens) + ": at most all of them stay on the device");
  s.sequence_blocks = sequence_blocks(o, spec, s.blocks);
  const int64_t least = lanes::kKvPlaces * s.sequence_blocks;
  const int64_t usual = std::max(least, std::min(s.blocks - s.resident, kRingTokens / kBlock));
  const int64_t ring = o.kv_ring_tokens > 0 ? o.kv_ring_tokens / kBlock : usual;
  if (o.kv_ring_tokens < 0 || ring < least)
    return invalid_argument("--kv-ring-tokens " + std::to_string(o.kv_ring_tokens) + ": a sequence needs up to " +
                            tokens(s.sequence_blocks) + " tokens of KV on the device, and the KV of " +
                            std::to_string(lanes::kKvPlaces) + " micro-batches is there at a time; take at least " +
                            tokens(least) + ", or a smaller --context");
  s.place_blocks = o.kv_ring_tokens > 0 ? ring / lanes::kKvPlaces : ceil_div(ring, lanes::kKvPlaces);
  MOESTRO_RETURN_IF_ERROR(check_group(o, s));
  return s;
}

Result<int64_t> kv_device_bytes(const EngineOptions& o, const model::ModelSpec& spec) {
  if (o.kv_home == KvHome::kHost) {
    MOESTRO_ASSIGN_OR_RETURN(const KvShares s, share_kv(o, spec));
    return KvArea::of(spec, o, s).bytes;
  }
  int64_t of_block = 0;
  for (const model::LayerSpec& layer : spec.layers) of_block += model::kv_block_bytes(layer.kv, o.kv_dtype);
  return of_block * ceil_div(o.kv_tokens, kBlock);
}

}  // namespace moestro::engine
