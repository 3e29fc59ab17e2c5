#pragma once
// The weights that every token uses: leased once from the blob source and kept for the engine's life.

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/ops.h"
#include "store/blob_source.h"

namespace moestro::engine {

struct MlpWeights {
  kernels::Weight gate, up, down;
};

/// Pointers into leased blobs; vectors are f32 copies. What a layer lacks is null.
struct LayerWeights {
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  kernels::Weight q, k, v, o;
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;
  const float *q_norm = nullptr, *k_norm = nullptr;
  kernels::Weight router;
  MlpWeights mlp, shared;
  kernels::Weight shared_gate;
};

class DenseWeights {
 public:
  /// Waits for the dense blobs. Errors name the tensor that is missing or has another shape than the model's description.
  static Result<DenseWeights> load(store::BlobSource& source, const model::ModelDescription& description, const kernels::Ops& ops);

  const kernels::Weight& embed() const { return embed_; }
  const kernels::Weight& head() const { return head_; }
  const float* norm() const { return norm_; }
  const LayerWeights& layer(size_t index) const { return layers_[index]; }

 private:
  using Tensors = std::unordered_map<std::string, const store::PackedTensor*>;
  DenseWeights() = default;
  Status lease_blobs(store::BlobSource& source);
  Result<kernels::Weight> weight(const Tensors& tensors, const std::string& name, const kernels::Ops& ops) const;
  Result<const float*> vector(const Tensors& tensors, const std::string& name);
  Status load_layer(const Tensors& tensors, const model::LayerSpec& spec, const kernels::Ops& ops, LayerWeights& out);

  std::unordered_map<uint32_t, store::Lease> leases_;
  std::deque<std::vector<float>> converted_;
  kernels::Weight embed_, head_;
  const float* norm_ = nullptr;
  std::vector<LayerWeights> layers_;
};

}  // namespace moestro::engine
