#pragma once
// The kernels of attention in f32, and which of them a launch takes.

#include "kernels/cuda/attention_block.h"
#include "kernels/cuda/resident_blocks.h"

namespace moestro::kernels::cuda {

inline constexpr int kAttentionRing = 3;
/// Blocks that a processor holds at once: with more of them registers would be spilled.
template <int kPairs>
inline constexpr int kAttentionResident = kPairs <= 4 ? 3 : 2;

/// In parallel: as many blocks as a device holds at once share the tasks of all units evenly. Otherwise a block for
/// each unit and KV head.
template <typename N, int kDims, int kPairs, int kRing, int kResident>
__global__ void __launch_bounds__(kAttentionThreads, kResident) attention_kernel(MoestroCudaAttention a) {
  using Block = AttentionBlock<N, kDims, kPairs, kRing>;
  auto* room = reinterpret_cast<typename Block::Room*>(shared_memory());
  UnitList list{a, reinterpret_cast<UnitRecord*>(room + 1)};
  int64_t first = 0, end = 0;
  if (a.partial) {
    const int64_t tasks = list.fill();
    first = tasks * blockIdx.x / gridDim.x;
    end = tasks * (blockIdx.x + 1) / gridDim.x;
  } else {
    end = list.fill_with(static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y));
  }
  Block block{a, *room, list};
  block.run(uniform(static_cast<int>(first)), uniform(static_cast<int>(end)));
}

template <typename N, int kDims, int kPairs, int kRing = kAttentionRing, int kResident = kAttentionResident<kPairs>>
MoestroCudaResult launch_attention(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  constexpr auto kernel = attention_kernel<N, kDims, kPairs, kRing, kResident>;
  const int64_t shared = static_cast<int64_t>(sizeof(typename AttentionBlock<N, kDims, kPairs, kRing>::Room)),
                records = (a.partial ? a.unit_count : 1) * static_cast<int64_t>(sizeof(UnitRecord));
  static_assert(sizeof(typename AttentionBlock<N, kDims, kPairs, kRing>::Room) +
                    MOESTRO_CUDA_PARALLEL_UNITS * sizeof(UnitRecord) <=
                kSharedOfEveryCard);
  dim3 grid(static_cast<unsigned>(a.unit_count), static_cast<unsigned>(a.kv.kv_heads));
  if (a.partial) {
    const int64_t tasks = a.unit_count * a.kv.kv_heads * a.parts;
    grid = dim3(static_cast<unsigned>(at_most(tasks, resident_blocks<kernel>(kAttentionThreads, shared + records))));
  }
  return launch(kernel, grid, dim3(kAttentionThreads), static_cast<uint64_t>(shared + records), stream, a);
}

template <typename N, int kPairs>
MoestroCudaResult attention_of_dims(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  if (a.kv.head_dim <= 64) return launch_attention<N, 64, kPairs>(a, stream);
  if (a.kv.head_dim <= 128) return launch_attention<N, 128, kPairs>(a, stream);
  return launch_attention<N, 256, kPairs>(a, stream);
}

template <typename N>
MoestroCudaResult attention_of(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  if (a.pairs_most == 1) return attention_of_dims<N, 1>(a, stream);
  return a.pairs_most <= 4 ? attention_of_dims<N, 4>(a, stream)
                           : attention_of_dims<N, MOESTRO_CUDA_ATTENTION_PAIRS>(a, stream);
}

// One source each, so that they compile in parallel.
MoestroCudaResult attention_f32(const MoestroCudaAttention& a, MoestroCudaStream stream);
MoestroCudaResult attention_bf16(const MoestroCudaAttention& a, MoestroCudaStream stream);
MoestroCudaResult attention_f16(const MoestroCudaAttention& a, MoestroCudaStream stream);
MoestroCudaResult attention_int8(const MoestroCudaAttention& a, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda
