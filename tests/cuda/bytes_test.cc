// How many bytes of weights and KV a launch reads, as the emulator counts them, over those that it must read once.
// Scales are not counted.

#include <array>

#include "kernels/cuda/emulator/emulator.h"
#include "tests/kernels/op_test_data.h"
#include "tests/kernels/paged_cache.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

constexpr int64_t kRows = 96, kHidden = 512, kFfn = 192;
/// A decode may read 5 % more than it must. What is not yet written of a block of the cache need not be read.
constexpr double kLeast = 0.98, kMost = 1.05;

class Bytes : public CudaTest {
 protected:
  template <typename Work>
  static int64_t streamed(const Work& work) {
    const uint64_t before = cuda::emulated::counters().bytes_streamed;
    work();
    return static_cast<int64_t>(cuda::emulated::counters().bytes_streamed - before);
  }
  static void expect_once(int64_t bytes, int64_t must, const std::string& of) {
    const double share = static_cast<double>(bytes) / static_cast<double>(must);
    EXPECT_GE(share, kLeast) << of;
    EXPECT_LE(share, kMost) << of;
  }
  int64_t bytes_of_matmul(Ops& ops, DType dtype, int64_t n, Activations activations) {
    const auto w = store_weight(random_.normal(kRows * kHidden), dtype, kRows, kHidden);
    const auto x = random_.normal(n * kHidden);
    std::vector<float> y(static_cast<size_t>(n * kRows));
    return streamed([&] { ops.matmul(x.data(), n, w.weight, nullptr, y.data(), activations); });
  }
  int64_t bytes_of_expert(Ops& ops, DType dtype, int64_t n) {
    const ExpertLayout layout(kHidden, kFfn, dtype);
    const auto blob = write_expert_blob(
        layout, ExpertMatrices{kHidden, kFfn, random_.normal(kFfn * kHidden), random_.normal(kFfn * kHidden),
                               random_.normal(kHidden * kFfn)});
    const auto x = random_.normal(n * kHidden);
    std::vector<float> y(x.size());
    std::vector<RoutedRow> rows;
    for (int32_t t = 0; t < n; ++t) rows.push_back({t, 0});
    return streamed([&] { ops.expert_ffn(layout, blob.data(), x.data(), rows, 1, y.data(), {}); });
  }

  Random random_;
  std::unique_ptr<Ops> exact_ = cuda_ops(true), fast_ = cuda_ops(false);
};

std::string tokens_of(int64_t n, DType dtype) {
  return std::to_string(n) + " tokens, " + std::string(dtype_name(dtype));
}

TEST_F(Bytes, AFewTokensReadEachWeightOnce) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4}) {
    const int64_t matrix = kRows * row_bytes(dtype, kHidden),
                  expert = 2 * kFfn * row_bytes(dtype, kHidden) + kHidden * row_bytes(dtype, kFfn);
    for (const int64_t n : {1, 4}) {
      expect_once(bytes_of_matmul(*exact_, dtype, n, Activations::kExact), matrix, tokens_of(n, dtype));
      expect_once(bytes_of_expert(*exact_, dtype, n), expert, tokens_of(n, dtype));
    }
    // Beyond the tokens of one pass, f32 reads them once more a pass; rounded activations fit 16 at once.
    EXPECT_GT(bytes_of_expert(*exact_, dtype, 9), expert * 3 / 2);
    if (dtype == DType::kF32) continue;
    for (const int64_t n : {1, 9, 16}) {
      expect_once(bytes_of_matmul(*fast_, dtype, n, Activations::kRounded), matrix, tokens_of(n, dtype));
      expect_once(bytes_of_expert(*fast_, dtype, n), expert, tokens_of(n, dtype));
    }
  }
}

/// Here activations are streamed too, and alike in all formats: what int8 reads more than int4 is weights alone.
TEST_F(Bytes, ManyTokensReadAnExpertOncePer128) {
  const int64_t apart = 3 * kFfn * (row_bytes(DType::kInt8, kHidden) - row_bytes(DType::kInt4, kHidden));
  for (const int64_t n : {64, 128, 256}) {
    const int64_t more = bytes_of_expert(*fast_, DType::kInt8, n) - bytes_of_expert(*fast_, DType::kInt4, n);
    EXPECT_EQ(more, apart * ceil_div(n, 128)) << n << " tokens";
  }
}

TEST_F(Bytes, ADecodeReadsTheCacheOnce) {
  const std::vector<int64_t> lengths{800, 33, 336};  // in one part, and in several
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    for (const auto& [heads, kv_heads, head_dim] :
         {std::array<int64_t, 3>{32, 8, 128}, {4, 4, 64}, {16, 2, 256}, {6, 3, 80}}) {
      const AttentionShape shape{heads, kv_heads, head_dim, 0, 0.1f, 0};
      PagedCache cache(kv_block_bytes(shape, dtype), dtype, lengths, random_);
      int64_t tokens = 0, bytes = 0;
      std::vector<AttentionSequence> all, last;
      for (size_t i = 0; i < lengths.size(); ++i) {
        all.push_back(cache.sequence(i, tokens, lengths[i], 0));
        last.push_back(cache.sequence(i, static_cast<int64_t>(i), 1, lengths[i] - 1));
        tokens += lengths[i];
        bytes += ceil_div(lengths[i], kKvBlockTokens) * kv_block_bytes(shape, dtype);
      }
      const auto kv = random_.normal(tokens * kv_heads * head_dim);
      exact_->kv_write(shape, all, kv.data(), kv.data(), cache.view());
      const auto q = random_.normal(static_cast<int64_t>(last.size()) * heads * head_dim);
      std::vector<float> out(q.size());
      const int64_t read = streamed([&] {
        exact_->attention(shape, last, q.data(), q.data(), cache.view(), out.data());
      });
      expect_once(read, bytes, "head_dim " + std::to_string(head_dim) + ", " + std::string(dtype_name(dtype)));
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test
