// How a step is cut into micro-batches, and how a KV cache whose home is host memory is divided: what fits, where
// blocks lie, and what is refused with the figures.

#include "services/worker/engine/kv_shares.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "common/lanes/schedule.h"
#include "services/worker/engine/kv_ring.h"
#include "services/worker/engine/micro_batch_cut.h"

namespace moestro::engine {
namespace {

/// Rows of the micro-batches of a step whose sequences have these rows, and as many KV blocks.
std::vector<int64_t> cut(const MicroBatchOptions& options, const std::vector<int64_t>& rows, int64_t blocks_max = 0) {
  int64_t all = 0;
  for (const int64_t r : rows) all += r;
  MicroBatchCut cut;
  cut.begin(options, all, blocks_max);
  std::vector<int64_t> parts;
  for (const int64_t r : rows) {
    if (cut.before(r, r) || parts.empty()) parts.push_back(0);
    parts.back() += r;
  }
  return parts;
}

TEST(MicroBatchCut, CutsWhereItIsTold) {
  const std::vector<int64_t> ones(64, 1);
  EXPECT_EQ(cut({.count = 4}, ones), (std::vector<int64_t>{16, 16, 16, 16}));
  EXPECT_EQ(cut({.rows = 24}, ones), (std::vector<int64_t>{24, 24, 16}));
  EXPECT_EQ(cut({.count = 4, .rows = 10}, ones).front(), 10);
  EXPECT_EQ(cut({.count = 6, .least = 32}, ones), (std::vector<int64_t>{32, 32}));
  EXPECT_EQ(cut({.count = 6, .least = 16}, {1, 1, 1, 1}), std::vector<int64_t>{4}) << "too few for two";
  EXPECT_EQ(cut({}, ones), (std::vector<int64_t>{16, 16, 16, 16})) << "16 rows each";
  EXPECT_EQ(cut({}, std::vector<int64_t>(256, 1)).size(), 8u) << "and at most 8";
  EXPECT_EQ(cut({}, {1, 1}), std::vector<int64_t>{2});
  EXPECT_EQ(cut({.rows = 4}, {9, 1, 3}), (std::vector<int64_t>{9, 4})) << "a sequence is not cut";
  EXPECT_EQ(cut({.count = 1}, ones, 20), (std::vector<int64_t>{20, 20, 20, 4})) << "KV has the last word";
}

TEST(MicroBatchCut, KeepsItsBoundsWhateverComes) {
  std::minstd_rand random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int64_t> rows(1 + random() % 40);
    for (int64_t& r : rows) r = 1 + static_cast<int64_t>(random() % 9);
    const MicroBatchOptions options{.count = static_cast<int64_t>(random() % 6),
                                    .rows = static_cast<int64_t>(random() % 20)};
    const int64_t blocks = 10 + static_cast<int64_t>(random() % 20);
    const auto parts = cut(options, rows, blocks);
    for (const int64_t part : parts) {
      EXPECT_GT(part, 0);
      EXPECT_LE(part, blocks);
      if (options.rows >= 9) EXPECT_LE(part, options.rows);
    }
    if (options.count > 0 && options.rows == 0) EXPECT_LE(std::ssize(cut(options, rows)), options.count);
  }
}

model::ModelSpec spec_of(const std::vector<int64_t>& kv_heads, int64_t window = 0) {
  model::ModelSpec spec;
  spec.max_position = 256;
  for (const int64_t heads : kv_heads) {
    model::LayerSpec& layer = spec.layers.emplace_back();
    layer.attention.heads = layer.attention.kv_heads = heads;
    layer.kv = {.heads = heads, .head_dim = layer.attention.head_dim = 8};
    layer.attention.sliding_window = window;
  }
  return spec;
}

EngineOptions options_of(int64_t kv_tokens, int64_t resident, int64_t ring) {
  return {.model = "m",
          .kv_tokens = kv_tokens,
          .kv_home = KvHome::kHost,
          .kv_resident_tokens = resident,
          .kv_ring_tokens = ring};
}

TEST(KvShares, HaveRoomForTheLongestSequences) {
  const auto usual = share_kv(options_of(4096, 0, 0), spec_of({2}));
  ASSERT_TRUE(usual.is_ok()) << usual.status().message();
  EXPECT_EQ(usual->blocks, 256);
  EXPECT_EQ(usual->sequence_blocks, 16);
  EXPECT_EQ(usual->place_blocks, 86) << "all of a small cache";
  EXPECT_EQ(share_kv(options_of(1 << 20, 0, 0), spec_of({2}))->place_blocks, 171) << "8192 tokens";
  EXPECT_EQ(share_kv(options_of(4096, 0, 16 * 48), spec_of({2}))->place_blocks, 16);
  EngineOptions in_chunks = options_of(4096, 0, 0);
  in_chunks.step_tokens_max = 32;
  EXPECT_EQ(share_kv(in_chunks, spec_of({2}, 64))->sequence_blocks, 7) << "a window and a chunk, cut at both ends";
}

TEST(KvShares, WhatDoesNotFitIsRefusedWithTheFigures) {
  const auto refused = [](const EngineOptions& o) {
    const auto shares = share_kv(o, spec_of({2}));
    EXPECT_FALSE(shares.is_ok());
    return shares.is_ok() ? std::string() : shares.status().message();
  };
  EXPECT_NE(refused(options_of(4096, 0, 400)).find("take at least 768"), std::string::npos);
  EXPECT_NE(refused(options_of(4096, 4112, 0)).find("--kv-resident-tokens 4112 of --kv-tokens 4096"),
            std::string::npos);
  EngineOptions rows = options_of(4096, 0, 16 * 60);
  rows.cut.rows = 21;
  EXPECT_NE(refused(rows).find("at most 20 rows"), std::string::npos) << refused(rows);
  EngineOptions group = options_of(1024, 0, 16 * 60);
  group.cut = {.count = 4, .rows = 20};
  EXPECT_NE(refused(group).find("has 80 sequences, which take at least 1280 tokens of KV; --kv-tokens is 1024"),
            std::string::npos)
      << refused(group);
}

/// Layers with blocks of different sizes: no byte belongs to two blocks that are in use at once.
TEST(KvArea, LayersShareThePlacesAndNothingElse) {
  const std::vector<int64_t> heads{2, 3, 1, 2};
  const model::ModelSpec spec = spec_of(heads);
  const EngineOptions options = options_of(4096, 5 * 16, 0);
  const KvShares shares = *share_kv(options, spec);
  const KvArea area = KvArea::of(spec, options, shares);
  std::set<std::pair<int64_t, int64_t>> resident;  // begin, end
  int64_t places_begin = INT64_MAX;
  std::vector<int64_t> place_bytes;
  int64_t of_block = 0;
  for (size_t l = 0; l < heads.size(); ++l) {
    const kernels::AttentionShape shape{.heads = heads[l], .kv_heads = heads[l], .head_dim = 8};
    const int64_t bytes = kernels::kv_block_bytes(shape, DType::kF32);
    of_block += bytes;
    const KvArea::Layer& of = area.layers[l];
    EXPECT_GE(of.first, 0);
    EXPECT_EQ(of.first % 64, 0);
    resident.insert({of.first, of.first + shares.resident * bytes});
    places_begin = std::min(places_begin, of.first + of.places * bytes);
    EXPECT_EQ(of.first + of.places * bytes, places_begin) << "all layers' places begin at one byte";
    place_bytes.push_back(of.place_blocks * bytes);
    EXPECT_GE(of.place_blocks, shares.place_blocks);
    EXPECT_LE(places_begin + lanes::kKvPlaces * place_bytes.back(), area.bytes);
  }
  EXPECT_EQ(std::set(place_bytes.begin(), place_bytes.end()).size(), 1u) << "and are equally long";
  int64_t before = 0;
  for (const auto& [begin, end] : resident) {
    EXPECT_GE(begin, before);
    before = end;
  }
  EXPECT_LE(before, places_begin);
  EXPECT_EQ(*kv_device_bytes(options, spec), area.bytes);
  EngineOptions at_home = options;
  at_home.kv_home = KvHome::kDevice;
  EXPECT_EQ(*kv_device_bytes(at_home, spec), 4096 / 16 * of_block) << "all of it";
}

TEST(KvArea, LayersWithoutKvTakeNoneOfIt) {
  const EngineOptions options = options_of(4096, 5 * 16, 0);
  const model::ModelSpec with_kv = spec_of({2, 3});
  model::ModelSpec spec = with_kv;
  spec.layers.insert(spec.layers.begin() + 1, model::LayerSpec{});
  spec.layers.push_back({});
  const KvShares shares = *share_kv(options, with_kv);
  const KvArea area = KvArea::of(spec, options, shares), expected = KvArea::of(with_kv, options, shares);
  EXPECT_EQ(area.bytes, expected.bytes);
  ASSERT_EQ(area.layers.size(), 4u);
  for (const size_t l : {0u, 1u}) {
    EXPECT_EQ(area.layers[2 * l].first, expected.layers[l].first);
    EXPECT_EQ(area.layers[2 * l].places, expected.layers[l].places);
    EXPECT_EQ(area.layers[2 * l + 1].places, 0);
    EXPECT_EQ(area.layers[2 * l + 1].place_blocks, 0);
  }
}

/// Against what the kernels' masks say of each position.
TEST(SeenBlocks, AreThoseOfTheVisiblePositions) {
  for (const int64_t window : {0, 1, 16, 17, 40})
    for (const int64_t sinks : {0, 2, 20})
      for (int64_t first = 0; first < 120; first += 7)
        for (const int64_t tokens : {1, 5, 33}) {
          const kernels::AttentionShape shape{.window = window, .sinks = window > 0 ? sinks : 0};
          std::set<int64_t> expected, seen;
          for (int64_t q = first; q < first + tokens; ++q)
            for (int64_t p = 0; p <= q; ++p)
              if (window == 0 || p > q - window || p < shape.sinks || !shape.has_gap(q)) expected.insert(p / 16);
          const SeenBlocks blocks = seen_blocks(shape, first, tokens);
          for (int64_t k = 0; k <= (first + tokens) / 16 + 1; ++k)
            if (blocks.sees(k)) seen.insert(k);
          for (const int64_t k : expected) EXPECT_TRUE(seen.contains(k)) << k << " of window " << window;
          EXPECT_LE(seen.size(), expected.size() + 2);
        }
}

}  // namespace
}  // namespace moestro::engine
