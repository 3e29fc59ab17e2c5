#pragma once
// What config.json of all architectures has in common, read with transformers' names and defaults.

#include <optional>
#include <string_view>
#include <vector>

#include "common/model/config_reader.h"
#include "common/model/model_spec.h"
#include "common/model/rope_config.h"

namespace moestro::model {

// Bounds on what a config may contain: far above any existing model, and low enough that no product of them overflows.
inline constexpr int64_t kHiddenMax = 1 << 18;
inline constexpr int64_t kFfnMax = 1 << 20;
inline constexpr int64_t kVocabMax = 1 << 24;
inline constexpr int64_t kLayersMax = 1024;
inline constexpr int64_t kHeadsMax = 2048;
inline constexpr int64_t kHeadDimMax = 4096;
inline constexpr int64_t kDeltaConvMax = 16;
inline constexpr int64_t kExpertsMax = 8192;
inline constexpr int64_t kAllExpertsMax = 1 << 18;  ///< over all layers
inline constexpr int64_t kPositionsMax = 1 << 30;

/// transformers' defaults where they differ by architecture.
struct DecoderDefaults {
  RopeDefaults rope = {};
  double norm_eps = 1e-6;
  int64_t kv_heads = 0;  ///< 0: as many as heads
  bool latent = false;   ///< latent attention
  std::optional<int64_t> bos = std::nullopt, eos = std::nullopt;
  bool mxfp4 = false;  ///< experts may be MXFP4, where quantization_config says so
  bool tied = false;   ///< the head is the embedding
  bool null_head_dim = false;  ///< head_dim may be null, as if it were absent
};

struct DecoderBase {
  int64_t layers = 0;
  AttentionSpec attention;  ///< of every layer; architectures add bias, norms and windows
  std::optional<LatentSpec> latent;  ///< instead
};

/// Fills everything of `spec` but its layers. Errors go to `config`.
DecoderBase read_decoder(ConfigReader& config, const DecoderDefaults& defaults, ModelSpec& spec);

/// Reads eos_token_id and bos_token_id, which replace those in `spec`. An id beyond the vocabulary cannot occur in
/// text, so it is left out (tiny test models keep the ids of large ones).
void read_token_ids(ConfigReader& config, ModelSpec& spec);

/// Reads keys that some files have although their architecture does not use them. The value that changes nothing is
/// accepted. Any other is refused by name, because the checkpoint is then not what its architecture says.
void expect_flag(ConfigReader& config, std::string_view key, bool harmless);
void expect_zero(ConfigReader& config, std::string_view key);
/// Reads layer_types, if all layers must have one kind of attention.
void expect_layer_types(ConfigReader& config, int64_t layers, bool sliding);

/// Reads layer_types: true where a layer sees only a window. Empty if the key is not set.
std::vector<bool> read_sliding_layers(ConfigReader& config, int64_t layers);

/// MoE with three-matrix experts: `experts_key` (or, if that is not set, `other_key`) and num_experts_per_tok.
MoeSpec read_moe(ConfigReader& config, std::string_view experts_key, std::string_view other_key,
                 std::string_view ffn_key, int64_t hidden);

/// The MoE of DeepSeek-V3's kind: sigmoid scores with a bias for the choice, groups of experts, and shared experts that
/// are one of their joint width. `defaults`: the scale and the groups where config.json does not say.
MoeSpec read_grouped_moe(ConfigReader& config, int64_t hidden, const RouterSpec& defaults = {});
/// n_routed_experts of a width, shared ones, routed_scaling_factor: what all of DeepSeek's kind have.
MoeSpec read_shared_moe(ConfigReader& config, int64_t hidden, const RouterSpec& defaults = {});
/// n_group and topk_group, which `moe.router` gets; it has their defaults.
void read_groups(ConfigReader& config, MoeSpec& moe);
/// Accepts the only value of a key that is supported, or none.
void expect_text(ConfigReader& config, std::string_view key, std::string_view only);
/// True from layer first_k_dense_replace on.
std::vector<bool> read_dense_first(ConfigReader& config, int64_t layers, int64_t standard);

/// decoder_sparse_step and mlp_only_layers of the Qwen families: true where a layer is a MoE layer.
std::vector<bool> read_sparse_layers(ConfigReader& config, int64_t layers);

/// Appends the layers: MoE where `sparse` says so, else dense with `dense_ffn`.
void add_layers(ConfigReader& config, const DecoderBase& base, const MoeSpec& moe, const std::vector<bool>& sparse,
                int64_t dense_ffn, ModelSpec& spec);

}  // namespace moestro::model
