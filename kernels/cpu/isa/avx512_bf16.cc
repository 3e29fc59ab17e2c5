// Rounded products of bf16, and of bf16 in 12 bits, and latent attention with AVX-512's dot products of bf16; compiled
// with their flags, called only where the machine has them.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx512_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
#include "kernels/cpu/isa/to_bf16.inc"
#include "kernels/cpu/isa/rounded_rows.inc"
#include "kernels/cpu/isa/rounded_few.inc"
#include "kernels/cpu/isa/rounded_one.inc"
#include "kernels/cpu/isa/rounded_panel.inc"
#include "kernels/cpu/isa/rounded_in_12_panel.inc"
#include "kernels/cpu/isa/rounded_in_12_few.inc"
#include "kernels/cpu/isa/no_tiles.inc"
#include "kernels/cpu/isa/softmax.inc"
#include "kernels/cpu/isa/latent_bf16.inc"
// clang-format on
}  // namespace

extern const Bf16Products kAvx512Bf16Products;
const Bf16Products kAvx512Bf16Products = {
    rounded_product<DotBf16>(),
    {kFewTokens<DotBf16>, &few_in_12_bits, &many<DotBf16, In12Bits>},
    &to_bf16,
    &latent_bf16,
};
}  // namespace moestro::kernels::cpu
