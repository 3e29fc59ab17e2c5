#pragma once
// What quantization_config of config.json says of a checkpoint's quantised matrices. Which matrices those are the
// checkpoint's tensors say; store/pack/quantised_matrix.h reads them.

#include <cstdint>

namespace moestro::model {

class ConfigReader;

struct Quantisation {
  enum class Method : uint8_t {
    kNone,
    kMxfp4,       ///< gpt-oss: its experts
    kFp8,         ///< e4m3 with scales of blocks, rows or tensors
    kGptq,        ///< 4 bits, packed along columns of [in, out]
    kAwq,         ///< 4 bits, packed along rows of [in, out]
    kPackedInt4,  ///< compressed-tensors pack-quantized: 4 bits, packed along rows of [out, in]
    kNvfp4        ///< e2m1 with an e4m3 scale for 16 columns and an f32 one for the tensor
  };
  Method method = Method::kNone;
  int64_t block_rows = 0, block_cols = 0;  ///< kFp8: that share a scale; 0: a row's or a tensor's columns do
  int64_t group = 0;               ///< 4 bits: columns that share a scale; 0: all of a row
  bool symmetric = false;          ///< kPackedInt4: there are no zero points
  /// kGptq: version 2 stores zero points as they are, version 1 less 1: AutoGPTQ each number, GPTQModel a whole word.
  /// With `sym` all are 8, and which version has stored them makes no difference: some files are of the other one.
  enum class GptqZeros : uint8_t { kAsTheyAre, kLess1, kWordLess1, kMiddle };
  GptqZeros gptq_zeros = GptqZeros::kLess1;
  bool needs_order = false;  ///< kGptq: columns may be of groups out of turn, so g_idx must say of which

  friend bool operator==(const Quantisation&, const Quantisation&) = default;
};

/// Reads quantization_config, if there is one. `mxfp4`: of an architecture whose experts may be MXFP4; none else
/// may. Errors go to `config`.
Quantisation read_quantisation(ConfigReader& config, bool mxfp4);

}  // namespace moestro::model
