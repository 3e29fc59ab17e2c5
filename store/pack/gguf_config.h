#pragma once
// config.json of a model from the metadata and the tensors of its GGUF file, with the keys and the meaning that Hugging
// Face's have. describe_model then reads it as any other.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/model/expert_storage.h"
#include "common/model/model_spec.h"
#include "store/pack/gguf_header.h"

namespace moestro::store {

/// Small tensors of f32 by name, which belong to a model's description.
using GgufVectors = std::map<std::string, std::vector<double>>;
/// Those that there may be.
std::span<const char* const> gguf_vector_names();

struct GgufConfig {
  std::string json;
  std::vector<std::string> remarks;  ///< what the file does not say, and what was taken for it
};

/// kUnsupported names a family or a setting that is not known; kInvalidArgument what is missing or contradicts itself.
Result<GgufConfig> gguf_config(const GgufHeader& header, const GgufVectors& vectors = {});

/// The name in GGUF files of a dense tensor with the canonical name `name` (model_spec.h): "blk.3.attn_q.weight" of
/// "layers.3.attn.q.weight". `arch`: general.architecture.
/// `of_delta`: its layer has the gated delta rule.
std::string gguf_tensor_name(const std::string& arch, const std::string& name, bool of_delta);

/// All experts of a layer: "blk.3.ffn_gate_exps.weight". One of them, in the oldest files: "blk.3.ffn_gate.5.weight".
std::string gguf_experts_name(LayerId layer, model::ExpertPart matrix);
std::string gguf_expert_name(LayerId layer, model::ExpertPart matrix, ExpertId expert);
/// The biases of all experts: "blk.3.ffn_gate_exps.bias".
std::string gguf_biases_name(LayerId layer, model::ExpertPart matrix);

/// Whether rows of q and k are interleaved within their heads, as the rotation of this family has them.
bool has_interleaved_heads(const std::string& arch);

}  // namespace moestro::store
