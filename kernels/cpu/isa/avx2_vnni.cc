// Rounded products of int8 and int4 with the dot products of bytes that AVX-VNNI has for 256 bits; compiled with their
// flags, called only where the machine has them.

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx2_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
#include "kernels/cpu/isa/avx2_rounded.inc"
// clang-format on
}  // namespace

extern const ByteProducts kAvx2VnniProducts;
const ByteProducts kAvx2VnniProducts = {rounded_product<DotInt8>(), rounded_product<DotInt4>()};
}  // namespace moestro::kernels::cpu
