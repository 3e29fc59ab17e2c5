#pragma once
// What a model's layers are made of, in words.

#include <string>

#include "common/model/model_spec.h"

namespace moestro::cli {

/// "64 heads of 64 (8 of keys), biases, logits of sinks, a window of 128 in 12 of 24 layers, YaRN".
std::string attention_text(const model::ModelSpec& spec);
/// "softmax, top 4, weights that sum to 1, a bias of the logits".
std::string router_text(const model::MoeSpec& moe);
/// "clamped SwiGLU (limit 7, alpha 1.702), biases".
std::string expert_text(const model::MoeSpec& moe);

}  // namespace moestro::cli
