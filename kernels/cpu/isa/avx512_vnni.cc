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
#include "kernels/cpu/isa/rounded_spans.inc"
#include "kernels/cpu/isa/rounded_blocks.inc"
#include "kernels/cpu/isa/rounded_k_blocks.inc"
#include "kernels/cpu/isa/rounded_checkpoint_blocks.inc"
// clang-format on
}  // namespace

extern const ByteProducts kAvx512VnniProducts;
const ByteProducts kAvx512VnniProducts = {rounded_product<DotInt8>(), rounded_product<DotInt4>(),
                                          MOESTRO_BLOCK_PRODUCTS};
}  // namespace moestro::kernels::cpu
