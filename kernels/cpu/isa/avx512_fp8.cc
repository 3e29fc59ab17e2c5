// Products of FP8 with AVX-512's dot products of bf16 and its lookups in 128 bytes (VBMI); compiled with their flags,
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
#include "kernels/cpu/isa/fp8_bf16.inc"
// clang-format on
}  // namespace

extern const Fp8Products kAvx512Fp8Products;
const Fp8Products kAvx512Fp8Products = {fp8_product<Fp8<128>>(), fp8_product<Fp8<32>>()};
}  // namespace moestro::kernels::cpu
