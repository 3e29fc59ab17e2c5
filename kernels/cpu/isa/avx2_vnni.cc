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
/// sums of four products of bytes each; w unsigned, x signed.
MOESTRO_FN __m256i dot_bytes(__m256i sum, __m256i w, __m256i x) {
  return _mm256_dpbusd_avx_epi32(sum, w, x);
}
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
