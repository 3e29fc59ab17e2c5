#pragma once
// What config.json of encoder-decoder models has in common.

#include <string_view>

#include "common/model/decoder_config.h"

namespace moestro::model {

/// One of the two stacks.
struct StackConfig {
  int64_t layers = 0;
  AttentionSpec attention;  ///< of itself, and of a decoder over its encoder
  int64_t ffn = 0;          ///< of dense layers
  std::vector<bool> sparse = {};  ///< by layer
};

/// The tokens that targets begin with, where `config` (config.json, generation_config.json) says them.
void read_target_begin(ConfigReader& config, ModelSpec& spec);

/// vocab_size, d_model, the ids of tokens, and the keys that only one value of is supported. Errors go to `config`.
void read_encoder_decoder(ConfigReader& config, ModelSpec& spec);

/// num_experts, and what all routers and experts of these families have: experts without a gate, of `ffn`.
MoeSpec read_ungated_moe(ConfigReader& config, int64_t top_k, int64_t ffn, const ModelSpec& spec);

/// `activation_key` must be relu.
void expect_relu(ConfigReader& config, std::string_view activation_key);

/// Appends the layers of both.
void add_stacks(ConfigReader& config, const StackConfig& encoder, const StackConfig& decoder, const MoeSpec& moe,
                ModelSpec& spec);

}  // namespace moestro::model
