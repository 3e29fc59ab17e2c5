// Rounded products of int8, int4 and blocks with AVX2's products of bytes, which are summed by two in 16 bits; compiled
// with its flags, called only where the machine has it.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx2_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
/// Sums of products of bytes, w unsigned and x signed: of two products in 16 bits, of as many of those as fit there,
/// and then of two of these in 32 bits.
struct ByteDots {
  /// How many vectors of products may be summed before they are widened, at most kMost; with weights up to `largest`.
  static constexpr int kMost = 8;
  static constexpr int most(int largest) {
    int n = kMost;
    while (n > 0 && n * 2 * 127 * largest > 32767) n /= 2;
    return n;
  }
  static MOESTRO_MEMBER __m256i of(__m256i w, __m256i x) { return _mm256_maddubs_epi16(w, x); }
  // No register outlives its sum: left to GCC 12, all products come first, and sums are spilled.
  static MOESTRO_MEMBER void add(__m256i& sums, __m256i w, __m256i x) {
    __m256i products;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(w), "x"(x));
  }
  static MOESTRO_MEMBER void add_widened(__m256i& sum, __m256i w, __m256i x) {
    __m256i products;
    asm("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sum), "=&x"(products)
        : "x"(w), "x"(x), "x"(_mm256_set1_epi16(1)));
  }
  static MOESTRO_MEMBER __m256i widened(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
};
#include "kernels/cpu/isa/avx2_rounded.inc"
#include "kernels/cpu/isa/avx2_spans.inc"
#include "kernels/cpu/isa/avx2_blocks.inc"
#include "kernels/cpu/isa/avx2_checkpoint_blocks.inc"
#include "kernels/cpu/isa/fp8_few.inc"
// clang-format on
}  // namespace

extern const ByteProducts kAvx2ByteProducts;
const ByteProducts kAvx2ByteProducts = {rounded_product<DotInt8>(), rounded_product<DotInt4>(),
                                        MOESTRO_BLOCK_PRODUCTS};
}  // namespace moestro::kernels::cpu
