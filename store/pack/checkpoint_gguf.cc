// A model as GGUF, opened as a checkpoint: its tensors under the names that the model has in Hugging Face's files.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/model/strict_json.h"
#include "store/pack/checkpoint.h"
#include "store/pack/gguf_config.h"
#include "store/pack/gguf_config_reader.h"
#include "store/pack/gguf_tokenizer.h"

namespace moestro::store {

using model::in_quotes;
namespace fs = std::filesystem;

/// The tensors of a file, by name, and which of them have been asked for.
class GgufTensors {
 public:
  explicit GgufTensors(const GgufModel& gguf) {
    for (size_t i = 0; i < gguf.header.tensors.size(); ++i) {
      const GgufTensor& t = gguf.header.tensors[i];
      all_.emplace(t.name, Entry{&t, gguf.file_of[i]});
    }
  }

  /// The tensor as one of the checkpoint; nothing if it is not there.
  std::optional<SourceTensor> take(const std::string& name) {
    const auto found = all_.find(name);
    if (found == all_.end()) return std::nullopt;
    found->second.used = true;
    const GgufTensor& t = *found->second.tensor;
    const std::string format = std::string(t.type->name) + " (type " + std::to_string(t.type->number) + ")";
    return SourceTensor{name, format, t.type->dtype, t.shape, t.offset, t.bytes, found->second.file};
  }
  /// The first that is part of no layer below `layers` and was not taken, but for what is harmless.
  std::optional<std::string> unused(int64_t layers, int64_t mtp_layers) const {
    for (const auto& [name, entry] : all_) {
      if (entry.used) continue;
      bool of_mtp = false;
      for (int64_t i = layers; i < layers + mtp_layers; ++i)
        of_mtp = of_mtp || name.starts_with("blk." + std::to_string(i) + ".");
      if (!of_mtp) return name;
    }
    return std::nullopt;
  }

 private:
  struct Entry {
    const GgufTensor* tensor;
    uint32_t file;
    bool used = false;
  };
  std::map<std::string, Entry> all_;
};

namespace {

/// Part `index` of a tensor that holds one for each expert of a layer: [experts, rows, columns], or biases [experts,
/// rows].
std::optional<SourceTensor> cut(SourceTensor stacked, uint32_t index) {
  stacked.bytes /= static_cast<uint64_t>(stacked.shape[0]);
  stacked.offset += index * stacked.bytes;
  stacked.shape.erase(stacked.shape.begin());
  return stacked;
}

/// [heads, rows, columns] as one matrix.
void flatten(SourceTensor& tensor) {
  if (tensor.shape.size() == 3) tensor.shape = {tensor.shape[0] * tensor.shape[1], tensor.shape[2]};
}

/// The gated delta rule of the layer that `tensor` is of; null if it has none.
const model::DeltaSpec* delta_of(const model::ModelSpec& spec, const std::string& tensor) {
  constexpr std::string_view kLayers = "layers.";
  size_t layer = 0;
  if (!tensor.starts_with(kLayers)) return nullptr;
  std::from_chars(tensor.data() + kLayers.size(), tensor.data() + tensor.size(), layer);
  return layer < spec.layers.size() && spec.layers[layer].delta ? &*spec.layers[layer].delta : nullptr;
}

/// Which rows of the tensor `name` are meant, where Hugging Face's files have others.
void place_parts(const model::DeltaSpec* delta, const std::string& name, model::DenseTensor& t) {
  const bool gated = t.group_rows > 0 && (name.find("attn_q.") != std::string::npos || name.ends_with("ssm_ba.weight"));
  if (gated || (delta == nullptr && name.ends_with("attn_qkv.weight"))) return;  // as there
  t.source_rows = t.source_row = t.group_rows = t.group_step = 0;
  if (!name.ends_with("attn_qkv.weight")) return;
  t.source_rows = 2 * delta->keys() + delta->values();
  if (t.name.ends_with("attn.k.weight")) t.source_row = delta->keys();
  if (t.name.ends_with("attn.v.weight")) t.source_row = 2 * delta->keys();
}

constexpr const char* kDownloadAgain = ": the file is incomplete or damaged; download it again";
constexpr uint64_t kVectorBytesMax = 64 << 10;

Result<GgufVectors> read_vectors(const GgufModel& gguf) {
  GgufVectors vectors;
  for (size_t i = 0; i < gguf.header.tensors.size(); ++i) {
    const GgufTensor& t = gguf.header.tensors[i];
    const auto names = gguf_vector_names();
    if (std::ranges::find(names, t.name) == names.end()) continue;
    if (t.type->dtype != DType::kF32 || t.shape.size() != 1 || t.bytes > kVectorBytesMax)
      return unsupported("tensor " + in_quotes(t.name) + " is not a short vector of F32" + kDownloadAgain);
    std::vector<float> values(t.bytes / sizeof(float));
    MOESTRO_RETURN_IF_ERROR(gguf.files[gguf.file_of[i]].read_at(t.offset, std::as_writable_bytes(std::span(values))));
    for (const float value : values) {
      if (!std::isfinite(value) || value <= 0)
        return invalid_argument("tensor " + in_quotes(t.name) + " holds a factor that is not above 0" +
                                kDownloadAgain);
      vectors[t.name].push_back(as_written(value));
    }
  }
  return vectors;
}

}  // namespace

Status Checkpoint::add_gguf_dense(const std::string& arch, GgufTensors& tensors, model::DenseTensor& t) {
  const model::DeltaSpec* delta = delta_of(model_.spec, t.name);
  std::string name = gguf_tensor_name(arch, t.name, delta != nullptr);
  auto found = tensors.take(name);
  if (!found && t.name.ends_with("post_attention_norm.weight")) {  // of GLM and gpt-oss, whose norms are not llama's
    name = "blk." + t.name.substr(t.name.find('.') + 1);
    found = tensors.take(name);
  }
  if (!found && t.name.ends_with("kv_b.weight")) {
    const std::string keys = name.substr(0, name.rfind("kv_b")) + "k_b.weight",
                      values = name.substr(0, name.rfind("kv_b")) + "v_b.weight";
    auto of_keys = tensors.take(keys), of_values = tensors.take(values);
    if (of_keys && of_values) {
      const model::LatentSpec& latent = *model_.spec.layers.front().latent;
      flatten(*of_keys), flatten(*of_values);
      t.source_name = keys, t.values_name = values;
      t.key_rows = latent.nope_dim, t.value_rows = latent.value_dim;
      tensors_.emplace(keys, std::move(*of_keys));
      tensors_.emplace(values, std::move(*of_values));
      return Status::ok();
    }
  }
  if (!found) return invalid_argument(directory_.string() + ": tensor " + in_quotes(name) + " is missing");
  // A gate of one row is a vector here, and a convolution a matrix.
  if (found->shape.size() == 1 && t.shape.size() == 2 && t.shape[0] == 1)
    found->shape.insert(found->shape.begin(), 1);
  if (found->shape.size() == 2 && t.shape.size() == 3 && t.shape[1] == 1)
    found->shape.insert(found->shape.begin() + 1, 1);
  if (has_interleaved_heads(arch) && (t.name.find(".attn.q.") != std::string::npos ||
                                      t.name.find(".attn.k.") != std::string::npos))
    t.head_rows = model_.spec.layers.front().attention.head_dim;
  place_parts(delta, name, t);
  t.source_name = name;
  tensors_.emplace(name, std::move(*found));
  return Status::ok();
}

Status Checkpoint::add_gguf_expert(GgufTensors& tensors, model::ExpertTensors& t) {
  const int64_t experts = model_.spec.moe().experts;
  const auto add = [&](std::string& source, const std::string& stacked, const std::string& one,
                       size_t dimensions) -> Status {
    auto found = tensors.take(stacked);
    if (found && (found->shape.size() != dimensions || found->shape[0] != experts))
      return invalid_argument(directory_.string() + ": tensor " + in_quotes(stacked) + " does not hold " +
                              std::to_string(experts) + " experts, as expert_count says");
    if (found) found = cut(std::move(*found), t.expert.value);
    else found = tensors.take(one);
    if (!found) return invalid_argument(directory_.string() + ": tensor " + in_quotes(stacked) + " is missing");
    source = one;
    tensors_.emplace(source, std::move(*found));
    return Status::ok();
  };
  const bool biased = !t.gate_bias.empty();
  const auto add_part = [&](std::string& source, std::string& bias, model::ExpertPart part) -> Status {
    const std::string one = gguf_expert_name(t.layer, part, t.expert);
    MOESTRO_RETURN_IF_ERROR(add(source, gguf_experts_name(t.layer, part), one, 3));
    if (!biased) return Status::ok();
    return add(bias, gguf_biases_name(t.layer, part), one + " (bias)", 2);
  };
  MOESTRO_RETURN_IF_ERROR(add_part(t.gate, t.gate_bias, model::ExpertPart::kGate));
  MOESTRO_RETURN_IF_ERROR(add_part(t.up, t.up_bias, model::ExpertPart::kUp));
  return add_part(t.down, t.down_bias, model::ExpertPart::kDown);
}

Status Checkpoint::add_gguf_tensors(const GgufModel& gguf) {
  GgufTensors tensors(gguf);
  const model::ModelSpec& spec = model_.spec;
  MOESTRO_ASSIGN_OR_RETURN(const auto arch, gguf.header.metadata.text("general.architecture"));
  model_.storage = {};  // every matrix of an expert is one of its own here
  for (model::DenseTensor& t : model_.dense) MOESTRO_RETURN_IF_ERROR(add_gguf_dense(arch.value_or(""), tensors, t));
  for (model::ExpertTensors& t : model_.experts) MOESTRO_RETURN_IF_ERROR(add_gguf_expert(tensors, t));
  for (const char* name : gguf_vector_names()) tensors.take(name);  // the config has all that are there
  if (const auto unused = tensors.unused(std::ssize(spec.layers), spec.mtp_layers))
    return unsupported(directory_.string() + ": tensor " + in_quotes(*unused) + " is no part of " + spec.architecture +
                       " as the metadata describe it");
  return Status::ok();
}

Result<Checkpoint> Checkpoint::open_gguf(const fs::path& file) {
  MOESTRO_ASSIGN_OR_RETURN(GgufModel gguf, GgufModel::open(file));
  Checkpoint c;
  c.directory_ = file;
  c.name_ = gguf.name;
  auto vectors = read_vectors(gguf);
  if (!vectors) return vectors.status().with_context(file.string());
  auto config = gguf_config(gguf.header, *vectors);
  if (!config) return config.status().with_context(file.string());
  c.config_json_ = std::move(config->json);
  c.remarks_ = std::move(config->remarks);
  auto tokenizer = gguf_tokenizer_files(gguf.header.metadata);
  if (!tokenizer) return tokenizer.status().with_context(file.string());
  c.made_files_ = std::move(*tokenizer);
  c.made_files_->push_back({"config.json", c.config_json_});
  MOESTRO_RETURN_IF_ERROR(c.describe(c.config_json_, file.string()));
  MOESTRO_ASSIGN_OR_RETURN(const auto* tokens, gguf.header.metadata.texts("tokenizer.ggml.tokens"));
  if (tokens != nullptr && std::ssize(*tokens) != c.model_.spec.vocab)
    return invalid_argument(file.string() + ": has " + std::to_string(tokens->size()) +
                            " tokens, but rows of the embedding for " + std::to_string(c.model_.spec.vocab));
  MOESTRO_RETURN_IF_ERROR(c.add_gguf_tensors(gguf));
  c.files_ = std::move(gguf.files);
  for (const File& part : c.files_) c.stamp(part, fs::path(part.path()).filename().string());
  MOESTRO_RETURN_IF_ERROR(c.check_tensors());
  return c;
}

}  // namespace moestro::store
