#pragma once
// Products with weights of blocks (block_formats.h), for `experts`, `matmul_group`, `matmul` and `gather`.

#include "kernels/cuda/block_formats.h"

namespace moestro::kernels::cuda {

/// Whether rows this long are whole blocks.
inline bool is_whole_blocks(const BlockFormat& format, int64_t columns) {
  return format.bytes > 0 && columns > 0 && columns % format.columns() == 0;
}
/// Whether an expert has a matrix of blocks, and so is computed by these kernels.
inline bool has_block_experts(const MoestroCudaExpertLayout& l) {
  return is_block_format(l.gate_dtype) || is_block_format(l.up_dtype) || is_block_format(l.down_dtype);
}
/// Whether all rows of such an expert can be.
inline bool block_experts_fit(const MoestroCudaExpertLayout& l) {
  const BlockFormat down = block_format(l.down_dtype);
  return is_whole_blocks(block_format(l.gate_dtype), l.hidden) && is_whole_blocks(block_format(l.up_dtype), l.hidden) &&
         is_whole_blocks(down, l.full.ffn) && is_whole_blocks(down, l.last.ffn);
}

/// In f32, of any number of tokens.
MoestroCudaResult experts_blocks_few(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_blocks_few(const MoestroCudaMatmulGroup& arguments, MoestroCudaStream stream);

/// Of experts_blocks_few: `activated`, where gate and up differ in format.
MoestroCudaResult gate_up_blocks_apart(const MoestroCudaExperts& arguments, MoestroCudaStream stream);

/// On tensor cores: activations and weights are rounded to bf16. Refused where gate and up differ in format.
MoestroCudaResult experts_blocks_many(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_blocks_many(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

MoestroCudaResult gather_blocks(const MoestroCudaGather& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda
