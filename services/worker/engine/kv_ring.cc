#include "services/worker/engine/kv_ring.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;

int64_t bytes_of(std::span<const KvMove> moves) {
  int64_t bytes = 0;
  for (const KvMove& m : moves) bytes += m.bytes;
  return bytes;
}

}  // namespace

SeenBlocks seen_blocks(const kernels::AttentionShape& shape, int64_t first_position, int64_t tokens) {
  return {.sinks_end = ceil_div(shape.sinks, kBlockTokens),
          .window_begin = shape.window_begin(first_position) / kBlockTokens,
          .end = ceil_div(first_position + tokens, kBlockTokens)};
}

int64_t place_blocks_of(const KvCache& cache, std::span<const uint32_t> table, int64_t first_position, int64_t tokens) {
  int64_t most = 0;
  for (size_t l = 0; l < cache.layers(); ++l) {
    if (l > 0 && cache.shape(l).window == cache.shape(l - 1).window && cache.shape(l).sinks == cache.shape(l - 1).sinks)
      continue;
    const SeenBlocks seen = seen_blocks(cache.shape(l), first_position, tokens);
    int64_t blocks = 0;
    for (int64_t k = 0; k < seen.end; ++k)
      blocks += seen.sees(k) && table[static_cast<size_t>(k)] >= cache.resident_blocks();
    most = std::max(most, blocks);
  }
  return most;
}

KvRing::KvRing(const KvCache& cache, const model::ModelSpec& spec, KvLink& link, kernels::Memory* poison)
    : cache_(cache), link_(link), poison_(poison), places_(lanes::kKvPlaces) {
  int32_t next = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    moe_layer_.push_back(next);
    next += layer.moe_index ? 1 : 0;
  }
  seen_.resize(static_cast<size_t>(cache.blocks()));
  given_.resize(seen_.size());
  for (Place& place : places_) {
    place.moves.reserve(static_cast<size_t>(cache.place_blocks()));
    place.tables.reserve(static_cast<size_t>(cache.place_blocks() + cache.resident_blocks()));
    place.sequences.reserve(static_cast<size_t>(cache.place_blocks()));
  }
}

void KvRing::begin(const StepBatch& batch) {
  batch_ = &batch;
  loaded_ = saved_ = 0;
  for (Place& place : places_) place.layer = place.micro_batch = -1;
}

std::span<const kernels::AttentionSequence> KvRing::home_sequences(int32_t micro_batch) const {
  const TokenRange of = batch_->micro_batches[static_cast<size_t>(micro_batch)].sequences;
  return std::span(batch_->attention).subspan(of.first, of.count);
}

void KvRing::add_move(std::vector<KvMove>& moves, KvMove move) {
  if (!moves.empty() && moves.back().to + moves.back().bytes == move.to &&
      moves.back().from + moves.back().bytes == move.from)
    moves.back().bytes += move.bytes;
  else
    moves.push_back(move);
}

/// Two sequences that share a prefix share its blocks here too.
void KvRing::add_table(const kernels::AttentionSequence& s, int32_t index, int64_t& used) {
  Place& place = places_[static_cast<size_t>(index)];
  const auto layer = static_cast<size_t>(place.layer);
  const SeenBlocks seen = seen_blocks(cache_.shape(layer), s.first_position, s.tokens);
  for (int64_t k = 0; k < seen.end; ++k) {
    const uint32_t home = s.blocks[static_cast<size_t>(k)];
    if (!seen.sees(k) || home < cache_.resident_blocks()) {
      place.tables.push_back(seen.sees(k) ? home : 0);  // 0: read by nobody
      continue;
    }
    if (seen_[home] != turn_) {
      MOESTRO_CHECK(used < cache_.place_blocks(), "a micro-batch fits its place");
      seen_[home] = turn_;
      given_[home] = cache_.place_block(layer, index, used++);
      if (k * kBlockTokens < s.first_position)
        add_move(place.moves,
                 {cache_.on_device(layer, given_[home]), cache_.block(layer, home), cache_.block_bytes(layer)});
    }
    place.tables.push_back(given_[home]);
  }
}

KvRing::Place& KvRing::obtain(int32_t layer, int32_t micro_batch) {
  const int32_t index = place_of(layer, micro_batch);
  Place& place = places_[static_cast<size_t>(index)];
  if (place.layer == layer && place.micro_batch == micro_batch) return place;
  MOESTRO_CHECK(place.saving < 0, "a place is free when what it had has been saved");
  place.layer = layer, place.micro_batch = micro_batch;
  place.tables.clear();
  place.sequences.clear();
  place.moves.clear();
  ++turn_;
  int64_t used = 0;
  for (const kernels::AttentionSequence& s : home_sequences(micro_batch)) add_table(s, index, used);
  size_t at = 0;
  for (const kernels::AttentionSequence& s : home_sequences(micro_batch)) {
    const auto blocks = static_cast<size_t>(ceil_div(s.first_position + s.tokens, kBlockTokens));
    place.sequences.push_back(s);
    place.sequences.back().blocks = std::span(place.tables).subspan(at, blocks);
    at += blocks;
  }
  return place;
}

void KvRing::add_saves(Place& place, int32_t layer, int32_t micro_batch) {
  const auto homes = home_sequences(micro_batch);
  for (size_t i = 0; i < homes.size(); ++i) {
    const kernels::AttentionSequence& s = homes[i];
    for (int64_t k = s.first_position / kBlockTokens; k * kBlockTokens < s.first_position + s.tokens; ++k) {
      const uint32_t home = s.blocks[static_cast<size_t>(k)];
      if (home < cache_.resident_blocks()) continue;
      const auto l = static_cast<size_t>(layer);
      const uint32_t here = place.sequences[i].blocks[static_cast<size_t>(k)];
      add_move(place.moves, {cache_.block(l, home), cache_.on_device(l, here), cache_.block_bytes(l)});
    }
  }
}

bool KvRing::start(lanes::TaskId id, const lanes::Task& task) {
  Place& place = obtain(task.layer, task.micro_batch);
  const bool saves = task.kind == lanes::TaskKind::kKvSave;
  if (saves) {
    place.moves.clear();
    add_saves(place, task.layer, task.micro_batch);
  }
  (saves ? saved_ : loaded_) += bytes_of(place.moves);
  if (place.moves.empty()) return false;
  if (saves) place.saving = id;
  ++under_way_;
  link_.begin(id, task, moe_layer_[static_cast<size_t>(task.layer)], place.moves);
  return true;
}

std::span<const kernels::AttentionSequence> KvRing::sequences(int32_t layer, int32_t micro_batch) {
  return obtain(layer, micro_batch).sequences;
}

void KvRing::poison(int32_t index) {
  const auto layer = static_cast<size_t>(places_[static_cast<size_t>(index)].layer);
  for (int64_t b = 0; b < cache_.place_blocks(); ++b)
    poison_->fill(cache_.on_device(layer, cache_.place_block(layer, index, b)), 0xff, cache_.block_bytes(layer));
  std::byte waited{};  // what comes next into the place is in no order with this memory's fills
  poison_->copy_out(&waited, cache_.on_device(layer, cache_.place_block(layer, index, 0)), 1);
}

void KvRing::take_ended(std::vector<lanes::TaskId>& ended) {
  if (under_way_ == 0) return;
  const size_t before = ended.size();
  link_.take_ended(ended);
  under_way_ -= static_cast<int>(ended.size() - before);
  for (size_t i = before; i < ended.size(); ++i)
    for (int32_t p = 0; p < lanes::kKvPlaces; ++p) {
      Place& place = places_[static_cast<size_t>(p)];
      if (place.saving != ended[i]) continue;
      place.saving = -1;
      if (poison_ != nullptr) poison(p);
    }
}

void KvRing::abandon() {
  link_.abandon();
  under_way_ = 0;
  for (Place& place : places_) place.saving = -1, place.layer = -1;
}

}  // namespace moestro::engine
