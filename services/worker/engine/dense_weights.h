#pragma once
// The weights that every token uses. The host computes on them where the blob source has them, leased for the engine's
// life; a device on its own copy.

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/model/model_spec.h"
#include "kernels/memory.h"
#include "kernels/ops.h"
#include "store/blob_source.h"

namespace moestro::engine {

struct MlpWeights {
  kernels::Weight gate, up, down;
};

/// Pointers into blobs, and to f32 copies of vectors, in the backend's memory. What a layer lacks is null.
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
  /// Waits for the dense blobs. Errors name the tensor that is missing or has another shape than the model's
  /// description. `memory` is of `ops`, and outlives the weights.
  static Result<DenseWeights> load(store::BlobSource& source, const model::ModelDescription& description,
                                   const kernels::Ops& ops, kernels::Memory& memory);

  /// Before a step: has what was found wrong in memory leased anew, waiting for the store to read it again. An error if
  /// it cannot be read, or lies elsewhere by now.
  Status renew(store::BlobSource& source);
  /// After a step: kCorrupt, naming a tensor, if weights that it computed with were found wrong meanwhile.
  Status check() const;

  const kernels::Weight& embed() const { return embed_; }
  const kernels::Weight& head() const { return head_; }
  const float* norm() const { return norm_; }
  const LayerWeights& layer(size_t index) const { return layers_[index]; }
  /// Copies in the backend's memory.
  int64_t copied_bytes() const { return copies_.bytes(); }

 private:
  using Tensors = std::unordered_map<std::string, const store::PackedTensor*>;
  explicit DenseWeights(kernels::Memory& memory) : copies_(memory) {}
  Status lease_blobs(store::BlobSource& source, std::span<const uint32_t> blobs);
  Status place_blobs(const store::Manifest& manifest);
  Result<kernels::Weight> weight(const Tensors& tensors, const std::string& name, const kernels::Ops& ops) const;
  Result<const float*> vector(const Tensors& tensors, const std::string& name);
  Status load_layer(const Tensors& tensors, const model::LayerSpec& spec, const kernels::Ops& ops, LayerWeights& out);

  std::unordered_map<uint32_t, store::Lease> leases_;             ///< a device's end with loading
  std::vector<uint32_t> spoiled_;                                 ///< found wrong, and not leased anew yet
  std::unordered_map<uint32_t, std::string> names_;               ///< blob -> the first tensor in it
  std::unordered_map<uint32_t, const std::byte*> placed_;         ///< blob -> where the backend finds it
  kernels::Buffers copies_;
  kernels::Weight embed_, head_;
  const float* norm_ = nullptr;
  std::vector<LayerWeights> layers_;
};

}  // namespace moestro::engine
