#pragma once
// Where a checkpoint of an encoder-decoder model has its tensors.

#include "common/model/model_spec.h"

namespace moestro::model {

/// Names within a layer of one stack.
struct StackNames {
  const char *layers, *norm;        ///< "encoder.block.", and the norm of the stack's output
  const char *mlp, *mlp_norm;       ///< of experts and dense MLPs alike
  const char* bias_table = nullptr; ///< of RelativeBias, in layer 0
};

struct EncoderDecoderNames {
  const char* embed;
  StackNames encoder, decoder;
  const char *self_attention, *self_norm, *cross_attention, *cross_norm;
  const char *q, *k, *v, *o;
  const char *up, *down;  ///< of experts and dense MLPs
  const char *router = "router.classifier", *experts = "experts.expert_";  ///< in StackNames::mlp
};

inline constexpr EncoderDecoderNames kSwitchStacks{
    .embed = "shared.weight",
    .encoder = {"encoder.block.", "encoder.final_layer_norm", "layer.1.mlp.", "layer.1.layer_norm",
                "layer.0.SelfAttention.relative_attention_bias.weight"},
    .decoder = {"decoder.block.", "decoder.final_layer_norm", "layer.2.mlp.", "layer.2.layer_norm",
                "layer.0.SelfAttention.relative_attention_bias.weight"},
    .self_attention = "layer.0.SelfAttention.",
    .self_norm = "layer.0.layer_norm",
    .cross_attention = "layer.1.EncDecAttention.",
    .cross_norm = "layer.1.layer_norm",
    .q = "q",
    .k = "k",
    .v = "v",
    .o = "o",
    .up = "wi",
    .down = "wo"};

inline constexpr EncoderDecoderNames kNllbStacks{
    .embed = "model.shared.weight",
    .encoder = {"model.encoder.layers.", "model.encoder.layer_norm", "ffn.", "ff_layer_norm"},
    .decoder = {"model.decoder.layers.", "model.decoder.layer_norm", "ffn.", "ff_layer_norm"},
    .self_attention = "self_attn.",
    .self_norm = "self_attn_layer_norm",
    .cross_attention = "cross_attention.",
    .cross_norm = "cross_attention_layer_norm",
    .q = "q_proj",
    .k = "k_proj",
    .v = "v_proj",
    .o = "out_proj",
    .up = "fc1",
    .down = "fc2"};

/// Fills `dense` and `experts` from a finished spec.
void map_encoder_decoder(const EncoderDecoderNames& names, ModelDescription& description);

}  // namespace moestro::model
