// The GPU benchmark on the emulated kernels: every row is there, so that it works where there is a GPU. Its figures
// mean nothing here.

#include "tests/bench/gpu/gpu_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/cuda/emulated/functions.h"
#include "tests/bench/gpu/cublas.h"
#include "tests/bench/gpu/report.h"

namespace moestro::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
const MoestroCudaFunctions& emulated() { return kernels::cuda::emulated::functions(); }

TEST(GpuBench, MeasuresEveryRowBesideItsCeiling) {
  const GpuBench bench{emulated(), GpuSizes::tiny(), nullptr, ""};
  size_t seen = 0;
  const auto rows = run_gpu_bench(bench, [&](const GpuRow&) { ++seen; });
  std::vector<std::string> what;
  for (const GpuRow& row : rows) {
    what.push_back(row.what);
    EXPECT_EQ(row.failed, "") << row.what;
    EXPECT_GT(row.value, 0) << row.what;
    EXPECT_GT(row.ratio(), 0) << row.what;
    EXPECT_NE(row.ceiling_is, "") << row.what;
  }
  EXPECT_EQ(seen, rows.size());
  EXPECT_THAT(what,
              ::testing::ElementsAre(
                  StartsWith("device memory"), StartsWith("copy of 64 KiB from shared memory, chunks of 12 KiB"),
                  HasSubstr("an expert of bf16"), StartsWith("4 experts of bf16 on 40 tokens"),
                  StartsWith("4 experts of mxfp4 on 40 tokens"), "2 experts of bf16 on 1 token",
                  StartsWith("4 experts of bf16 on 20"), "2 experts of int8 on 1 token",
                  StartsWith("4 experts of int8"),
                  "2 experts of int4 on 1 token", StartsWith("4 experts of int4"), "2 experts of mxfp4 on 1 token",
                  StartsWith("4 experts of mxfp4 on 20"),
                  "a matrix of 64 x 64 of bf16 on 1 token", "a matrix of 64 x 64 of bf16 on 40 tokens",
                  "attention, 3 sequences of 160 tokens decode, cache of bf16", HasSubstr("cache of int8"),
                  "attention, a prompt of 48 tokens, cache of bf16",
                  "latent attention, 16 heads, 3 sequences of 100 tokens decode, cache of bf16",
                  "latent attention, 16 heads, 1 sequence of 100 tokens decodes, cache of bf16, in f32",
                  "drawing greedy from 2 rows of 500 logits",
                  HasSubstr("at a temperature"), HasSubstr("top_k 50"), HasSubstr("top_p 0.95"),
                  "gated delta rule, 3 sequences decode", StartsWith("gated delta rule, a prompt of 130 tokens, as"),
                  StartsWith("gated delta rule, a prompt of 130 tokens by the recurrence")));
  const auto json = nlohmann::json::parse(rows_json("a device", rows));
  EXPECT_EQ(json.at("rows").size(), rows.size());
  EXPECT_EQ(json.at("rows")[1].at("aim"), 0.97);
  EXPECT_EQ(json.at("rows")[7].at("aim"), nullptr);
}

TEST(GpuBench, TheDenseProductOfTheYardstickHasAsManyOperations) {
  GpuBench bench{emulated(), GpuSizes::tiny(), nullptr, "a yardstick"};
  int64_t products = 0;
  bench.dense = [&](const void*, const void*, void*, int64_t n, int64_t rows, int64_t cols, MoestroCudaStream) {
    products = n * rows * cols;
    return Status::ok();
  };
  const auto rows = expert_rows(bench, 1e9);
  EXPECT_EQ(products, 40 * 2 * 3 * 96 * 64) << "tokens, experts of each, matrices, ffn, hidden";
  EXPECT_THAT(rows.front().ceiling_is, HasSubstr("a yardstick"));
}

TEST(GpuBench, WhatFailsIsARowThatSaysWhyAndTheOthersAreThere) {
  MoestroCudaFunctions broken = emulated();
  broken.register_host = [](void*, uint64_t, int32_t) -> MoestroCudaResult { return 2; };
  broken.ops.attention = [](const MoestroCudaAttention*, MoestroCudaStream) -> MoestroCudaResult {
    return MOESTRO_CUDA_REFUSED;
  };
  const auto rows = run_gpu_bench({broken, GpuSizes::tiny(), nullptr, ""}, {});
  for (const GpuRow& row : rows) {
    if (row.what.starts_with("copy of")) {
      EXPECT_EQ(row.failed, "register_host: out of memory") << row.what;
    } else if (row.what.starts_with("attention")) {
      EXPECT_THAT(row.failed, HasSubstr("no kernel for this")) << row.what;
    } else {
      EXPECT_EQ(row.failed, "") << row.what;
    }
  }
  EXPECT_THAT(row_text(rows[1]), HasSubstr("not measured: register_host"));
  EXPECT_EQ(nlohmann::json::parse(rows_json("", rows)).at("rows")[1].at("value"), nullptr);
}

TEST(GpuBench, AYardstickThatIsNotThereIsNamed) {
  const auto missing = load_cublas("/nowhere/libcublas.so.13");
  ASSERT_FALSE(missing.is_ok());
  EXPECT_THAT(missing.status().message(), HasSubstr("/nowhere/libcublas.so.13"));
  const auto other = load_cublas("libm.so.6");
  ASSERT_FALSE(other.is_ok());
  EXPECT_EQ(other.status().message(), "libm.so.6 is not cuBLAS");
}

}  // namespace
}  // namespace moestro::bench
