// Rounded products of int8, int4 and blocks with AVX-512's dot products of bytes (VNNI); compiled with their flags,
// called only where the machine has them.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx512_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
#include "kernels/cpu/isa/rounded_rows.inc"
#include "kernels/cpu/isa/rounded_few.inc"
#include "kernels/cpu/isa/rounded_one.inc"
#include "kernels/cpu/isa/rounded_panel.inc"
#include "kernels/cpu/isa/no_tiles.inc"
#include "kernels/cpu/isa/ahead_of_rows.inc"
#include "kernels/cpu/isa/rounded_spans.inc"
#include "kernels/cpu/isa/rounded_blocks.inc"
#include "kernels/cpu/isa/rounded_k_blocks.inc"
#include "kernels/cpu/isa/rounded_checkpoint_blocks.inc"
MOESTRO_FN void eight_bits(const std::byte* w, vf (&numbers)[2]) {
  // The sign is one bit too low: added to itself, it goes up.
  const __m512i low = _mm512_slli_epi16(_mm512_cvtepu8_epi16(load_32(w)), 7);
  const __m512i finite = _mm512_add_epi16(low, _mm512_and_si512(low, _mm512_set1_epi16(0x4000)));
  const __m512i magnitude = _mm512_set1_epi16(0x3f80);  // with all bits set: NaN
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(low, magnitude), magnitude);
  const __m512i halves = _mm512_mask_mov_epi16(finite, is_nan, _mm512_set1_epi16(0x7fff));
  numbers[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
  numbers[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}
#include "kernels/cpu/isa/fp8_few.inc"
// clang-format on
}  // namespace

extern const ByteProducts kAvx512VnniProducts;
const ByteProducts kAvx512VnniProducts = {rounded_product<DotInt8>(), rounded_product<DotInt4>(),
                                          MOESTRO_BLOCK_PRODUCTS};
}  // namespace moestro::kernels::cpu
