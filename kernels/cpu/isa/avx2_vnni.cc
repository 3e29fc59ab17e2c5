// Rounded products of int8, int4 and blocks with the dot products of bytes that AVX-VNNI has for 256 bits; compiled
// with their flags, called only where the machine has them.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx2_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
/// Sums of four products of bytes each in 32 bits, w unsigned and x signed.
struct ByteDots {
  static constexpr int kMost = 8;
  static constexpr int most(int) { return kMost; }
  static MOESTRO_MEMBER __m256i of(__m256i w, __m256i x) {
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), w, x);
  }
  static MOESTRO_MEMBER void add(__m256i& sums, __m256i w, __m256i x) { sums = _mm256_dpbusd_avx_epi32(sums, w, x); }
  static MOESTRO_MEMBER void add_widened(__m256i& sum, __m256i w, __m256i x) { add(sum, w, x); }
  static MOESTRO_MEMBER __m256i widened(__m256i sums) { return sums; }
};
#include "kernels/cpu/isa/avx2_rounded.inc"
#include "kernels/cpu/isa/avx2_spans.inc"
#include "kernels/cpu/isa/avx2_blocks.inc"
#include "kernels/cpu/isa/avx2_checkpoint_blocks.inc"
#include "kernels/cpu/isa/fp8_few.inc"
// clang-format on
}  // namespace

extern const ByteProducts kAvx2VnniProducts;
const ByteProducts kAvx2VnniProducts = {rounded_product<DotInt8>(), rounded_product<DotInt4>(), MOESTRO_BLOCK_PRODUCTS};
}  // namespace moestro::kernels::cpu
