#pragma once
// Blocks as a precision that is asked for (--experts, --dense): what can be made of a checkpoint, and what it costs.

#include <string>
#include <vector>

#include "store/pack/checkpoint.h"

namespace moestro::store {

/// kUnsupported, saying why and what would do: no encoder, rows that are not whole blocks, or a source that has no more
/// bits. OK also where every expert is in this format already.
Status check_expert_blocks(const Checkpoint& checkpoint, DType to);
/// The same of dense weights, where one matrix that changes is enough.
Status check_dense_blocks(const Checkpoint& checkpoint, DType to);

/// kUnsupported if the experts' columns are ordered by activation: no block says them, and as f32 they take 8 times the
/// room, so it must be asked for.
Status check_blocks_hold_experts(const Checkpoint& checkpoint);
/// Whether any dense matrix is so; those become f32.
bool has_widened_dense(const Checkpoint& checkpoint);

/// What a dense matrix becomes if `to` is asked for: blocks of no more bits stay as they are.
DType dense_format(DType own, DType to);

/// Whether blocks or groups are made of numbers that were rounded to some already, in words; empty: they are not.
std::string quantised_twice(const Checkpoint& checkpoint, const std::vector<DType>& experts,
                            const std::optional<DType>& dense);

/// What may be quantised: not the embedding, which is looked up, and not the router, which decides.
bool is_matrix_of_a_product(const model::DenseTensor& t);
/// Whether it is read across its rows, which blocks lie along: kv_b of latents.
bool is_read_across(const model::DenseTensor& t);

}  // namespace moestro::store
