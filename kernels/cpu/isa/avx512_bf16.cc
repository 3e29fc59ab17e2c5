// The kernels with AVX-512, and products with its dot products of bf16 and of bytes (VNNI); compiled with their flags, called only where the machine
// has them.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx512_vec.inc"
#include "kernels/cpu/isa/elementwise.inc"
#include "kernels/cpu/isa/gemm.inc"
#include "kernels/cpu/isa/attention.inc"
#include "kernels/cpu/isa/rounded_rows.inc"
#include "kernels/cpu/isa/rounded_few.inc"
#include "kernels/cpu/isa/rounded_one.inc"
#include "kernels/cpu/isa/rounded_panel.inc"
#include "kernels/cpu/isa/rounded_in_12.inc"
#include "kernels/cpu/isa/no_tiles.inc"
// clang-format on
}  // namespace

extern const KernelTable kAvx512Bf16Kernels;
const KernelTable kAvx512Bf16Kernels = MOESTRO_KERNEL_TABLE(&product_in_12_bits, kRoundedProducts);
}  // namespace moestro::kernels::cpu
