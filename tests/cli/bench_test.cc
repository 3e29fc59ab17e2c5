// `moestro bench engine` on a small pack: what it prints, and what it refuses. And what a step costs, counted by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "services/cli/bench/step_cost.h"
#include "store/pack/packer.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// A pack of a fixture (context 256, 8 experts or fewer, vocabulary 128), made once.
const std::string& small_pack() {
  static TempDir dir;
  static const std::string pack = [] {
    const auto source = source_dir() / "tests/fixtures/models/mixtral_llama3";
    const auto packed = store::pack_checkpoint(source, dir / "pack",
                                               {.experts = {DType::kBF16, DType::kInt8}, .dense = DType::kBF16}, {});
    EXPECT_TRUE(packed.is_ok()) << packed.status().message();
    return (dir / "pack").string();
  }();
  return pack;
}

Ran bench(std::vector<std::string> arguments) {
  std::vector<std::string> all = {"bench", "engine", "--model", small_pack(), "--threads", "1"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_moestro(all);
}

TEST(BenchEngine, JsonHasEveryMeasurementWithItsLimits) {
  const Ran ran = bench({"--prompt", "8,24", "--generate", "3", "--batch", "1,2", "--repeats", "2", "--stream", "64M",
                         "--experts", "int8", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("experts"), "int8");
  EXPECT_EQ(report.at("threads"), 1);
  EXPECT_EQ(report.at("streamed_bytes"), 64 << 20);
  for (const char* limit : {"dram_read", "matvec_bf16", "matvec_int8", "peak_f32", "gemm_512"})
    EXPECT_GT(report.at("limits").at(limit).at("median"), 0) << limit;
  const json& results = report.at("results");
  ASSERT_EQ(results.size(), 4u);
  const std::pair<const char*, std::pair<int, int>> expected[] = {
      {"prefill", {8, 1}}, {"prefill", {24, 1}}, {"decode", {3, 1}}, {"decode", {3, 2}}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i].at("what"), expected[i].first);
    EXPECT_EQ(results[i].at("tokens"), expected[i].second.first);
    EXPECT_EQ(results[i].at("batch"), expected[i].second.second);
    const json& rate = results[i].at("tokens_per_s");
    EXPECT_GT(rate.at("min"), 0);
    EXPECT_LE(rate.at("min"), rate.at("median"));
    EXPECT_LE(rate.at("median"), rate.at("max"));
    for (const char* share : {"dram_read", "matvec_bf16", "matvec_int8", "peak_f32", "gemm"})
      EXPECT_GT(results[i].at("shares").at(share).at("median"), 0) << share;
  }
  // What a prompt costs does not depend on chance; a longer one shares its weights among more tokens.
  EXPECT_EQ(results[0].at("flop_per_token").at("min"), results[0].at("flop_per_token").at("max"));
  EXPECT_GT(results[0].at("weight_bytes_per_token").at("median"), results[1].at("weight_bytes_per_token").at("median"));
}

/// The limits are those of the first layer's formats.
TEST(BenchEngine, APackOfSeveralFormatsHasLimits) {
  const TempDir dir;
  const auto file = source_dir() / "tests/fixtures/gguf/qwen3moe_k_quants/qwen3moe_k_quants.gguf";
  const Ran packed = run_moestro({"pack", file.string(), "-o", (dir / "pack").string()});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  const Ran ran = run_moestro({"bench", "engine", "--model", (dir / "pack").string(), "--threads", "1", "--prompt", "0",
                               "--generate", "2", "--repeats", "1", "--stream", "64M", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("experts"), "mixed");
  EXPECT_GT(report.at("limits").at("gemm_512").at("median"), 0);
}

TEST(BenchEngine, APackMayLieAnywhere) {
  const TempDir dir;
  const std::string path = (dir / "pack \xff").string();  // no UTF-8
  std::filesystem::create_directory_symlink(small_pack(), path);
  const Ran ran = run_moestro({"bench", "engine", "--model", path, "--threads", "1", "--prompt", "0", "--generate", "1",
                               "--repeats", "1", "--no-limits", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(json::parse(ran.out).at("pack"), (dir / "pack \uFFFD").string());
}

TEST(BenchEngine, CountsWhatCameOverADevicesLink) {
  const auto result_on = [](const std::string& device) {
    const Ran ran =
        bench({"--prompt", "0", "--generate", "4", "--repeats", "1", "--no-limits", "--json", "--device", device});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return json::parse(ran.out).at("results")[0];
  };
  EXPECT_EQ(result_on("cpu").at("moved_bytes_per_token").at("median"), 0);
  const json result = result_on("emulated:vram=64K,link=100M");
  const auto experts = [&](const char* what) {
    return result.at("experts_per_token").at(what).at("median").get<double>();
  };
  EXPECT_GT(result.at("moved_bytes_per_token").at("median"), 0);
  EXPECT_GT(experts("misses"), 0);
  EXPECT_GT(result.at("stalled_seconds_per_token").at("median"), 0);
  EXPECT_EQ(experts("on_cpu"), 0);
}

TEST(BenchEngine, TheTableNamesWhatWasMeasured) {
  const Ran ran = bench({"--prompt", "8", "--generate", "2", "--batch", "2", "--repeats", "1", "--stream", "64M"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* part :
       {"prefill 8 ", "decode 2 x 2 ", "dram_read", "matvec_bf16", "of best", "limits of the host", "64.0 MiB"})
    EXPECT_THAT(ran.out, HasSubstr(part));
  const Ran bare = bench({"--prompt", "0", "--generate", "2", "--repeats", "1", "--no-limits"});
  ASSERT_EQ(bare.exit_code, 0) << bare.err;
  EXPECT_THAT(bare.out, testing::Not(HasSubstr("dram_read")));
  EXPECT_THAT(bare.out, testing::Not(HasSubstr("prefill")));
}

/// Over the emulated plugin, whose figures mean nothing.
TEST(BenchEngine, OnAGpuTheLimitsAreTheGpus) {
  ::setenv("MOESTRO_CUDA_PLUGIN", EMULATED_CUDA_PLUGIN, 1);
  const std::vector<std::string> on_gpu{"--prompt", "8",        "--generate", "2",        "--repeats",
                                        "1",        "--stream", "256K",       "--device", "cuda:0,vram=64M"};
  const Ran table = bench(on_gpu);
  auto as_json = on_gpu;
  as_json.insert(as_json.end(), {"--json"});
  const Ran ran = bench(as_json);
  as_json.push_back("--deterministic");
  const Ran deterministic = bench(as_json);
  ::unsetenv("MOESTRO_CUDA_PLUGIN");
  ASSERT_EQ(table.exit_code, 0) << table.err;
  for (const char* part : {"of device", "limits of the device", "256 KiB of its memory", "device_copy", "device_fill",
                           "device_bf16", "on tensor cores"})
    EXPECT_THAT(table.out, HasSubstr(part));
  for (const char* hosts : {"DRAM", "dram_read", "matvec", "peak"})
    EXPECT_THAT(table.out, testing::Not(HasSubstr(hosts)));
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json report = json::parse(ran.out);
  EXPECT_EQ(report.at("streamed_bytes"), 256 << 10);
  EXPECT_EQ(report.at("limits").size(), 4u);
  for (const json& limit : report.at("limits")) EXPECT_GT(limit.at("median"), 0) << limit;
  for (const json& result : report.at("results"))
    for (const char* share : {"device_memory", "device_f32", "device_bf16"})
      EXPECT_GT(result.at("shares").at(share).at("median"), 0) << share;
  ASSERT_EQ(deterministic.exit_code, 0) << deterministic.err;
  EXPECT_FALSE(json::parse(deterministic.out).at("limits").contains("device_bf16")) << "nothing runs on tensor cores";
}

TEST(BenchEngine, MemoryForTheLimitsThatAGpuHasNotIsRefused) {
  ::setenv("MOESTRO_CUDA_PLUGIN", EMULATED_CUDA_PLUGIN, 1);
  const Ran ran = bench({"--prompt", "8", "--generate", "0", "--stream", "1T", "--device", "cuda:0"});
  ::unsetenv("MOESTRO_CUDA_PLUGIN");
  EXPECT_EQ(ran.exit_code, 1) << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("--stream 1TiB of device memory"));
}

TEST(BenchEngine, TakesTurnsByLines) {
  const Ran ran = run_moestro({"bench", "engine", "--model", small_pack(), "--threads", "1", "--prompt", "8",
                               "--generate", "2", "--no-limits", "--turns", "--json"},
                              "1\n0\n2\n-1\n\n1x\n1\n");
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  std::istringstream lines(ran.out);
  std::string line;
  std::getline(lines, line);
  EXPECT_EQ(line, "ready");
  for (const bool number : {true, true, false, false, false, false, true}) {
    std::getline(lines, line);
    if (number) EXPECT_GT(std::stod(line), 0) << line;
    else EXPECT_EQ(line, "error: not a number from 0 to 1");
  }
  const json report = json::parse(std::string(std::istreambuf_iterator<char>(lines), {}));
  EXPECT_EQ(report.at("results").at(0).at("runs"), 1);  // prefill, asked for once
  EXPECT_EQ(report.at("results").at(1).at("runs"), 2);
}

TEST(BenchEngine, WhatCannotBeMeasuredIsRefusedByOptionAndFigure) {
  const std::tuple<std::vector<std::string>, int, const char*> cases[] = {
      {{"--prompt", "257"}, 1, "--prompt 257 is more than the model's context of 256 tokens"},
      {{"--prompt", "8", "--depth", "200", "--generate", "57"}, 1, "--depth 200 + --generate 57 = 257 is more than"},
      {{"--prompt", "8", "--generate", "16", "--batch", "2,9", "--kv-tokens", "256"},
       1,
       "--batch 9 of --depth 32 + --generate 16 needs a KV cache of 432 tokens; --kv-tokens is 256"},
      {{"--prompt", "80", "--kv-tokens", "64"}, 1, "--prompt 80 needs a KV cache of 80 tokens"},
      {{"--prompt", "0", "--generate", "0"}, 1, "nothing to measure"},
      {{"--prompt", "8", "--experts", "int4"}, 1, "--experts int4: this pack has bf16, int8"},
      {{"--prompt", "8", "--experts", "int3"}, 1, "int3"},
      {{"--prompt", "8", "--isa", "mmx"}, 1, "--isa mmx: here this program runs scalar"},
      {{"--stream", "1M"}, 2, "--stream: 1MiB is not within 64MiB"},
      {{"--stream", "1K"}, 2, "--stream: 1K is not within 256KiB"},
      {{"--stream", "much"}, 2, "--stream"},
      {{"--batch", "0"}, 2, "--batch"},
      {{"--prompt", "8,x"}, 2, "--prompt"},
      {{"--repeats", "0"}, 2, "--repeats"},
      {{"--model", "/nowhere"}, 2, "--model"},
  };
  for (const auto& [arguments, exit_code, words] : cases) {
    const Ran ran = bench(arguments);
    EXPECT_EQ(ran.exit_code, exit_code) << words << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(words));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    EXPECT_EQ(ran.out, "") << words;
  }
  const Ran none = run_moestro({"bench", "engine", "--model", "/nowhere"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("/nowhere"));
}

TEST(StepCost, CountedByHand) {
  model::ModelSpec spec;
  spec.hidden = 4;
  spec.vocab = 10;
  model::LayerSpec sparse;
  sparse.moe_index = MoeLayerId(0);
  sparse.attention.heads = 2;
  sparse.attention.kv_heads = 1;
  sparse.attention.head_dim = 3;
  sparse.moe = {.experts = 5,
                .top_k = 2,
                .router = {},
                .expert = {.hidden = 4, .ffn = 7},
                .shared_ffn = 6,
                .shared_gate = true};
  model::LayerSpec dense;
  dense.attention = sparse.attention;
  dense.attention.sliding_window = 2;
  dense.dense_ffn = 8;
  spec.layers = {sparse, dense};
  const engine::Engine::WeightTraffic traffic{
      .layer_bytes = 1000, .head_bytes = 100, .token_bytes = 10, .expert_bytes = 7};
  const int64_t positions[] = {0, 3};

  const cli::StepCost cost = cli::step_cost(spec, traffic, positions, 1, 3, {});
  EXPECT_EQ(cost.tokens, 2);
  EXPECT_EQ(cost.weight_bytes, 1000 + 100 + 2 * 10 + 3 * 7);
  const double attention = 4 * 6 + 4 * 3 + 4 * 3 + 6 * 4;  // q, k, v, o
  const double moe = 5 * 4 + 2 * 3 * 4 * 7 + 3 * 4 * 6 + 4;
  const double attended =
      (1 + 4) * 6 + (1 + 2) * 6;  // pairs of positions, by heads * head_dim; the window of the second layer is 2
  EXPECT_EQ(cost.operations, 2 * (2 * (attention + moe + attention + 3 * 4 * 8)) + 4 * attended + 2 * 10 * 4);

  EXPECT_EQ(cli::step_cost(spec, traffic, positions, 0, 0, {}).weight_bytes, 1000 + 2 * 10);
  const auto operations = [&](engine::VisiblePositions visible) {
    return cli::step_cost(spec, traffic, positions, 1, 3, visible).operations;
  };
  EXPECT_EQ(cost.operations - operations({.window = 3}), 4 * 6)
      << "position 3 sees 3 of 4 positions in the first layer";
  EXPECT_EQ(operations({.sinks = 1, .window = 2}) - operations({.window = 2}), 4 * (6 + 6))
      << "the sink, in both layers";
  EXPECT_EQ(cli::tokens_per_expert(spec, 512), 205);
  EXPECT_EQ(cli::tokens_per_expert(spec, 1), 1);
}

TEST(StepCost, OfTwoStacks) {
  model::ModelSpec spec;
  spec.hidden = 4, spec.vocab = 10, spec.mlp_gated = false;
  model::LayerSpec encoder;
  encoder.stack = model::LayerSpec::Stack::kEncoder;
  encoder.attention.heads = encoder.attention.kv_heads = 2;
  encoder.attention.head_dim = 3;
  encoder.dense_ffn = 8;
  model::LayerSpec decoder = encoder;
  decoder.stack = model::LayerSpec::Stack::kDecoder;
  decoder.cross = decoder.attention;
  spec.layers = {encoder, decoder};
  const engine::Engine::WeightTraffic traffic{
      .layer_bytes = 1000, .source_bytes = 500, .head_bytes = 100, .token_bytes = 10, .expert_bytes = 0};
  const double projection = 4 * 6, mlp = 2 * 4 * 8, pair = 4 * 6;  // q, k, v or o; q k and weights v
  const int64_t source[] = {2, 2, 2};
  const cli::StepCost encoded = cli::step_cost(spec, traffic, source, 0, 0, {}, {.sources = true, .memory = 3});
  EXPECT_EQ(encoded.weight_bytes, 500 + 3 * 10);
  EXPECT_EQ(encoded.operations, 2 * 3 * (4 * projection + mlp + 2 * projection) + 3 * 3 * pair)
      << "each sees all three; the decoder's keys and values are made of them";
  const int64_t target[] = {1};
  const cli::StepCost decoded = cli::step_cost(spec, traffic, target, 1, 0, {}, {.memory = 3});
  EXPECT_EQ(decoded.weight_bytes, 1000 + 100 + 10);
  EXPECT_EQ(decoded.operations, 2 * (6 * projection + mlp) + (2 + 3) * pair + 2 * 10 * 4);
}

/// A pack of an encoder-decoder model of 2 layers of each stack, context 256.
const std::string& two_stacks() {
  static TempDir dir;
  static const std::string pack = [] {
    const auto source = source_dir() / "tests/fixtures/models/nllb_moe_scaled";
    const auto packed =
        store::pack_checkpoint(source, dir / "pack", {.experts = {DType::kBF16}, .dense = DType::kBF16}, {});
    EXPECT_TRUE(packed.is_ok()) << packed.status().message();
    return (dir / "pack").string();
  }();
  return pack;
}

TEST(BenchEngine, SourcesAndTargetsOfEncoderDecoderModels) {
  const auto bench_stacks = [](std::vector<std::string> more) {
    std::vector<std::string> all = {"bench", "engine", "--model", two_stacks(), "--threads", "1", "--repeats", "1",
                                    "--no-limits", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return run_moestro(all);
  };
  for (const char* device : {"cpu", "emulated:vram=64KiB,link=1GB/s"}) {
    const Ran ran = bench_stacks({"--prompt", "24", "--prompts-at-once", "3", "--generate", "40", "--batch", "1,2",
                                  "--depth", "30", "--step-tokens", "50", "--device", device});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const json report = json::parse(ran.out);
    ASSERT_EQ(report.at("results").size(), 3u);
    for (const json& result : report.at("results")) EXPECT_GT(result.at("tokens_per_s").at("median"), 0);
  }
  const std::pair<std::vector<std::string>, const char*> refused[] = {
      {{"--prompt", "51", "--step-tokens", "50"}, "--prompt 51: the source of an encoder-decoder model is read in one"},
      {{"--prompt", "8", "--generate", "300"}, "--generate 300 is more than the model's context of 256 tokens"},
      {{"--prompt", "8", "--predict", "gate"}, "--predict gate with an encoder-decoder model"},
      {{"--prompt", "8", "--device", "cuda"}, "GPUs do not compute encoder-decoder models yet"},
      {{"--prompt", "8", "--kv-window", "64"}, "--kv-window with an encoder-decoder model"}};
  for (const auto& [arguments, words] : refused) {
    const Ran ran = bench_stacks(arguments);
    EXPECT_NE(ran.exit_code, 0) << words;
    EXPECT_THAT(ran.err, HasSubstr(words));
  }
}

}  // namespace
}  // namespace moestro::test
