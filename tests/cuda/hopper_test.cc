// The kernels for Hopper, emulated, against sums of the same bf16 numbers.

#include "kernels/cuda/hopper_map.h"
#include "kernels/cuda/hopper_tasks.h"
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

std::vector<uint16_t> to_bits(const std::vector<float>& v) {
  std::vector<uint16_t> bits;
  for (const float f : v) bits.push_back(f32_to_bf16(f));
  return bits;
}
std::vector<float> of_bits(const std::vector<uint16_t>& v) {
  std::vector<float> numbers;
  for (const uint16_t bits : v) numbers.push_back(bf16_to_f32(bits));
  return numbers;
}
std::vector<float> to_bf16(const std::vector<float>& v) {
  return of_bits(to_bits(v));
}

/// x w^T of n rows of x.
std::vector<float> product(const float* x, int64_t n, const std::vector<float>& w, int64_t cols) {
  const int64_t rows = static_cast<int64_t>(w.size()) / cols;
  std::vector<float> y(static_cast<size_t>(n * rows));
  for (int64_t t = 0; t < n; ++t)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        y[static_cast<size_t>(t * rows + r)] += x[t * cols + c] * w[static_cast<size_t>(r * cols + c)];
  return y;
}

MoestroCudaTile tile_of(const ExpertTile& t) {
  return {t.ffn, t.gate, t.up, t.down, t.gate_scales, t.up_scales, t.down_scales};
}

/// A layer of three experts of which the second has no rows, on bf16 numbers.
struct Layer {
  int64_t hidden, ffn, top_k = 2;
  ExpertLayout layout;
  std::vector<std::vector<std::byte>> blobs;
  std::vector<ExpertMatrices> read;
  std::vector<int32_t> offsets;
  std::vector<MoestroCudaRoutedRow> sorted;
  std::vector<MoestroCudaTokenTile> tiles;
  std::vector<uint16_t> x, gathered, activated;
  std::vector<float> out;

  Layer(Random& random, int64_t hidden_, int64_t ffn_, const std::vector<int32_t>& rows)
      : hidden(hidden_), ffn(ffn_), layout(hidden_, ffn_, DType::kBF16), offsets{0} {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(hidden));
    int32_t tokens = 1;
    for (const int32_t count : rows) tokens = std::max(tokens, count);
    for (size_t e = 0; e < rows.size(); ++e) {
      read.emplace_back();
      blobs.push_back(write_expert_blob(
          layout,
          {hidden, ffn, random.normal(ffn * hidden, deviation), random.normal(ffn * hidden, deviation),
           random.normal(hidden * ffn, 1.0f / std::sqrt(static_cast<float>(ffn)))},
          &read.back()));
      // Rows of an expert are of any tokens, each rank once.
      for (int32_t i = 0; i < rows[e]; ++i) sorted.push_back({(i * 7 + 3) % tokens, static_cast<int32_t>(e)});
      offsets.push_back(offsets.back() + rows[e]);
      list_tiles(reinterpret_cast<uint64_t>(blobs.back().data()), offsets[e], offsets[e + 1]);
    }
    top_k = static_cast<int64_t>(rows.size());
    tiles.emplace_back();
    x = to_bits(random.normal(tokens * hidden));
    activated.assign(sorted.size() * static_cast<size_t>(ffn), 0xffff);
    for (const auto& row : sorted)
      gathered.insert(gathered.end(), x.begin() + row.token * hidden, x.begin() + (row.token + 1) * hidden);
    out.assign(static_cast<size_t>(tokens * top_k * hidden), 7.0f);
  }

  /// Runs of at most MOESTRO_CUDA_RUN_TILES.
  void list_tiles(uint64_t blob, int32_t begin, int32_t end) {
    while (begin < end) {
      const int32_t stop = std::min(end, begin + MOESTRO_CUDA_RUN_TILES * cuda::kHopperTokens);
      const auto first = static_cast<int32_t>(tiles.size());
      const auto count = static_cast<int32_t>(ceil_div(stop - begin, cuda::kHopperTokens));
      for (int32_t i = 0; i < count; ++i) tiles.push_back({blob, begin, stop, first, count});
      begin = stop;
    }
  }

  cuda::HopperExperts arguments() {
    cuda::HopperExperts h{};
    h.a.layout = {hidden,
                  ffn,
                  layout.tile_ffn(),
                  layout.tiles(),
                  layout.tile(0).bytes,
                  MOESTRO_CUDA_BF16,
                  tile_of(layout.tile(0)),
                  tile_of(layout.tile(layout.tiles() - 1)),
                  MOESTRO_CUDA_BF16,
                  MOESTRO_CUDA_BF16,
                  MOESTRO_CUDA_BF16};
    h.a.offsets = offsets.data();
    h.a.sorted = sorted.data();
    h.a.top_k = top_k;
    h.a.out = out.data();
    h.a.token_tiles = tiles.data();
    h.tiles_max = static_cast<int32_t>(tiles.size());
    h.a.rows = static_cast<int64_t>(sorted.size());
    h.a.rounded_x = gathered.data();
    h.a.rounded_activated = activated.data();
    return h;
  }

  void expect_right(const std::string& what) const {
    const auto in = of_bits(x);
    std::vector<float> want_activated, want(out.size(), 7.0f);
    const auto rounded = of_bits(activated);
    for (size_t e = 0; e + 1 < offsets.size(); ++e)
      for (int32_t r = offsets[e]; r < offsets[e + 1]; ++r) {
        const auto [token, rank] = sorted[static_cast<size_t>(r)];
        const auto gate = product(in.data() + token * hidden, 1, to_bf16(read[e].gate), hidden);
        const auto up = product(in.data() + token * hidden, 1, to_bf16(read[e].up), hidden);
        for (size_t f = 0; f < gate.size(); ++f)
          want_activated.push_back(gate[f] / (1.0f + std::exp(-gate[f])) * up[f]);
        const auto row = product(rounded.data() + r * ffn, 1, to_bf16(read[e].down), ffn);
        std::copy(row.begin(), row.end(), want.begin() + (token * top_k + rank) * hidden);
      }
    expect_close(rounded, want_activated, 4e-3, what + ", activated");
    expect_close(out, want, 1e-5, what);
  }
};

template <typename Form>
void run_layer(Layer& layer, int blocks, const std::string& what) {
  cuda::HopperExperts h = layer.arguments();
  ASSERT_EQ(cuda::make_row_map(h.a.rounded_x, h.a.rows, layer.hidden, h.tokens), 0);
  ASSERT_EQ(cuda::make_address_map(layer.hidden * 2, h.weights), 0);
  ASSERT_EQ((cuda::launch_hopper<Form, cuda::GateUpTask<Form::kRows>>(h, blocks, nullptr)), 0);
  ASSERT_EQ(cuda::make_row_map(h.a.rounded_activated, h.a.rows, layer.ffn, h.tokens), 0);
  ASSERT_EQ(cuda::make_address_map(layer.layout.tile_ffn() * 2, h.weights), 0);
  ASSERT_EQ((cuda::launch_hopper<Form, cuda::DownTask<Form::kRows>>(h, blocks, nullptr)), 0);
  layer.expect_right(what);
}

template <typename Form>
void check_layers(const std::string& form) {
  Random random;
  for (const auto& [hidden, ffn] : {std::pair<int64_t, int64_t>{64, 64}, {320, 192}, {192, 448}}) {
    for (const int blocks : {1, 3}) {
      Layer layer(random, hidden, ffn, {130, 0, 61, 1});
      run_layer<Form>(layer, blocks, form + " hidden " + std::to_string(hidden) + " ffn " + std::to_string(ffn));
    }
  }
}

using cuda::HopperForm;

TEST(Hopper, LargeTiles) {
  check_layers<HopperForm<256, 4>>("large");
}
TEST(Hopper, SmallTiles) {
  check_layers<HopperForm<128, 6>>("small");
}
TEST(Hopper, ShortRing) {
  check_layers<HopperForm<128, 2>>("two stages");
}

TEST(Hopper, InAnyOrder) {
  using Form = HopperForm<256, 4>;
  Random random;
  for (const uint64_t seed : {1, 2, 3}) {
    cuda::emulated::set_order(seed);
    Layer layer(random, 192, 192, {130, 0, 61, 1});
    run_layer<Form>(layer, 2, "order " + std::to_string(seed));
    cuda::emulated::set_order(0);
  }
}

TEST(Hopper, ManyTilesAreVisitedOnceEach) {
  using Form = HopperForm<128, 4>;
  Random random;
  Layer layer(random, 128, 128, {18 * 128 + 5, 300});
  run_layer<Form>(layer, 3, "two runs of tiles");
}

TEST(Hopper, Matmul) {
  using Form = HopperForm<256, 4>;
  Random random;
  for (const bool biased : {false, true})
    for (const auto& [n, rows, cols] : {std::array<int64_t, 3>{1, 64, 64}, {200, 320, 192}}) {
      auto x = to_bits(random.normal(n * cols)), w = to_bits(random.normal(rows * cols));
      const auto bias = random.normal(rows);
      std::vector<float> y(static_cast<size_t>(n * rows), NAN), want = product(of_bits(x).data(), n, of_bits(w), cols);
      if (biased)
        for (size_t i = 0; i < want.size(); ++i) want[i] += bias[i % bias.size()];
      cuda::HopperMatmul h{};
      h.a.n = n, h.a.rows = rows, h.a.cols = cols;
      h.a.weight = w.data();
      h.a.bias = biased ? bias.data() : nullptr;
      h.a.y = y.data();
      h.a.rounded_x = x.data();
      ASSERT_EQ(cuda::make_row_map(x.data(), n, cols, h.tokens), 0);
      ASSERT_EQ(cuda::make_address_map(cols * 2, h.weights), 0);
      ASSERT_EQ((cuda::launch_hopper<Form, cuda::DenseTask<256>>(h, 2, nullptr)), 0);
      expect_close(y, want, 1e-5, "n " + std::to_string(n));
    }
}

}  // namespace
}  // namespace moestro::kernels::test
