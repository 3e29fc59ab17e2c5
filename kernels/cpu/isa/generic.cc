// The kernels for any machine; on x86-64 the compiler makes SSE2 of them.

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/generic_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
#include "kernels/cpu/isa/to_bf16.inc"
#include "kernels/cpu/isa/softmax.inc"
#include "kernels/cpu/isa/elementwise.inc"
#include "kernels/cpu/isa/gemm.inc"
#include "kernels/cpu/isa/blocks.inc"
#include "kernels/cpu/isa/attention.inc"
#include "kernels/cpu/isa/latent.inc"
#include "kernels/cpu/isa/delta.inc"
// clang-format on
}  // namespace

extern const KernelTable kGenericKernels;
const KernelTable kGenericKernels = MOESTRO_KERNEL_TABLE;
}  // namespace moestro::kernels::cpu
