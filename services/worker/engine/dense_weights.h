#pragma once
// The weights that every token uses. The host uses them in the blob source's memory, leased for the engine's life, or,
// where they take turns there (store::BlobSource::streamed), for as long as a layer computes (layer_stream.h). A device
// uses its own copy; matrices that take turns in its memory are nowhere before move_layer().

#include <functional>
#include <optional>
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
  kernels::Weight gate, up, down;  ///< gate: null if the model's MLPs have none
  const float *up_bias = nullptr, *down_bias = nullptr;
};

/// Attention over an encoder's memory.
struct CrossWeights {
  const float *norm = nullptr, *norm_bias = nullptr;
  kernels::Weight q, k, v, o;
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;
};

/// What latent attention has besides q (of the hidden state, or of the normed q_a) and o.
struct LatentWeights {
  kernels::Weight q_a, kv_a, kv_b;
  const float *q_a_bias = nullptr, *kv_a_bias = nullptr;
  const float *q_a_norm = nullptr, *kv_a_norm = nullptr;
};

/// What the gated delta rule has besides q, k, v and o.
struct DeltaWeights {
  kernels::Weight z, a, b;
  const float *conv = nullptr, *a_log = nullptr, *dt_bias = nullptr;
  const float* norm = nullptr;
};

/// Pointers into blobs, and to f32 copies of vectors, in the backend's memory. Weights that a layer does not have are
/// null.
struct LayerWeights {
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  const float *input_norm_bias = nullptr, *post_norm_bias = nullptr;
  kernels::Weight q, k, v, o;
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;
  const float *q_norm = nullptr, *k_norm = nullptr;
  kernels::Weight gate;  ///< AttentionSpec::output_gate
  const float* gate_bias = nullptr;
  CrossWeights cross;
  LatentWeights latent;
  DeltaWeights delta;
  kernels::Weight router;
  const float *router_bias = nullptr, *router_logit_bias = nullptr;
  const float* sink_logits = nullptr;
  MlpWeights mlp, shared;
  kernels::Weight shared_gate;
  const float* shared_norm = nullptr;
};

/// A streamed blob that has been asked for (store::BlobSource::ask_streamed). kUnavailable after five minutes without
/// it: the store lives, and cannot deliver; or when `interrupted`, which is asked where the source has waited in vain,
/// says true.
Result<store::Lease> wait_for_streamed(store::BlobSource& source, uint32_t blob,
                                       const std::function<bool()>& interrupted = {});

class DenseWeights {
 public:
  /// Waits for the dense blobs. Errors name the tensor that is missing or has another shape than the model's
  /// description. `memory` is the memory of `ops`, and outlives the weights.
  static Result<DenseWeights> load(store::BlobSource& source, const model::ModelDescription& description,
                                   const kernels::Ops& ops, kernels::Memory& memory);

  /// Before a step: leases weights that were found wrong in memory again, and waits until the store has read them
  /// again. An error if they cannot be read, or are now in another place.
  Status renew(store::BlobSource& source);
  /// After a step: kCorrupt, naming a tensor, if weights that the step used were found wrong meanwhile.
  Status check() const;

  const kernels::Weight& embed() const { return embed_; }
  const kernels::Weight& head() const { return head_; }
  const float* norm() const { return norm_; }
  const float* norm_bias() const { return norm_bias_; }  ///< null: none
  const float* head_bias() const { return head_bias_; }
  const float* encoder_norm() const { return encoder_norm_; }
  const float* encoder_norm_bias() const { return encoder_norm_bias_; }  ///< null: none
  /// kernels::AttentionShape::position_bias of all layers of a stack.
  const float* position_bias(model::LayerSpec::Stack stack) const {
    return stack == model::LayerSpec::Stack::kEncoder ? encoder_bias_ : decoder_bias_;
  }
  const LayerWeights& layer(size_t index) const { return layers_[index]; }
  /// The blob with a layer's matrices, if it is a streamed one. Its vectors are copies, which stay.
  std::optional<uint32_t> streamed_blob(size_t layer) const { return streamed_[layer]; }
  /// The matrices of a streamed layer lie at `data` from now on.
  void move_layer(size_t layer, const std::byte* data);
  /// Where they lie.
  const std::byte* place_of(size_t layer) const { return placed_.at(*streamed_[layer]); }
  /// The name of a tensor in this blob, for errors.
  const std::string& name_of(uint32_t blob) const { return names_.at(blob); }

 private:
  using Tensors = std::unordered_map<std::string, const store::PackedTensor*>;
  explicit DenseWeights(kernels::Memory& memory) : copies_(memory) {}
  Status find_streamed(const store::BlobSource& source);
  Status visit_layer(store::BlobSource& source, size_t layer, const std::function<Status()>& load);
  Status lease_blobs(store::BlobSource& source, std::span<const uint32_t> blobs);
  Status place_blobs(const store::BlobSource& source);
  Result<kernels::Weight> weight(const Tensors& tensors, const std::string& name, const kernels::Ops& ops) const;
  Result<std::vector<float>> numbers(const Tensors& tensors, const std::string& name) const;
  Result<const float*> place(const std::string& name, const std::vector<float>& values);
  /// `change`, if there is one, is applied to each number.
  Result<const float*> vector(const Tensors& tensors, const std::string& name,
                              const std::function<double(double)>& change = {});
  Result<const float*> norm(const Tensors& tensors, const std::string& name);
  struct LayerTensors;
  Status load_encoder(const Tensors& tensors, const model::ModelSpec& spec);
  Status load_cross(const LayerTensors& layer, const model::LayerSpec& spec, CrossWeights& out);
  Status load_attention(const LayerTensors& layer, const model::LayerSpec& spec, LayerWeights& out);
  Status load_latent(const LayerTensors& layer, const model::LayerSpec& spec, LayerWeights& out);
  Status load_delta(const LayerTensors& layer, const model::DeltaSpec& spec, LayerWeights& out);
  Status load_layer(const Tensors& tensors, const model::ModelSpec& model, const model::LayerSpec& spec,
                    const kernels::Ops& ops, LayerWeights& out);

  std::unordered_map<uint32_t, store::Lease> leases_;             ///< released after loading on a device
  std::vector<uint32_t> spoiled_;                                 ///< found wrong, and not leased again yet
  std::unordered_map<uint32_t, std::string> names_;               ///< blob -> the first tensor in it
  std::unordered_map<uint32_t, const std::byte*> placed_;         ///< blob -> its place for the backend
  kernels::Buffers copies_;
  kernels::Weight embed_, head_;
  const float *norm_ = nullptr, *norm_bias_ = nullptr, *head_bias_ = nullptr;
  const float *encoder_norm_ = nullptr, *encoder_norm_bias_ = nullptr;
  const float *encoder_bias_ = nullptr, *decoder_bias_ = nullptr;
  std::vector<LayerWeights> layers_;
  std::vector<std::optional<uint32_t>> streamed_;  ///< by layer: its blob
  double norm_offset_ = 0.0;  ///< ModelSpec::norm_offset
};

}  // namespace moestro::engine
