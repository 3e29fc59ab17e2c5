// Rounded products of blocks with AVX2's products of bytes, which are summed by two in 16 bits; compiled with its
// flags, called only where the machine has it.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx2_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
/// sums of four products of bytes each; x signed, w unsigned and 128 at most: two products fit in 16 bits.
MOESTRO_FN __m256i dot_bytes(__m256i sum, __m256i w, __m256i x) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
#include "kernels/cpu/isa/avx2_rounded.inc"
#include "kernels/cpu/isa/avx2_spans.inc"
#include "kernels/cpu/isa/avx2_blocks.inc"
#include "kernels/cpu/isa/avx2_checkpoint_blocks.inc"
#include "kernels/cpu/isa/fp8_few.inc"
// clang-format on
}  // namespace

extern const ByteProducts kAvx2BlockProducts;
const ByteProducts kAvx2BlockProducts = {{}, {}, MOESTRO_BLOCK_PRODUCTS};
}  // namespace moestro::kernels::cpu
