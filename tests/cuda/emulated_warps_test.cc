// What is one exchange of a warp's lanes in the emulation, and several or an instruction of its own on a device.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/mma.h"
#include "kernels/cuda/numbers.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {
namespace {

/// What is one exchange here, and one for each step or value on a device: `plainly` as on a device.
template <int kWidth>
__device__ float folded(float value, bool plainly) {
  if (!plainly) return warp_sum<kWidth>(value);
  for (int step = kWidth / 2; step > 0; step /= 2) value += __shfl_xor_sync(kWholeWarp, value, step);
  return value;
}
/// Three of four values, which is as many as are asked for; the last is not touched.
template <int kWidth>
__device__ float folded_each(float value, bool plainly) {
  float values[] = {value, value * 3.0f, -value, value};
  if (!plainly) warp_sum_each<kWidth>(values, 3);
  for (int i = 0; plainly && i < 3; ++i) values[i] = folded<kWidth>(values[i], true);
  return values[0] * 5.0f + values[1] * 7.0f + values[2] * 11.0f + values[3];
}
/// Two of the three values of each row, in their order.
template <int kWidth>
__device__ float folded_rows(float value, bool plainly) {
  const float values[2][3] = {{value, value * 3.0f, value}, {-value, value * 0.7f, value}};
  float all = 0.0f;
  const auto take = [&all](int row, int i, float sum) { all = all * 1.5f + sum * static_cast<float>(row * 2 + i + 1); };
  if (!plainly) warp_sum_rows<kWidth>(values, 2, take);
  for (int i = 0; plainly && i < 4; ++i) take(i / 2, i % 2, folded<kWidth>(values[i / 2][i % 2], true));
  return all;
}
template <int kCount, int kKept, int kStep>
__device__ float reduced(float value, bool plainly) {
  float values[kCount], all = 0.0f;
  for (int i = 0; i < kCount; ++i) values[i] = value * static_cast<float>(i + 1) + static_cast<float>(i);
  if (!plainly) reduce_scatter<kCount, kKept, kStep>(values);
  for (int half = kCount / 2, step = kStep; plainly && half >= kKept; half /= 2, step /= 2) {
    const bool upper = (lane_id() & step) != 0;
    for (int i = 0; i < half; ++i) {
      const float got = __shfl_xor_sync(kWholeWarp, upper ? values[i] : values[i + half], step);
      values[i] = (upper ? values[i + half] : values[i]) + got;
    }
  }
  for (int i = 0; i < kKept; ++i) all = all * 1.5f + values[i];
  return all;
}
__global__ void exchanges_kernel(const float* from, bool plainly, std::vector<float>* out) {
  const float mine = from[threadIdx.x];
  float* to = out->data() + threadIdx.x * 16;
  const float all[] = {folded<1>(mine, plainly),           folded<2>(mine, plainly),
                       folded<8>(mine, plainly),           folded<32>(mine, plainly),
                       folded_each<4>(mine, plainly),      folded_each<32>(mine, plainly),
                       folded_rows<8>(mine, plainly),      folded_rows<32>(mine, plainly),
                       reduced<2, 1, 16>(mine, plainly),   reduced<16, 1, 16>(mine, plainly),
                       reduced<32, 1, 16>(mine, plainly),  reduced<32, 8, 16>(mine, plainly),
                       reduced<8, 2, 4>(mine, plainly)};
  std::copy(std::begin(all), std::end(all), to);
}

TEST(Emulator, ExchangesOfSeveralStepsGiveTheBitsOfEachByItself) {
  std::vector<float> from(64);
  for (size_t i = 0; i < from.size(); ++i) from[i] = std::sin(static_cast<float>(i) * 3.7f) * 1e3f;
  std::vector<float> plain(64 * 16), got(plain);
  launch(exchanges_kernel, dim3(1), dim3(64), 0, nullptr, from.data(), true, &plain);
  launch(exchanges_kernel, dim3(1), dim3(64), 0, nullptr, from.data(), false, &got);
  EXPECT_EQ(got, plain);
}

/// Numbers of a and b are unlike everywhere, so that any other place of one gives another product.
__global__ void tiles_kernel(float* out) {
  const int group = lane_id() / 4, pair = lane_id() % 4 * 2;
  const auto two = [](float low, float high) {
    return static_cast<uint32_t>(BF16::stored(low)) | static_cast<uint32_t>(BF16::stored(high)) << 16;
  };
  const auto of_a = [](int row, int column) { return static_cast<float>(row * 16 + column); };
  const auto of_b = [](int row, int column) { return static_cast<float>(column * 16 - row); };
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    const int row = group + i % 2 * 8, column = pair + i / 2 * 8;
    a[i] = two(of_a(row, column), of_a(row, column + 1));
  }
  for (int i = 0; i < 2; ++i) b[i] = two(of_b(pair + 8 * i, group), of_b(pair + 8 * i + 1, group));
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(lane_id() * 4 + i);
  multiply_tiles(d, a, b);
  for (int i = 0; i < 4; ++i) out[(group + i / 2 * 8) * 8 + pair + i % 2] = d[i];
}

TEST(Emulator, TilesAreMultipliedAsTheManualLaysThemOut) {
  std::vector<float> out(16 * 8);
  launch(tiles_kernel, dim3(1), dim3(32), 0, nullptr, out.data());
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      const int lane = row % 8 * 4 + column / 2;
      int want = lane * 4 + row / 8 * 2 + column % 2;
      for (int k = 0; k < 16; ++k) want += (row * 16 + k) * (column * 16 - k);
      EXPECT_EQ(out[static_cast<size_t>(row * 8 + column)], static_cast<float>(want)) << row << ", " << column;
    }
}

}  // namespace
}  // namespace moestro::kernels::cuda
