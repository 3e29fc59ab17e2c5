#pragma once
// Shapes of benchmark models, as in config.json.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/status.h"

namespace moestro::cli {

/// Every dimension of a model.
struct ModelShape {
  enum class Family : uint8_t {
    kMixtral, kQwen3Moe, kDeepseekV2, kGptOss, kQwen3Next, kSwitch, kNllb
  } family = Family::kMixtral;
  /// layers: of an encoder-decoder model, of each stack. Not all of those have experts, and top_k is the family's.
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t ffn = 0, experts = 0, top_k = 0;  ///< ffn: of an expert
  int64_t vocab = 32000, context = 32768;
  // kDeepseekV2, whose first layer is dense. head_dim: of values, and of queries without their rotated part; kv_heads
  // counts for nothing.
  int64_t kv_rank = 0, rope_dim = 0, shared_experts = 0, dense_ffn = 0;
};

/// The names of model_shape().
std::vector<std::string> model_shape_names();
/// nullopt: not one of those names.
std::optional<ModelShape> model_shape(const std::string& name);

/// A family whose tokens all have the same number of experts: that number; else 0.
int64_t fixed_top_k(ModelShape::Family family);

/// Bytes of the weights of all experts in that precision.
uint64_t expert_bytes(const ModelShape& shape, DType precision);

/// One line: "mixtral, 16 layers of 8 experts (2 a token), hidden 1024, ...".
std::string shape_text(const ModelShape& shape);

/// The other files of a model of this shape, in Hugging Face's format. The tokenizer knows only bytes; encoding never
/// gives the rest of the vocabulary. Needs a vocabulary of at least 257.
std::string config_json(const ModelShape& shape);
std::string generation_config_json();
std::string byte_tokenizer_json(int64_t vocab);
std::string tokenizer_config_json(const ModelShape& shape);

inline constexpr int64_t kByteVocab = 257;  ///< bytes, and the end of a text

}  // namespace moestro::cli
