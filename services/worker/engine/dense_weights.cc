#include "services/worker/engine/dense_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "common/dense_layout.h"
#include "common/float16.h"
#include "common/formats/blocks.h"
#include "common/log.h"
#include "common/model/tensor_names.h"
#include "services/worker/engine/position_tables.h"

namespace moestro::engine {
namespace {

using kernels::Weight;
using store::PackedTensor;

// A store that reads from a slow drive delivers something within this time; else it is stuck, and saying so beats
// waiting.
constexpr std::chrono::milliseconds kDenseArrivalWait{1000};
constexpr int kDenseArrivalWaitsMax = 300;

int64_t element_count(const PackedTensor& t) {
  int64_t n = 1;
  for (const int64_t d : t.shape) n *= d;
  return n;
}

float read_element(const std::byte* data, DType dtype, size_t i) {
  if (dtype == DType::kF32) {
    float f;
    std::memcpy(&f, data + 4 * i, 4);
    return f;
  }
  uint16_t h;
  std::memcpy(&h, data + 2 * i, 2);
  return dtype == DType::kBF16 ? bf16_to_f32(h) : f16_to_f32(h);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t d : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
  return text + "]";
}

/// Whoever reads there faults.
const std::byte* nowhere() { return reinterpret_cast<const std::byte*>(uintptr_t{1} << 56); }

/// The pack holds every tensor of the description, with its shape.
Status check_tensors(const std::unordered_map<std::string, const PackedTensor*>& tensors,
                     const model::ModelDescription& description) {
  for (const model::DenseTensor& wanted : description.dense) {
    const auto found = tensors.find(wanted.name);
    if (found == tensors.end()) return corrupt("the pack lacks tensor '" + wanted.name + "'; pack the model again");
    if (found->second->shape != wanted.shape)
      return corrupt("tensor '" + wanted.name + "' is " + shape_text(found->second->shape) + ", config.json says " +
                     shape_text(wanted.shape));
  }
  return Status::ok();
}

}  // namespace

Result<store::Lease> wait_for_streamed(store::BlobSource& source, uint32_t blob,
                                       const std::function<bool()>& interrupted) {
  Result<store::Lease> lease = source.take_streamed(blob, kDenseArrivalWait);
  for (int waits = 1; !lease.is_ok() && lease.status().code() == Code::kUnavailable && waits < kDenseArrivalWaitsMax;
       ++waits) {
    if (interrupted && interrupted()) break;
    lease = source.take_streamed(blob, kDenseArrivalWait);
  }
  return lease;
}

Status DenseWeights::lease_blobs(store::BlobSource& source, std::span<const uint32_t> blobs) {
  std::vector<uint32_t> missing;
  for (const uint32_t blob : blobs) {
    if (auto lease = source.try_pin(blob)) leases_.emplace(blob, std::move(*lease));
    else missing.push_back(blob);
  }
  if (missing.empty()) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(source.fetch(missing, {}));
  int waits = 0;
  for (size_t left = missing.size(); left > 0;) {
    Result<store::Lease> arrival = source.next_arrival(kDenseArrivalWait);
    if (arrival.is_ok()) {
      const uint32_t blob = arrival->blob();
      leases_.emplace(blob, std::move(*arrival));
      --left, waits = 0;
    } else if (arrival.status().code() != Code::kUnavailable || ++waits >= kDenseArrivalWaitsMax) {
      source.cancel_fetches();
      return arrival.status().with_context("loading the dense weights");
    }
  }
  return Status::ok();
}

Status DenseWeights::renew(store::BlobSource& source) {
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (lease->second.is_right()) {
      ++lease;
      continue;
    }
    spoiled_.push_back(lease->first);
    lease = leases_.erase(lease);
  }
  if (spoiled_.empty()) return Status::ok();
  std::vector<uint32_t> missing;
  std::ranges::copy_if(spoiled_, std::back_inserter(missing),
                       [this](uint32_t blob) { return !leases_.contains(blob); });
  source.cancel_fetches();  // what an earlier step gave up: nothing but these arrives
  MOESTRO_RETURN_IF_ERROR(lease_blobs(source, missing));
  for (const uint32_t blob : spoiled_)
    if (leases_.at(blob).data() != placed_.at(blob))
      return internal_error("dense weights that were read again lie elsewhere now: start this worker again");
  log::warn("{} dense blobs of {} were found wrong in memory and have been read again: answers of before may be wrong",
            spoiled_.size(), source.manifest().model_name);
  spoiled_.clear();
  return Status::ok();
}

Status DenseWeights::check() const {
  const auto wrong = std::ranges::find_if(leases_, [](const auto& lease) { return !lease.second.is_right(); });
  if (wrong == leases_.end()) return Status::ok();
  return corrupt("dense weights (" + names_.at(wrong->first) +
                 ") were found wrong in memory while a step computed with them, and what it computed is dropped: ask "
                 "again");
}

/// Where the backend computes on them: where they lie, or on a copy.
Status DenseWeights::place_blobs(const store::BlobSource& source) {
  for (const auto& [blob, lease] : leases_) {
    placed_[blob] = lease.data();
    if (copies_.memory().is_host()) continue;
    if (std::ranges::binary_search(source.streamed(), blob)) {
      placed_[blob] = nowhere();
      continue;
    }
    const auto bytes = static_cast<int64_t>(source.manifest().blobs[blob].length);
    auto* copy = copies_.make<std::byte>(bytes);
    MOESTRO_RETURN_IF_ERROR(copies_.status().with_context("dense weights on the device"));
    copies_.memory().copy_in(copy, lease.data(), bytes);
    placed_[blob] = copy;
  }
  return Status::ok();
}

Result<Weight> DenseWeights::weight(const Tensors& tensors, const std::string& name, const kernels::Ops& ops) const {
  const auto found = tensors.find(name);
  if (found == tensors.end() || found->second->shape.size() != 2)
    return corrupt("the pack lacks the matrix '" + name + "'");
  const PackedTensor& t = *found->second;
  if (!ops.supports(t.dtype))
    return unsupported("tensor '" + name + "' as " + std::string(dtype_name(t.dtype)) + " on this device");
  const std::byte* data = placed_.at(t.blob) + t.offset;
  Weight w{data, t.dtype, t.shape[0], t.shape[1], nullptr};
  if (has_parameters(t.dtype))
    w.parameters = reinterpret_cast<const uint16_t*>(data + dense_parameters_offset(t.dtype, w.rows, w.cols));
  return w;
}

Result<std::vector<float>> DenseWeights::numbers(const Tensors& tensors, const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) return corrupt("the pack lacks tensor '" + name + "'");
  const PackedTensor& t = *found->second;
  if (has_parameters(t.dtype)) return unsupported("tensor '" + name + "' as " + std::string(dtype_name(t.dtype)));
  std::vector<float> values(static_cast<size_t>(element_count(t)));
  const std::byte* data = leases_.at(t.blob).data() + t.offset;
  if (is_blocks(t.dtype))
    formats::dequantise(t.dtype, data, element_count(t), values.data());
  else
    for (size_t i = 0; i < values.size(); ++i) values[i] = read_element(data, t.dtype, i);
  return values;
}

Result<const float*> DenseWeights::vector(const Tensors& tensors, const std::string& name,
                                          const std::function<double(double)>& change) {
  MOESTRO_ASSIGN_OR_RETURN(std::vector<float> values, numbers(tensors, name));
  for (float& value : values) {
    if (!change) break;
    const bool was_finite = std::isfinite(value);
    value = static_cast<float>(change(value));
    if (was_finite && !std::isfinite(value))
      return corrupt("tensor '" + name + "' has a number that means nothing there");
  }
  return place(name, values);
}

Result<const float*> DenseWeights::place(const std::string& name, const std::vector<float>& values) {
  auto* copy = copies_.make<float>(static_cast<int64_t>(values.size()));
  MOESTRO_RETURN_IF_ERROR(copies_.status().with_context("tensor '" + name + "'"));
  copies_.memory().copy_in(copy, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  return copy;
}

Result<const float*> DenseWeights::norm(const Tensors& tensors, const std::string& name) {
  return vector(tensors, name, [this](double weight) { return weight + norm_offset_; });
}

/// Loads tensors of one layer by the rest of their names.
struct DenseWeights::LayerTensors {
  DenseWeights& weights;
  const Tensors& tensors;
  const kernels::Ops& ops;
  std::string prefix;

  Status matrix(const std::string& name, Weight& out) const {
    MOESTRO_ASSIGN_OR_RETURN(out, weights.weight(tensors, prefix + name, ops));
    return Status::ok();
  }
  Status floats(const std::string& name, const float*& out, const std::function<double(double)>& change = {}) const {
    MOESTRO_ASSIGN_OR_RETURN(out, weights.vector(tensors, prefix + name, change));
    return Status::ok();
  }
  Status norm(const std::string& name, const float*& out) const {
    MOESTRO_ASSIGN_OR_RETURN(out, weights.norm(tensors, prefix + name));
    return Status::ok();
  }
  /// With a bias if `biased`, and without a gate unless `gated`.
  Status mlp(const std::string& part, MlpWeights& out, bool gated = true, bool biased = false) const {
    if (gated) MOESTRO_RETURN_IF_ERROR(matrix(part + ".gate.weight", out.gate));
    if (biased) {
      MOESTRO_RETURN_IF_ERROR(floats(part + ".up.bias", out.up_bias));
      MOESTRO_RETURN_IF_ERROR(floats(part + ".down.bias", out.down_bias));
    }
    MOESTRO_RETURN_IF_ERROR(matrix(part + ".up.weight", out.up));
    return matrix(part + ".down.weight", out.down);
  }
};

Status DenseWeights::load_attention(const LayerTensors& layer, const model::LayerSpec& spec, LayerWeights& out) {
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.q.weight", out.q));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.k.weight", out.k));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.v.weight", out.v));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.o.weight", out.o));
  if (spec.attention.qkv_bias) {
    MOESTRO_RETURN_IF_ERROR(layer.floats("attn.q.bias", out.q_bias));
    MOESTRO_RETURN_IF_ERROR(layer.floats("attn.k.bias", out.k_bias));
    MOESTRO_RETURN_IF_ERROR(layer.floats("attn.v.bias", out.v_bias));
  }
  if (spec.attention.output_bias) MOESTRO_RETURN_IF_ERROR(layer.floats("attn.o.bias", out.o_bias));
  if (model::has_norm_weights(spec.attention.qk_norm)) {
    MOESTRO_RETURN_IF_ERROR(layer.norm("attn.q_norm.weight", out.q_norm));
    MOESTRO_RETURN_IF_ERROR(layer.norm("attn.k_norm.weight", out.k_norm));
  }
  if (spec.attention.output_gate) {
    MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.gate.weight", out.gate));
    if (spec.attention.qkv_bias) MOESTRO_RETURN_IF_ERROR(layer.floats("attn.gate.bias", out.gate_bias));
  }
  if (spec.attention.sink_logits) MOESTRO_RETURN_IF_ERROR(layer.floats("attn.sink_logits", out.sink_logits));
  return Status::ok();
}

Status DenseWeights::load_cross(const LayerTensors& layer, const model::LayerSpec& spec, CrossWeights& out) {
  MOESTRO_RETURN_IF_ERROR(layer.norm("cross_norm.weight", out.norm));
  if (layer.tensors.contains("norm.bias")) MOESTRO_RETURN_IF_ERROR(layer.floats("cross_norm.bias", out.norm_bias));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("cross.q.weight", out.q));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("cross.k.weight", out.k));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("cross.v.weight", out.v));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("cross.o.weight", out.o));
  if (spec.cross->qkv_bias) {
    MOESTRO_RETURN_IF_ERROR(layer.floats("cross.q.bias", out.q_bias));
    MOESTRO_RETURN_IF_ERROR(layer.floats("cross.k.bias", out.k_bias));
    MOESTRO_RETURN_IF_ERROR(layer.floats("cross.v.bias", out.v_bias));
  }
  return spec.cross->output_bias ? layer.floats("cross.o.bias", out.o_bias) : Status::ok();
}

/// What both stacks share, and what an encoder has in addition to its layers.
Status DenseWeights::load_encoder(const Tensors& tensors, const model::ModelSpec& spec) {
  MOESTRO_ASSIGN_OR_RETURN(encoder_norm_, norm(tensors, "encoder_norm.weight"));
  if (spec.norm_bias) {
    MOESTRO_ASSIGN_OR_RETURN(encoder_norm_bias_, vector(tensors, "encoder_norm.bias"));
  }
  if (!spec.relative_bias) return Status::ok();
  const auto bias = [&](const std::string& name, const model::LayerSpec& layer,
                        bool both_ways) -> Result<const float*> {
    MOESTRO_ASSIGN_OR_RETURN(const std::vector<float> table, numbers(tensors, name));
    return place(name, expand_bias(*spec.relative_bias, table, layer.attention.heads, both_ways));
  };
  MOESTRO_ASSIGN_OR_RETURN(encoder_bias_, bias("encoder_bias.weight", spec.layers.front(), true));
  MOESTRO_ASSIGN_OR_RETURN(decoder_bias_, bias("decoder_bias.weight", spec.layers.back(), false));
  return Status::ok();
}

Status DenseWeights::load_latent(const LayerTensors& layer, const model::LayerSpec& spec, LayerWeights& out) {
  const model::LatentSpec& a = *spec.latent;
  if (a.q_rank > 0) {
    MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.q_a.weight", out.latent.q_a));
    if (a.bias) MOESTRO_RETURN_IF_ERROR(layer.floats("attn.q_a.bias", out.latent.q_a_bias));
    MOESTRO_RETURN_IF_ERROR(layer.floats("attn.q_a_norm.weight", out.latent.q_a_norm));
  }
  MOESTRO_RETURN_IF_ERROR(layer.matrix(a.q_rank > 0 ? "attn.q_b.weight" : "attn.q.weight", out.q));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.kv_a.weight", out.latent.kv_a));
  if (a.bias) MOESTRO_RETURN_IF_ERROR(layer.floats("attn.kv_a.bias", out.latent.kv_a_bias));
  MOESTRO_RETURN_IF_ERROR(layer.floats("attn.kv_a_norm.weight", out.latent.kv_a_norm));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("kv_b.weight", out.latent.kv_b));
  if (const DType d = out.latent.kv_b.dtype; has_parameters(d) || is_blocks(d))
    return unsupported("tensor '" + layer.prefix + "kv_b.weight' as " + std::string(dtype_name(d)));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.o.weight", out.o));
  if (a.bias) MOESTRO_RETURN_IF_ERROR(layer.floats("attn.o.bias", out.o_bias));
  return Status::ok();
}

Status DenseWeights::load_delta(const LayerTensors& layer, const model::DeltaSpec& spec, LayerWeights& out) {
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.q.weight", out.q));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.k.weight", out.k));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.v.weight", out.v));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.o.weight", out.o));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("attn.z.weight", out.delta.z));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("delta.a.weight", out.delta.a));
  MOESTRO_RETURN_IF_ERROR(layer.matrix("delta.b.weight", out.delta.b));
  MOESTRO_RETURN_IF_ERROR(layer.floats("delta.conv.weight", out.delta.conv));
  MOESTRO_RETURN_IF_ERROR(spec.decay_as_is
                              ? layer.floats("delta.a_log", out.delta.a_log, [](double a) { return std::log(-a); })
                              : layer.floats("delta.a_log", out.delta.a_log));
  MOESTRO_RETURN_IF_ERROR(layer.floats("delta.dt_bias", out.delta.dt_bias));
  return layer.floats("delta.norm.weight", out.delta.norm);
}

Status DenseWeights::load_layer(const Tensors& tensors, const model::ModelSpec& model, const model::LayerSpec& spec,
                                const kernels::Ops& ops, LayerWeights& out) {
  const LayerTensors layer{*this, tensors, ops, "layers." + std::to_string(spec.index.value) + "."};
  MOESTRO_RETURN_IF_ERROR(layer.norm("input_norm.weight", out.input_norm));
  MOESTRO_RETURN_IF_ERROR(layer.norm("post_attention_norm.weight", out.post_norm));
  if (tensors.contains("norm.bias")) {
    MOESTRO_RETURN_IF_ERROR(layer.floats("input_norm.bias", out.input_norm_bias));
    MOESTRO_RETURN_IF_ERROR(layer.floats("post_attention_norm.bias", out.post_norm_bias));
  }
  MOESTRO_RETURN_IF_ERROR(spec.latent  ? load_latent(layer, spec, out)
                          : spec.delta ? load_delta(layer, *spec.delta, out)
                                       : load_attention(layer, spec, out));
  if (spec.cross) MOESTRO_RETURN_IF_ERROR(load_cross(layer, spec, out.cross));
  if (!spec.moe_index) return layer.mlp("mlp", out.mlp, model.mlp_gated, model.mlp_bias);
  // The router decides which experts run: f32, so that its logits are as exact as its weights are.
  const float* router = nullptr;
  MOESTRO_RETURN_IF_ERROR(layer.floats("router.weight", router));
  out.router = {router, DType::kF32, spec.moe.experts, spec.moe.expert.hidden, nullptr};
  if (spec.moe.router.logit_bias)
    MOESTRO_RETURN_IF_ERROR(layer.floats("router.logit_bias", out.router_logit_bias));
  if (spec.moe.router.choice_bias) MOESTRO_RETURN_IF_ERROR(layer.floats("router.bias", out.router_bias));
  if (spec.moe.shared_ffn > 0) MOESTRO_RETURN_IF_ERROR(layer.mlp("shared", out.shared));
  if (spec.moe.before_attention) MOESTRO_RETURN_IF_ERROR(layer.floats("shared_norm.weight", out.shared_norm));
  if (spec.moe.shared_gate) MOESTRO_RETURN_IF_ERROR(layer.matrix("shared_gate.weight", out.shared_gate));
  return Status::ok();
}

/// Which layer each streamed blob belongs to: one layer, of which no other blob is streamed.
Status DenseWeights::find_streamed(const store::BlobSource& source) {
  streamed_.resize(layers_.size());
  for (const PackedTensor& t : source.manifest().tensors) {
    if (!std::ranges::binary_search(source.streamed(), t.blob)) continue;
    const std::optional<size_t> layer = model::layer_of_tensor(t.name);
    if (!layer || *layer >= layers_.size() || streamed_[*layer].value_or(t.blob) != t.blob ||
        std::ranges::count(streamed_, std::optional(t.blob)) > (streamed_[*layer] ? 1 : 0))
      return unsupported("tensor '" + t.name + "' is in dense weights of several layers, which cannot take turns in "
                         "memory: raise --dram, or pack the model again");
    streamed_[*layer] = t.blob;
  }
  return Status::ok();
}

/// `load` while the layer's streamed blob, if it has one, is in memory; the next one is being read.
Status DenseWeights::visit_layer(store::BlobSource& source, size_t layer, const std::function<Status()>& load) {
  if (!streamed_[layer] || !copies_.memory().is_host()) return load();
  const uint32_t blob = *streamed_[layer];
  (void)source.ask_streamed(blob, {});
  Result<store::Lease> lease = wait_for_streamed(source, blob);
  if (!lease.is_ok()) return lease.status().with_context("loading the dense weights");
  leases_.emplace(blob, std::move(*lease));
  const auto next = std::find_if(streamed_.begin() + static_cast<ptrdiff_t>(layer) + 1, streamed_.end(),
                                 [](const auto& of) { return of.has_value(); });
  if (next != streamed_.end()) (void)source.ask_streamed(**next, {});
  placed_[blob] = leases_.at(blob).data();
  Status loaded = load();
  if (loaded.is_ok()) loaded = check().with_context("copying the dense weights");
  leases_.erase(blob);
  return loaded;
}

void DenseWeights::move_layer(size_t layer, const std::byte* data) {
  const std::byte*& placed = placed_.at(*streamed_[layer]);
  if (placed == data) return;
  LayerWeights& w = layers_[layer];
  const ptrdiff_t by = data - std::exchange(placed, data);
  for (Weight* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.latent.q_a, &w.latent.kv_a, &w.latent.kv_b, &w.delta.z,
                    &w.delta.a, &w.delta.b, &w.mlp.gate, &w.mlp.up, &w.mlp.down, &w.shared.gate, &w.shared.up,
                    &w.shared.down, &w.shared_gate}) {
    if (m->data == nullptr) continue;
    m->data = static_cast<const std::byte*>(m->data) + by;
    if (m->parameters != nullptr) m->parameters += by / static_cast<ptrdiff_t>(sizeof *m->parameters);
  }
}

Result<DenseWeights> DenseWeights::load(store::BlobSource& source, const model::ModelDescription& description,
                                        const kernels::Ops& ops, kernels::Memory& memory) {
  DenseWeights weights(memory);
  weights.norm_offset_ = description.spec.norm_offset;
  Tensors tensors;
  for (const PackedTensor& t : source.manifest().tensors) tensors.emplace(t.name, &t);
  MOESTRO_RETURN_IF_ERROR(check_tensors(tensors, description));
  // A device's vectors are copies of what host memory has, also of layers that take turns in its own.
  store::BlobSource& bytes = memory.is_host() ? source : source.in_host_memory();
  if (!bytes.streamed().empty() && !memory.is_host())
    return unsupported("dense weights that do not fit into host memory, on this device: raise --dram");
  const std::span<const uint32_t> streamed = bytes.streamed();
  std::vector<uint32_t> blobs;
  for (uint32_t blob = 0; blob < source.manifest().blobs.size(); ++blob)
    if (source.manifest().blobs[blob].kind == store::BlobKind::kDense && !std::ranges::binary_search(streamed, blob))
      blobs.push_back(blob);
  for (const PackedTensor& t : source.manifest().tensors) weights.names_.try_emplace(t.blob, t.name);
  for (const uint32_t blob : blobs) weights.names_.try_emplace(blob, "blob " + std::to_string(blob));
  MOESTRO_RETURN_IF_ERROR(weights.lease_blobs(bytes, blobs));
  MOESTRO_RETURN_IF_ERROR(weights.place_blobs(source));
  MOESTRO_ASSIGN_OR_RETURN(weights.embed_, weights.weight(tensors, "embed.weight", ops));
  if (has_parameters(weights.embed_.dtype))
    return unsupported("an embedding as " + std::string(dtype_name(weights.embed_.dtype)));
  if (description.spec.tied_embeddings) {
    weights.head_ = weights.embed_;
  } else {
    MOESTRO_ASSIGN_OR_RETURN(weights.head_, weights.weight(tensors, "head.weight", ops));
  }
  MOESTRO_ASSIGN_OR_RETURN(weights.norm_, weights.norm(tensors, "norm.weight"));
  if (description.spec.norm_bias) {
    MOESTRO_ASSIGN_OR_RETURN(weights.norm_bias_, weights.vector(tensors, "norm.bias"));
  }
  if (description.spec.head_bias) {
    MOESTRO_ASSIGN_OR_RETURN(weights.head_bias_, weights.vector(tensors, "head.bias"));
  }
  if (description.spec.is_encoder_decoder())
    MOESTRO_RETURN_IF_ERROR(weights.load_encoder(tensors, description.spec));
  weights.layers_.resize(description.spec.layers.size());
  MOESTRO_RETURN_IF_ERROR(weights.find_streamed(source));
  for (size_t i = 0; i < weights.layers_.size(); ++i)
    MOESTRO_RETURN_IF_ERROR(weights.visit_layer(source, i, [&] {
      return weights.load_layer(tensors, description.spec, description.spec.layers[i], ops, weights.layers_[i]);
    }));
  MOESTRO_RETURN_IF_ERROR(weights.check().with_context("copying the dense weights"));
  if (!memory.is_host()) weights.leases_.clear();  // what was copied is the store's to evict
  return weights;
}

}  // namespace moestro::engine
