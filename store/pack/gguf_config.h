#pragma once
// config.json of a model from the metadata and the tensors of its GGUF file, with the keys and the meaning that Hugging
// Face's have. describe_model then reads it as any other.

#include <string>

#include "common/model/expert_storage.h"
#include "common/model/model_spec.h"
#include "store/pack/gguf_header.h"

namespace moestro::store {

/// kUnsupported names a family or a setting that is not known; kInvalidArgument what is missing or contradicts itself.
Result<std::string> gguf_config_json(const GgufHeader& header);

/// The name in GGUF files of a dense tensor with the canonical name `name` (model_spec.h): "blk.3.attn_q.weight" of
/// "layers.3.attn.q.weight".
std::string gguf_tensor_name(const std::string& name);

/// All experts of a layer: "blk.3.ffn_gate_exps.weight". One of them, in the oldest files: "blk.3.ffn_gate.5.weight".
std::string gguf_experts_name(LayerId layer, model::ExpertPart matrix);
std::string gguf_expert_name(LayerId layer, model::ExpertPart matrix, ExpertId expert);

/// Whether rows of q and k are interleaved within their heads, as the rotation of this family has them.
bool has_interleaved_heads(const GgufMetadata& metadata);

}  // namespace moestro::store
