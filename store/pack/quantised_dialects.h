#pragma once
// The forms in which checkpoints hold quantised matrices. Tensors have the shapes and formats of their dialect, which
// the caller has checked.

#include <memory>
#include <optional>
#include <string>

#include "store/pack/int4_words.h"
#include "store/pack/quantised_matrix.h"

namespace moestro::store {

struct MatrixName {
  std::string name;
  int64_t rows = 0, cols = 0;
};

/// Values and zero points, 8 a word, and scales of `group` columns in f16 or bf16.
struct Int4Tensors {
  SourceTensor words, scales;
  std::optional<SourceTensor> zeros;
};

using GptqZeros = model::Quantisation::GptqZeros;
using Quantised = std::shared_ptr<const QuantisedMatrix>;

/// blocks [rows, cols / 32, 16], low half of a byte first, and exponents [rows, cols / 32].
Quantised mxfp4_matrix(const MatrixName& m, SourceTensor blocks, SourceTensor scales);
/// A scale for `block_rows` rows and `block_cols` columns.
Quantised fp8_matrix(const MatrixName& m, DType dtype, SourceTensor values, SourceTensor scales, int64_t block_rows,
                     int64_t block_cols);
/// words [cols / 8, rows], zeros [groups, rows / 8], scales [groups, rows].
Quantised gptq_matrix(const MatrixName& m, DType dtype, int64_t group, Int4Tensors t, GptqZeros form);
/// The same in f32, if column c is of group groups_of[c].
Quantised ordered_gptq_matrix(const MatrixName& m, std::vector<int32_t> groups_of, Int4Tensors t, GptqZeros form);
/// words [cols, rows / 8], zeros [groups, rows / 8], both in AWQ's order, scales [groups, rows].
Quantised awq_matrix(const MatrixName& m, DType dtype, int64_t group, Int4Tensors t);
/// words [rows, cols / 8], zeros [rows / 8, groups] (absent: all 8), scales [rows, groups].
Quantised packed_int4_matrix(const MatrixName& m, DType dtype, int64_t group, Int4Tensors t);
/// values [rows, cols / 2], scales [rows, cols / 16]. `divides`: `whole` is what scales are divided by.
Quantised nvfp4_matrix(const MatrixName& m, SourceTensor values, SourceTensor scales, SourceTensor whole, bool divides);
/// The numbers of another one, in f32.
Quantised widened_matrix(std::string name, Quantised blocks);

}  // namespace moestro::store
