#pragma once
// The attributes that the sources of this folder put before their functions, and how they fill the table.

#define MOESTRO_FN [[maybe_unused]] static inline __attribute__((always_inline))
#define MOESTRO_MEMBER inline __attribute__((always_inline))
/// A function or static member that is too long to be repeated in every kernel.
#define MOESTRO_PLAIN [[maybe_unused]] __attribute__((noinline)) static

/// Unrolls the loop that follows fully: register blocks are arrays with constant indices only then.
#define MOESTRO_UNROLL _Pragma("GCC unroll 16")

#define MOESTRO_KERNEL_TABLE                                                                                       \
  {                                                                                                                \
    {&exact_product<WeightF32>, &exact_product<WeightBf16>, &exact_product<WeightF16>, &exact_product<WeightInt8>, \
     &exact_product<WeightInt4>},                                                                                  \
        &to_bf16, {&attention<WeightF32>, &attention<WeightBf16>, &attention<WeightF16>, &attention<KvInt8>},      \
        {&to_f32<WeightF32>, &to_f32<WeightBf16>, &to_f32<WeightF16>}, &widen_bf16,                                 \
        {&widen_blocks<Q4_0>, &widen_blocks<Q5_0>, &widen_blocks<Q8_0>, &widen_blocks<Q2K>, &widen_blocks<Q3K>,    \
         &widen_blocks<Q4K>, &widen_blocks<Q5K>, &widen_blocks<Q6K>, &widen_blocks<IQ4NL>, &widen_blocks<MXFP4>,   \
         &widen_blocks<Q4_1>, &widen_blocks<Q5_1>, &widen_blocks<IQ4XS>, &widen_blocks<FP8Blocks<128>>,            \
         &widen_blocks<FP8Blocks<32>>, &widen_blocks<Int4Blocks<128>>, &widen_blocks<Int4Blocks<64>>,              \
         &widen_blocks<Int4Blocks<32>>, &widen_blocks<NVFP4>, &widen_blocks<Int2>},                                \
        &to_f16, &to_int8, &rms_norm, &layer_norm, &sum_squares, &rope, &softmax, &sigmoid, &silu_mul,             \
        &clamped_swiglu, &relu, &exponentials, &add_scaled, &combine, &clamp,                                      \
        {&latent<WeightF32>, &latent<WeightBf16>, &latent<WeightF16>, &latent<KvInt8>},                            \
        {&row_sums<WeightF32>, &row_sums<WeightBf16>, &row_sums<WeightF16>}, &add_part, &scale_by,                 \
        &delta_conv, &delta_scan, &sigmoid_mul                                                                     \
  }

/// ByteProducts::blocks, of an instruction set's DotQ4_0 and so on.
#define MOESTRO_BLOCK_PRODUCTS                                                                                      \
  {                                                                                                                \
    block_product<DotQ4_0>(), block_product<DotQ5_0>(), block_product<DotQ8_0>(), block_product<DotQ2K>(),         \
        block_product<DotQ3K>(), block_product<DotQ4K>(), block_product<DotQ5K>(), block_product<DotQ6K>(),        \
        block_product<DotIQ4NL>(), block_product<DotMXFP4>(), block_product<DotQ4_1>(), block_product<DotQ5_1>(),  \
        block_product<DotIQ4XS>(), fp8_product<128>(), fp8_product<32>(), block_product<DotInt4Blocks<128>>(),      \
        block_product<DotInt4Blocks<64>>(), block_product<DotInt4Blocks<32>>(), block_product<DotNVFP4>(),          \
        block_product<DotInt2>()                                                                                   \
  }
